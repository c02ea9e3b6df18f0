#include "cluster/output_spool.h"

#include <algorithm>

#include "base/log.h"

namespace tutti {
namespace {

// A quiet pipe has a small buffer; one that fills it gets more, up to what a pipe holds.
constexpr size_t kLeastRoom = 256;
constexpr size_t kMostRoom = 64 << 10;
// Of what waits to be written. Beyond it pipes are not read, and processes wait for the disk.
constexpr size_t kMostWaiting = 4 << 20;
constexpr Duration kDiskPause = 1ms;
constexpr size_t kReadBytes = 256 << 10;
constexpr Duration kFinishPause = 10ms;

}  // namespace

OutputSpool::OutputSpool(World& world, std::string folder)
    : world_(world), folder_(std::move(folder)) {}

Result<void> OutputSpool::read_from(uint32_t process, uint8_t stream, Handle pipe) {
  TRY(auto adopted, world_.network().adopt(std::move(pipe)));
  ++open_pipes_;
  strands_.spawn(pump(process, stream, std::move(adopted)));
  return {};
}

Task<void> OutputSpool::pump(uint32_t process, uint8_t stream, std::unique_ptr<Stream> pipe) {
  size_t room = kLeastRoom;
  auto buffer = std::make_unique_for_overwrite<std::byte[]>(room);
  while (true) {
    const MutableBytes into(buffer.get(), room);
    auto count = co_await pipe->read(into);
    if (!count && count.error().code() == Code::cancelled) break;
    const size_t size = count.value_or(0);
    if (size == 0) break;
    add(process, stream, into.first(size));
    if (size == room && room < kMostRoom) {
      room *= 4;
      buffer = std::make_unique_for_overwrite<std::byte[]>(room);
    }
    while (outbox_.size() > kMostWaiting && !broken_) {
      auto slept = co_await world_.clock().sleep(kDiskPause);
      if (!slept) break;
    }
  }
  --open_pipes_;
  if (posted_ != 0) add(process, stream, {});
  ring();
}

void OutputSpool::add(uint32_t process, uint8_t stream, Bytes bytes) {
  if (broken_) return;
  const size_t start = outbox_.size();
  outbox_.resize(start + kSpoolHeaderBytes + bytes.size());
  std::byte* to = as_mutable_bytes(outbox_).data() + start;
  store_le(to, process);
  store_le(to + 4, uint32_t{stream});
  store_le(to + 8, static_cast<uint32_t>(bytes.size()));
  if (!bytes.empty()) std::memcpy(to + kSpoolHeaderBytes, bytes.data(), bytes.size());
  posted_ += kSpoolHeaderBytes + bytes.size();
  if (!std::exchange(is_writing_, true)) strands_.spawn(write_out());
}

void OutputSpool::ring() {
  for (Alarm* follower : followers_) follower->ring();
}

Task<void> OutputSpool::write_out() {
  const Shield finish_it;  // what was read from a pipe is nowhere else
  while (!outbox_.empty()) {
    std::string bytes = std::exchange(outbox_, {});
    const size_t size = bytes.size();
    auto written = co_await write_piece(std::move(bytes));
    if (!written) {
      TUTTI_LOG(error, "cannot keep what a job prints", {{"why", written.error().text()}});
      broken_ = true;
    }
    written_ += size;
    ring();
  }
  is_writing_ = false;
}

std::string OutputSpool::file_name(uint64_t first) const {
  return fmt::format("{}/output-{:016x}", folder_, first);
}

Task<Result<void>> OutputSpool::write_piece(std::string bytes) {
  if (parts_.empty() || parts_.back().end - parts_.back().first >= kSpoolFileBytes) {
    if (parts_.empty()) {
      auto made = co_await world_.disk().make_directories(folder_);
      if (!made) co_return made;
    }
    OpenOptions options{.write = true, .create = true, .truncate = true, .secret = true};
    auto file = co_await world_.disk().open(file_name(written_), options);
    if (!file) co_return fail(std::move(file).error());
    parts_.push_back({written_, written_, std::move(*file)});
    if (parts_.size() > kSpoolFiles) {
      const std::string oldest = file_name(parts_.front().first);
      parts_.erase(parts_.begin());
      (void)co_await world_.disk().remove(oldest);
    }
  }
  const std::shared_ptr<File> file = parts_.back().file;
  const uint64_t offset = parts_.back().end - parts_.back().first;
  const Bytes piece = as_bytes(bytes);
  auto written = co_await file->write(offset, piece);
  if (written) parts_.back().end += bytes.size();
  co_return written;
}

Task<void> OutputSpool::finish(Duration patience) {
  const Instant until = world_.clock().now() + patience;
  while (open_pipes_ != 0 && world_.clock().now() < until) {
    auto slept = co_await world_.clock().sleep(kFinishPause);
    if (!slept) break;
  }
  strands_.cancel();
  (void)co_await strands_.join();
  over_ = true;
  ring();
}

Task<Result<std::string>> OutputSpool::read(uint64_t& place, Instant deadline) {
  Alarm alarm(world_.clock());
  followers_.push_back(&alarm);
  while (place >= written_ && !over_ && world_.clock().now() < deadline) {
    auto woken = co_await alarm.until(deadline);
    if (!woken) break;
  }
  std::erase(followers_, &alarm);
  if (place >= written_ || parts_.empty()) co_return std::string();
  place = std::max(place, parts_.front().first);
  const auto after = std::ranges::upper_bound(parts_, place, {}, &Part::first);
  const Part& part = *std::prev(after);
  const std::shared_ptr<File> file = part.file;
  std::string bytes(std::min<uint64_t>(part.end - place, kReadBytes), '\0');
  const uint64_t offset = place - part.first;
  const MutableBytes into = as_mutable_bytes(bytes);
  auto count = co_await file->read(offset, into);
  if (!count) co_return fail(std::move(count).error());
  bytes.resize(*count);
  // Only whole pieces; one is never longer than what a pipe holds.
  size_t whole = 0;
  while (whole + kSpoolHeaderBytes <= bytes.size()) {
    const auto size = load_le<uint32_t>(as_bytes(bytes).data() + whole + 8);
    if (whole + kSpoolHeaderBytes + size > bytes.size()) break;
    whole += kSpoolHeaderBytes + size;
  }
  bytes.resize(whole);
  place += whole;
  co_return bytes;
}

}  // namespace tutti
