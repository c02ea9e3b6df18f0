#include "world/sim/disk.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr OpenOptions kCreate{.write = true, .create = true};

Task<Result<void>> write_all(Disk& disk, std::string path, std::string text, bool sync,
                             bool names) {
  CO_TRY(auto file, co_await disk.open(path, kCreate));
  const Bytes bytes = as_bytes(text);
  CO_TRY_DO(co_await file->write(0, bytes));
  if (sync) CO_TRY_DO(co_await file->sync());
  const std::string folder = "/";
  if (names) CO_TRY_DO(co_await disk.sync_directory(folder));
  co_return {};
}

Task<Result<void>> look(Disk& disk, std::string path, std::string& text) {
  auto found = co_await read_file(disk, path, 1_MiB);
  text = found ? *found : std::string(code_name(found.error().code()));
  co_return {};
}

std::string after_crash(uint64_t seed, std::string text, bool sync, bool names) {
  Simulator sim({.seed = seed, .hosts = 1});
  REQUIRE(sim.run(write_all(sim.host(0).disk(), "/a", std::move(text), sync, names), 1min));
  sim.crash(0);
  sim.run_for(1s);
  sim.reboot(0);
  std::string seen;
  sim.run_for(1s);
  REQUIRE(sim.run(look(sim.host(0).disk(), "/a", seen), 1min));
  return seen;
}

TEST_CASE("what was synced, with its name, survives every crash") {
  for (uint64_t seed = 0; seed < 50; ++seed) CHECK(after_crash(seed, "kept", true, true) == "kept");
}

TEST_CASE("a name that was not synced may be lost, and its data may not") {
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < 50; ++seed)
    outcomes.insert(after_crash(seed, "kept", true, false));
  CHECK(outcomes == std::set<std::string>{"kept", std::string(code_name(Code::not_found))});
}

TEST_CASE("writes that were not synced are lost, kept, cut short or torn by sectors") {
  const std::string text = std::string(512, 'a') + std::string(512, 'b') + std::string(512, 'c');
  const std::string zeros(512, '\0');
  bool lost = false;
  bool kept = false;
  bool torn = false;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string seen = after_crash(seed, text, false, true);
    lost |= seen.empty();
    kept |= seen == text;
    for (size_t sector = 0; sector * 512 < seen.size(); ++sector) {
      const std::string got = seen.substr(sector * 512, 512);
      const std::string written = text.substr(sector * 512, got.size());
      const bool whole = got == written;
      CHECK((whole || got == zeros.substr(0, got.size())));
      torn |= !whole && seen.size() == text.size();
    }
  }
  CHECK(lost);
  CHECK(kept);
  CHECK(torn);
}

Task<Result<void>> replace(Disk& disk, std::string path, std::string text) {
  const Bytes bytes = as_bytes(text);
  co_return co_await write_file_atomically(disk, path, bytes);
}

TEST_CASE("a file that is replaced atomically is the old or the new one after any crash") {
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Simulator sim({.seed = seed, .hosts = 1});
    Disk& disk = sim.host(0).disk();
    REQUIRE(sim.run(replace(disk, "/a", "old"), 1min));
    sim.host(0).scope().spawn(replace(disk, "/a", "new"));
    sim.run_for(Duration(static_cast<int64_t>(seed) * 20'000));
    sim.crash(0);
    sim.run_for(1s);
    sim.reboot(0);
    sim.run_for(1s);
    std::string seen;
    REQUIRE(sim.run(look(disk, "/a", seen), 1min));
    outcomes.insert(seen);
  }
  CHECK(outcomes == std::set<std::string>{"old", "new"});
}

TEST_CASE("a full disk and a broken one say so, and are fine once mended") {
  Simulator sim({.hosts = 1});
  SimDisk& disk = sim.host(0).sim_disk();
  disk.set_full(true);
  auto full = sim.run(write_all(disk, "/a", "x", true, true), 1min);
  CHECK(full.error().code() == Code::exhausted);
  disk.mend();
  disk.set_error_probability(1);
  auto broken = sim.run(write_all(disk, "/a", "x", true, true), 1min);
  CHECK(broken.error().code() == Code::io);
  disk.mend();
  CHECK(sim.run(write_all(disk, "/a", "x", true, true), 1min));
  disk.files().space().capacity = 3;
  auto large = sim.run(write_all(disk, "/b", "larger", true, true), 1min);
  CHECK(large.error().code() == Code::exhausted);
}

Task<Result<void>> map_and_grow(Disk& disk, std::string& seen) {
  CO_TRY(auto file, co_await disk.open("/m", kCreate));
  CO_TRY_DO(co_await file->truncate(4096));
  CO_TRY(auto mapping, file->map(0, 4096, true));
  std::memcpy(mapping->bytes().data() + 100, "mapped", 6);
  std::string text(6, '\0');
  const MutableBytes into = as_mutable_bytes(text);
  CO_TRY(const size_t got, co_await file->read(100, into));
  seen = text.substr(0, got);
  co_return {};
}

TEST_CASE("a mapping shares the file's bytes") {
  Simulator sim({.hosts = 1});
  std::string seen;
  REQUIRE(sim.run(map_and_grow(sim.host(0).disk(), seen), 1min));
  CHECK(seen == "mapped");
}

Task<Result<void>> use_folders(Disk& disk, std::vector<std::string>& names) {
  CO_TRY_DO(co_await disk.make_directories("/a/b"));
  CO_TRY(auto file, co_await disk.open("/a/b/one", kCreate));
  CO_TRY(auto other, co_await disk.open("/a/b/two", kCreate));
  CO_TRY_DO(co_await disk.rename("/a/b/one", "/a/b/three"));
  CO_TRY_DO(co_await disk.remove("/a/b/two"));
  auto busy = co_await disk.remove("/a/b");
  if (busy) co_return fail(Code::internal, "removed a folder with files in it");
  CO_TRY(names, co_await disk.list("/a/b"));
  CO_TRY(const FileInfo info, co_await disk.info("/a"));
  if (!info.directory) co_return fail(Code::internal, "a folder is a directory");
  co_return {};
}

TEST_CASE("folders that were made durably survive every crash") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Simulator sim({.seed = seed, .hosts = 1});
    Disk& disk = sim.host(0).disk();
    REQUIRE(sim.run(disk.make_directories("/a/b"), 1min));
    REQUIRE(sim.run(make_directories_durably(disk, "/a/b/c/d"), 1min));
    sim.crash(0);
    sim.run_for(1s);
    sim.reboot(0);
    sim.run_for(1s);
    CHECK(sim.run(disk.sync_directory("/a/b/c/d"), 1min));
  }
}

TEST_CASE("files are renamed, removed and listed") {
  Simulator sim({.hosts = 1});
  std::vector<std::string> names;
  auto result = sim.run(use_folders(sim.host(0).disk(), names), 1min);
  REQUIRE_MESSAGE(result, (result ? "" : result.error().text()));
  CHECK(names == std::vector<std::string>{"three"});
}

Task<Result<void>> change_at_random(Disk& disk, SimRandom& random, std::string& expected) {
  CO_TRY(auto file, co_await disk.open("/a", kCreate));
  for (int change = 0; change < 60; ++change) {
    const uint64_t kind = random.below(8);
    if (kind == 0) {
      const uint64_t size = random.below(200);
      expected.resize(size);
      CO_TRY_DO(co_await file->truncate(size));
    } else if (kind < 4) {
      CO_TRY_DO(co_await file->sync());
    } else {
      const std::string text(1 + random.below(40), static_cast<char>('a' + random.below(3)));
      const uint64_t offset = kind == 4 ? random.below(expected.size() + 1) : expected.size();
      if (expected.size() < offset + text.size()) expected.resize(offset + text.size());
      expected.replace(offset, text.size(), text);
      const Bytes bytes = as_bytes(text);
      CO_TRY_DO(co_await file->write(offset, bytes));
    }
  }
  co_return co_await file->sync();
}

TEST_CASE("a file is what was written, whenever it was synced, on this disk or another") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Simulator sim({.seed = seed, .hosts = 4});
    SimRandom random(seed);
    for (uint32_t host = 0; host < 4; ++host) {
      std::string expected;
      REQUIRE(sim.run(change_at_random(sim.host(host).disk(), random, expected), 1min));
      std::string seen;
      REQUIRE(sim.run(look(sim.host(host).disk(), "/a", seen), 1min));
      CHECK(seen == expected);
    }
  }
}

}  // namespace
}  // namespace tutti
