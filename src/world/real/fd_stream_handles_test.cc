#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "world/real/fd.h"
#include "world/real/fd_stream.h"
#include "world/real/network_fixture.h"

namespace tutti {
namespace {

struct HandleFixture : NetworkFixture {
  std::unique_ptr<Stream> a;
  std::unique_ptr<Stream> b;
  HandleFixture() {
    auto pair = network.pair();
    REQUIRE(pair);
    a = std::move(pair->ours);
    auto adopted = network.adopt(std::move(pair->theirs));
    REQUIRE(adopted);
    b = std::move(*adopted);
  }
};

struct TestPipe {
  Handle reader;
  Handle writer;
  TestPipe() {
    int fds[2];
    REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
    reader = own_fd(fds[0]);
    writer = own_fd(fds[1]);
  }
};

std::vector<Handle> copies_of(const Handle& handle, size_t count) {
  std::vector<Handle> copies;
  for (size_t i = 0; i < count; ++i)
    copies.push_back(own_fd(fcntl(handle.number(), F_DUPFD_CLOEXEC, 0)));
  return copies;
}

bool same_file(const Handle& a, const Handle& b) {
  struct stat of_a, of_b;
  return fstat(a.number(), &of_a) == 0 && fstat(b.number(), &of_b) == 0 &&
         of_a.st_ino == of_b.st_ino && of_a.st_dev == of_b.st_dev;
}

Task<Result<void>> write_with(Stream& stream, std::string text,
                              const std::vector<Handle>& handles) {
  auto written = co_await stream.write(as_bytes(text), handles);
  co_return written;
}

Task<Result<std::string>> read_with(Stream& stream, std::vector<Handle>* handles) {
  std::string text(1000, '\0');
  auto count = co_await stream.read(as_mutable_bytes(text), handles);
  if (!count) co_return fail(std::move(count).error());
  text.resize(*count);
  co_return text;
}

Task<void> pass_handles(Stream& from, Stream& to, size_t count) {
  TestPipe pipe;
  const auto sent = copies_of(pipe.writer, count);
  const std::string text = "take these";
  auto written = co_await write_with(from, text, sent);
  REQUIRE_MESSAGE(written, written.error().text());
  CHECK(sent.front().open());
  std::vector<Handle> came;
  auto heard = co_await read_with(to, &came);
  CHECK(heard.value() == text);
  REQUIRE(came.size() == count);
  for (const Handle& handle : came) {
    CHECK(same_file(handle, pipe.writer));
    CHECK((fcntl(handle.number(), F_GETFD) & FD_CLOEXEC) != 0);
  }
}

TEST_CASE_FIXTURE(HandleFixture, "handles travel with the bytes, in both directions") {
  loop.run(pass_handles(*a, *b, 1));
  loop.run(pass_handles(*b, *a, FdStream::kMaxHandles));
}

Task<void> refuse_handles(Stream& stream) {
  TestPipe pipe;
  const auto too_many = copies_of(pipe.writer, FdStream::kMaxHandles + 1);
  const std::string text = "x";
  auto written = co_await write_with(stream, text, too_many);
  CHECK(written.error().code() == Code::invalid);
  const auto one = copies_of(pipe.writer, 1);
  const std::string nothing;
  auto empty = co_await write_with(stream, nothing, one);
  CHECK(empty.error().code() == Code::invalid);
}

TEST_CASE_FIXTURE(HandleFixture, "too many handles, or handles without a byte, are refused") {
  loop.run(refuse_handles(*a));
}

Task<void> two_messages(Stream& from, Stream& to) {
  TestPipe pipe;
  const auto one = copies_of(pipe.reader, 1);
  const auto two = copies_of(pipe.writer, 2);
  const std::string first = "first";
  const std::string second = "second";
  auto wrote_first = co_await write_with(from, first, one);
  CHECK(wrote_first);
  auto wrote_second = co_await write_with(from, second, two);
  CHECK(wrote_second);
  std::vector<Handle> came;
  auto text = co_await read_with(to, &came);
  CHECK(text.value() == first);
  CHECK(came.size() == 1);
  text = co_await read_with(to, &came);
  CHECK(text.value() == second);
  REQUIRE(came.size() == 3);
  CHECK(same_file(came[0], pipe.reader));
  CHECK(same_file(came[2], pipe.writer));
}

TEST_CASE_FIXTURE(HandleFixture, "handles of different writes stay with their bytes") {
  loop.run(two_messages(*a, *b));
}

Task<void> unwanted(Network& network, Stream& from, Stream& to) {
  TestPipe pipe;
  std::vector<Handle> sent;
  sent.push_back(std::move(pipe.writer));
  const std::string text = "unasked";
  auto written = co_await write_with(from, text, sent);
  CHECK(written);
  sent.clear();
  auto heard = co_await read_with(to, nullptr);
  CHECK(heard.value() == text);
  auto reader = network.adopt(std::move(pipe.reader));
  REQUIRE(reader);
  auto end = co_await read_once(**reader);  // ends only when no copy of the writer is left
  CHECK(end.value() == 0);
}

TEST_CASE_FIXTURE(HandleFixture, "handles nobody asked for are closed") {
  loop.run(unwanted(network, *a, *b));
}

Task<void> no_room(Stream& from, Stream& to) {
  TestPipe pipe;
  const auto sent = copies_of(pipe.writer, 20);
  const std::string text = "too much";
  auto written = co_await write_with(from, text, sent);
  CHECK(written);
  std::vector<Handle> came;
  {
    DescriptorLimit limit(3);
    auto heard = co_await read_with(to, &came);
    REQUIRE(!heard);
    CHECK(heard.error().code() == Code::exhausted);
    CHECK(heard.error().text().find("ulimit -n") != std::string::npos);
  }
  CHECK(came.empty());
}

TEST_CASE_FIXTURE(HandleFixture,
                  "handles that find no room are an error and leave nothing behind") {
  loop.run(no_room(*a, *b));
}

}  // namespace
}  // namespace tutti
