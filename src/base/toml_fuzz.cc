// Any bytes: reading every key in every type never crashes, whatever the file says.
#include <cstddef>
#include <cstdint>

#include "base/toml.h"

namespace {

constexpr int kDeepest = 8;

void read_everything(tutti::TomlReader& toml, int depth) {
  for (const std::string& key : toml.keys()) {
    bool flag = false;
    int number = 0;
    double share = 0;
    std::string text;
    tutti::Duration duration{};
    std::vector<std::string> texts;
    uint64_t bytes = 0;
    toml.read(key, flag);
    toml.read(key, number);
    toml.read(key, share);
    toml.read(key, text);
    toml.read(key, duration);
    toml.read(key, texts);
    toml.read_bytes(key, bytes);
    if (toml.place(key) == tutti::TomlReader::Place{}) __builtin_trap();
    if (depth == kDeepest) continue;
    tutti::TomlReader inner = toml.table(key);
    read_everything(inner, depth + 1);
    for (tutti::TomlReader& each : toml.tables(key)) read_everything(each, depth + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto toml = tutti::TomlReader::parse({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
  if (!toml) return 0;
  read_everything(*toml, 0);
  const auto done = toml->finish();
  if (!done && done.error().text().empty()) __builtin_trap();
  return 0;
}
