#include "base/alike.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

namespace tutti {
namespace {

std::string settings_of(uint32_t host) {
  return fmt::format("PATH=/usr/bin;RANK={:06};WORLD_SIZE=100000;HOST=host{:06};{}", host, host,
                     std::string(400, 'x'));
}

TEST_CASE("what differs little from others takes little") {
  AlikePool pool;
  std::vector<AlikeBytes> all;
  for (uint32_t host = 0; host < 1000; ++host) all.emplace_back(pool, as_bytes(settings_of(host)));
  CHECK(pool.models() == 1);
  for (uint32_t host = 0; host < 1000; ++host) {
    CHECK(all[host].text() == settings_of(host));
    CHECK(all[host].own_bytes() < 32);
  }
}

TEST_CASE("whatever is kept is found again, as long as anybody keeps it") {
  AlikePool pool;
  std::mt19937 random(11);
  std::vector<std::pair<std::string, AlikeBytes>> all;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(random() % 40, static_cast<char>('a' + random() % 12));
    for (uint32_t changes = random() % 6; changes > 0 && !bytes.empty(); --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    AlikeBytes kept(pool, as_bytes(bytes));
    CHECK(kept.size() == bytes.size());
    all.emplace_back(std::move(bytes), std::move(kept));
    if (all.size() > 200) std::swap(all[random() % all.size()], all.back());
    if (all.size() > 200) all.pop_back();
  }
  for (const auto& [bytes, kept] : all) CHECK(kept.text() == bytes);
  all.clear();
  CHECK(pool.models() == 0);
}

TEST_CASE("no bytes are kept as nothing") {
  AlikePool pool;
  const AlikeBytes kept(pool, {});
  CHECK(kept.empty());
  CHECK(kept.text().empty());
  CHECK(AlikeBytes().own_bytes() == 0);
}

}  // namespace
}  // namespace tutti
