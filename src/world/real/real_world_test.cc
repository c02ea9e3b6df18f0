#include "world/real/real_world.h"

#include <doctest/doctest.h>

#include "world/real/network_fixture.h"
#include "world/real/temporary_folder_fixture.h"

namespace tutti {
namespace {

// One thing of each kind, all on one loop.
Task<Result<void>> touch_everything(World& world, std::string path) {
  CO_TRY_DO(co_await world.clock().sleep(1ms));
  const std::string text = fmt::format("{:x}", world.random().next());
  CO_TRY_DO(co_await write_file_atomically(world.disk(), path, as_bytes(text)));
  CO_TRY(const std::string back, co_await read_file(world.disk(), path, 100));
  CHECK(back == text);
  CO_TRY(const Handle arena, world.memory().create_arena("test", 4096));
  CO_TRY(auto mapping, world.memory().map(arena, 0, 4096, true));
  CHECK(mapping->bytes().size() == 4096);
  CO_TRY(auto pipe, world.processes().pipe());
  SpawnOptions options;
  options.arguments = {"sh", "-c", "echo $0", text};
  options.environment = {"PATH=/usr/bin:/bin"};
  options.inherit = {{&pipe.writer, 1}};
  CO_TRY(auto process, world.processes().spawn(options));
  pipe.writer.close();
  CO_TRY(auto output, world.network().adopt(std::move(pipe.reader)));
  const std::string printed = co_await read_text(*output, 100);
  CHECK(printed == text + "\n");
  CO_TRY(const Exit exit, co_await process->wait());
  CHECK(exit.ok());
  co_return Result<void>{};
}

TEST_CASE("a real world has a clock, a disk, memory, processes, a network and random numbers") {
  LeakCheck leaks;
  TemporaryFolder folder;
  RealWorld world;
  auto touched = world.run(touch_everything(world, folder.path + "/file"));
  CHECK_MESSAGE(touched, touched.error().text());
  CHECK(!world.host_name().empty());
}

TEST_CASE("no fault happens in a real world") {
  RealWorld world;
  CHECK(!TUTTI_FAULT(world, "real world test: never"));
}

}  // namespace
}  // namespace tutti
