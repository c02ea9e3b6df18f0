#include "world/real/disk.h"

#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "world/real/process_test_tools.h"

namespace tutti {

using process_testing::descriptors_of;

namespace {

struct Folder {
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(std::string_view name) const { return path + "/" + std::string(name); }
  std::string path = "/tmp/tutti-disk-XXXXXX";
};

struct Machine {
  explicit Machine(DiskBackEnd back_end)
      : loop(LoopOptions{.spin = Duration::zero()}), disk(loop, back_end) {}
  Loop loop;
  RealDisk disk;

  template <class T>
  T run(Task<Result<T>> task) {
    auto result = loop.run(std::move(task));
    REQUIRE_MESSAGE(result.has_value(), (result ? "" : result.error().text()));
    if constexpr (!std::is_void_v<T>) return std::move(*result);
  }
  template <class T>
  Error error(Task<Result<T>> task) {
    auto result = loop.run(std::move(task));
    REQUIRE_FALSE(result.has_value());
    return result.error();
  }
  std::unique_ptr<File> create(const std::string& path) {
    return run(disk.open(path, OpenOptions{.write = true, .create = true}));
  }
};

// The same holds for both back ends.
template <class Body>
void on_both(Body body) {
  for (const DiskBackEnd back_end : {DiskBackEnd::best, DiskBackEnd::threads}) {
    CAPTURE(back_end == DiskBackEnd::threads);
    Machine machine(back_end);
    const Folder folder;
    body(machine, folder);
  }
}

// Reads a byte of a pipe nobody writes to, until cancelled.
Task<Result<void>> read_forever(DiskEngine& engine, int fd, int64_t& result) {
  char byte = 0;
  DiskEngine::Operation operation(
      engine,
      {.kind = DiskRequest::Kind::read, .fd = fd, .offset = ~0ULL, .data = &byte, .size = 1});
  result = co_await operation;
  co_return {};
}

Task<Result<void>> cancel_reading(Loop& loop, DiskEngine& engine, int fd, int64_t& result) {
  Scope scope;
  scope.spawn(read_forever(engine, fd, result));
  auto slept = co_await loop.clock().sleep(2ms);
  scope.cancel();
  auto joined = co_await scope.join();
  co_return slept;
}

Task<Result<void>> append_one(File& file, std::string text, std::vector<uint64_t>& offsets) {
  const Bytes bytes = as_bytes(text);
  CO_TRY(const uint64_t offset, co_await file.append(bytes));
  offsets.push_back(offset);
  co_return {};
}

Task<Result<void>> append_many(File& file, size_t count, std::vector<uint64_t>& offsets) {
  Scope scope;
  for (size_t i = 0; i < count; ++i) scope.spawn(append_one(file, "12345678", offsets));
  auto joined = co_await scope.join();
  co_return joined;
}

Task<Result<void>> write_part(File& file, uint64_t offset, std::string text) {
  const Bytes bytes = as_bytes(text);
  CO_TRY_DO(co_await file.write(offset, bytes));
  co_return {};
}

// Many writes at once, cancelled before they can all be done.
Task<Result<void>> write_and_cancel(File& file, size_t count) {
  Scope scope;
  for (size_t i = 0; i < count; ++i)
    scope.spawn(write_part(file, i * 64_KiB, std::string(64_KiB, 'x')));
  co_await yield();
  co_await yield();
  scope.cancel();
  auto joined = co_await scope.join();
  if (!joined && joined.error().code() != Code::cancelled) co_return joined;
  co_return {};
}

}  // namespace

TEST_CASE("what is written to a file is read back") {
  on_both([](Machine& machine, const Folder& folder) {
    auto file = machine.create(folder / "a");
    machine.run(file->write(3, as_bytes("hello")));
    CHECK(machine.run(file->size()) == 8);
    std::string text(20, '?');
    CHECK(machine.run(file->read(0, as_mutable_bytes(text))) == 8);
    CHECK(text.substr(0, 8) == std::string("\0\0\0hello", 8));
    CHECK(machine.run(file->read(100, as_mutable_bytes(text))) == 0);
    machine.run(file->truncate(5));
    machine.run(file->sync());
    CHECK(machine.run(read_file(machine.disk, folder / "a", 100)) == std::string("\0\0\0he", 5));
  });
}

TEST_CASE("a large write arrives whole") {
  on_both([](Machine& machine, const Folder& folder) {
    std::string text(5 << 20, 'x');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 13);
    machine.run(write_file_atomically(machine.disk, folder / "a", as_bytes(text)));
    CHECK(machine.run(read_file(machine.disk, folder / "a", 10 << 20)) == text);
    CHECK(machine.run(machine.disk.list(folder.path)) == std::vector<std::string>{"a"});
  });
}

TEST_CASE("parts of a file that is replaced lie one after the other, empty ones too") {
  on_both([](Machine& machine, const Folder& folder) {
    const std::string head = "head", large(20 << 20, 'x'), tail = "tail";
    const std::vector<Bytes> parts = {as_bytes(head), {}, as_bytes(large), as_bytes(tail)};
    machine.run(write_file_atomically(machine.disk, folder / "a", parts));
    CHECK(machine.run(read_file(machine.disk, folder / "a", 30 << 20)) == head + large + tail);
    machine.run(write_file_atomically(machine.disk, folder / "a", Bytes{}));
    CHECK(machine.run(read_file(machine.disk, folder / "a", 100)).empty());
    CHECK(machine.run(machine.disk.list(folder.path)) == std::vector<std::string>{"a"});
  });
}

TEST_CASE("appends of many strands never overlap") {
  on_both([](Machine& machine, const Folder& folder) {
    auto file = machine.create(folder / "a");
    std::vector<uint64_t> offsets;
    machine.run(append_many(*file, 200, offsets));
    CHECK(machine.run(file->size()) == 1600);
    std::sort(offsets.begin(), offsets.end());
    for (size_t i = 0; i < offsets.size(); ++i) CHECK(offsets[i] == i * 8);
  });
}

TEST_CASE("opening follows its options") {
  on_both([](Machine& machine, const Folder& folder) {
    const std::string path = folder / "a";
    CHECK(machine.error(machine.disk.open(path, {})).code() == Code::not_found);
    const OpenOptions exclusive{.write = true, .create = true, .exclusive = true, .secret = true};
    machine.run(machine.run(machine.disk.open(path, exclusive))->write(0, as_bytes("x")));
    CHECK(machine.run(machine.disk.info(path)).permissions == 0600);
    CHECK(machine.error(machine.disk.open(path, exclusive)).code() == Code::exists);
    auto reading = machine.run(machine.disk.open(path, {}));
    CHECK_FALSE(machine.loop.run(reading->write(0, as_bytes("y"))).has_value());
    auto emptied = machine.run(machine.disk.open(path, {.write = true, .truncate = true}));
    CHECK(machine.run(emptied->size()) == 0);
  });
}

TEST_CASE("names are made, listed, told about, moved and removed") {
  on_both([](Machine& machine, const Folder& folder) {
    RealDisk& disk = machine.disk;
    machine.run(disk.make_directories(folder / "x/y/z"));
    machine.run(disk.make_directories(folder / "x/y/z/"));
    machine.create(folder / "x/b");
    machine.create(folder / "x/a");
    CHECK(machine.error(disk.make_directories(folder / "x/a/c")).code() == Code::invalid);
    CHECK(machine.error(disk.make_directories(folder / "x/a")).code() == Code::exists);
    CHECK(machine.run(disk.list(folder / "x")) == std::vector<std::string>{"a", "b", "y"});
    CHECK(machine.run(disk.info(folder / "x")).directory);
    CHECK_FALSE(machine.run(disk.info(folder / "x/a")).directory);
    CHECK(machine.run(disk.info(folder / "x/a")).modified_unix_ns > 1'600'000'000'000'000'000);
    machine.run(disk.rename(folder / "x/a", folder / "x/b"));
    machine.run(disk.sync_directory(folder / "x"));
    CHECK(machine.error(disk.rename(folder / "x/y", folder / "x/b")).code() == Code::invalid);
    CHECK(machine.error(disk.remove(folder / "x")).code() == Code::exists);
    machine.run(disk.remove(folder / "x/b"));
    machine.run(disk.remove(folder / "x/y/z"));
    CHECK(machine.error(disk.remove(folder / "x/b")).code() == Code::not_found);
    CHECK(machine.run(disk.free_bytes(folder.path)) > 0);
    CHECK(machine.error(disk.list(folder / "no")).text() ==
          "list " + (folder / "no") + ": No such file or directory");
  });
}

TEST_CASE("a mapped file shows and takes what is written") {
  on_both([](Machine& machine, const Folder& folder) {
    auto file = machine.create(folder / "a");
    machine.run(file->truncate(10'000));
    auto mapping = file->map(5'000, 3'000, true);
    REQUIRE(mapping.has_value());
    CHECK((*mapping)->bytes().size() == 3'000);
    machine.run(file->write(5'000, as_bytes("in")));
    CHECK(as_text((*mapping)->bytes().first(2)) == "in");
    (*mapping)->bytes()[2] = std::byte{'!'};
    std::string text(3, '?');
    machine.run(file->read(5'000, as_mutable_bytes(text)));
    CHECK(text == "in!");
    CHECK(file->map(5'000, 5'001, false).error().code() == Code::invalid);
    CHECK(file->map(~0ULL, 2, false).error().code() == Code::invalid);
    CHECK(file->map(0, 0, false).error().code() == Code::invalid);
  });
}

TEST_CASE("a full disk is reported with what to do, and leaves no half-written file") {
  if (geteuid() != 0) return;  // the file-size limit below tells the same for other users
  on_both([](Machine& machine, const Folder& folder) {
    if (mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=64k") != 0) {
      MESSAGE("mounting is not allowed here");
      return;
    }
    const std::string text(1 << 20, 'x');
    const Error error =
        machine.error(write_file_atomically(machine.disk, folder / "a", as_bytes(text)));
    const auto left = machine.run(machine.disk.list(folder.path));
    umount(folder.path.c_str());
    CHECK(error.code() == Code::exhausted);
    CHECK(error.text().find("No space left on device; free some space: df -h") !=
          std::string::npos);
    CHECK(left.empty());
  });
}

TEST_CASE("a file past the size limit is refused with what to do") {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{4096, limit.rlim_max};
  on_both([&](Machine& machine, const Folder& folder) {
    auto file = machine.create(folder / "a");
    const std::string text(10'000, 'x');
    setrlimit(RLIMIT_FSIZE, &small);
    const Error error = machine.error(file->write(0, as_bytes(text)));
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(error.code() == Code::exhausted);
    CHECK(error.text().find("ulimit -f") != std::string::npos);
  });
  std::signal(SIGXFSZ, before);
}

TEST_CASE("a request that the kernel can give up is cancelled at once") {
  Loop loop(LoopOptions{.spin = Duration::zero()});
  DiskEngine engine(loop, DiskBackEnd::best);
  if (!engine.on_ring()) return;  // a thread in a system call cannot be called back
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  int64_t result = 0;
  CHECK(loop.run(cancel_reading(loop, engine, ends[0], result)).has_value());
  CHECK(result == -ECANCELED);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("cancelled writes are over when they return") {
  on_both([](Machine& machine, const Folder& folder) {
    auto file = machine.create(folder / "a");
    for (int round = 0; round < 20; ++round) machine.run(write_and_cancel(*file, 200));
  });
}

TEST_CASE("files leave no descriptor open, and none is inherited") {
  on_both([](Machine& machine, const Folder& folder) {
    machine.create(folder / "first");  // what the back end opens for itself stays
    machine.run(machine.disk.list(folder.path));
    const std::set<int> before = descriptors_of("self");
    for (int i = 0; i < 20; ++i) {
      auto file = machine.create(folder / "a");
      for (const int fd : descriptors_of("self"))
        if (!before.contains(fd)) CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
      machine.run(machine.disk.sync_directory(folder.path));
    }
    CHECK(descriptors_of("self") == before);
  });
}

TEST_CASE("a disk that is not used costs nothing") {
  Loop loop(LoopOptions{.spin = Duration::zero()});
  const std::set<int> before = descriptors_of("self");
  const RealDisk disk(loop);
  CHECK(descriptors_of("self") == before);
}

}  // namespace tutti
