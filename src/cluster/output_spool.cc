#include "cluster/output_spool.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "base/queue_mark.h"

namespace tutti {
namespace {

// Of a piece: what a pipe holds, and what is read of it at once.
constexpr size_t kMostRoom = 64 << 10;
// Of what waits to be written. Beyond it pipes are not read, and processes wait for the disk.
constexpr size_t kMostWaiting = 4 << 20;
constexpr Duration kDiskPause = 1ms;
constexpr size_t kReadBytes = 256 << 10;
// Events in one message: small enough for it, enough for most hosts at once.
constexpr size_t kEventsAtOnce = 1024;
constexpr std::string_view kFileStart = "output-";
constexpr const char* kReadersFile = "/readers";
constexpr uint64_t kMostReadersBytes = 1024;
constexpr std::string_view kRoot = "root";

void add_piece(std::string& to, uint32_t process, uint8_t stream, Bytes bytes) {
  const size_t start = to.size();
  to.resize(start + kSpoolHeaderBytes + bytes.size());
  std::byte* at = as_mutable_bytes(to).data() + start;
  store_le(at, process);
  store_le(at + 4, uint32_t{stream});
  store_le(at + 8, static_cast<uint32_t>(bytes.size()));
  if (!bytes.empty()) std::memcpy(at + kSpoolHeaderBytes, bytes.data(), bytes.size());
}

// Bytes of the whole pieces that stand at the beginning.
size_t whole_in(Bytes bytes) {
  size_t whole = 0;
  while (whole + kSpoolHeaderBytes <= bytes.size()) {
    const auto size = load_le<uint32_t>(bytes.data() + whole + 8);
    if (size > kMostRoom || whole + kSpoolHeaderBytes + size > bytes.size()) break;
    whole += kSpoolHeaderBytes + size;
  }
  return whole;
}

}  // namespace

Result<void> JobReaders::check(uint64_t job, const std::string& name) const {
  if (name == kRoot || (!name.empty() && (name == user || name == cluster_owner))) return {};
  if (user.empty())
    return fail(Code::denied, "nobody knows whose job {} was; only root may read what it printed",
                job);
  return fail(
      Code::denied,
      "job {} is {}'s, and you are {}; only {}, root and who runs the head may read what it "
      "prints",
      job, user, name, user);
}

std::string JobReaders::text() const { return fmt::format("{}\n{}\n", user, cluster_owner); }

JobReaders JobReaders::parse(std::string_view text) {
  const size_t first = text.find('\n');
  const size_t second = first == std::string_view::npos ? first : text.find('\n', first + 1);
  if (second == std::string_view::npos) return {};
  return {.user = std::string(text.substr(0, first)),
          .cluster_owner = std::string(text.substr(first + 1, second - first - 1))};
}

Task<JobReaders> JobReaders::left_in(World& world, std::string folder) {
  const std::string path = folder + kReadersFile;
  auto text = co_await read_file(world.disk(), path, kMostReadersBytes);
  co_return text ? parse(*text) : JobReaders();
}

// One pipe, until it ends.
class OutputSpool::Pump final : public ByteTaker {
 public:
  Pump(OutputSpool& spool, uint32_t process, uint8_t stream, std::unique_ptr<Stream> pipe)
      : spool_(spool), pipe_(std::move(pipe)), process_(process), stream_(stream) {}

  void start(Clock& clock, Scope& strands) { pipe_->serve(*this, strands, &clock); }
  bool over() const { return over_; }
  void finish() {
    if (!over_) on_end({});
  }

 private:
  void on_bytes(Bytes bytes, std::vector<Handle>) override { spool_.add(process_, stream_, bytes); }
  Duration pause() override {
    const bool full = spool_.outbox_.size() > kMostWaiting && !spool_.broken_;
    return full ? kDiskPause : Duration::zero();
  }
  void on_end(Result<void>) override {
    over_ = true;
    spool_.pipe_ended(process_, stream_);
  }

  OutputSpool& spool_;
  std::unique_ptr<Stream> pipe_;
  uint32_t process_;
  uint8_t stream_;
  bool over_ = false;
};

OutputSpool::OutputSpool(World& world, std::string folder)
    : world_(world),
      folder_(std::move(folder)),
      life_(static_cast<uint64_t>(world.clock().unix_ns())) {}

OutputSpool::~OutputSpool() = default;

Result<void> OutputSpool::read_from(uint32_t process, uint8_t stream, Handle pipe) {
  TRY(auto adopted, world_.network().adopt(std::move(pipe)));
  std::erase_if(pumps_, [](const auto& pump) { return pump->over(); });
  ++open_pipes_;
  pumps_.push_back(std::make_unique<Pump>(*this, process, stream, std::move(adopted)));
  pumps_.back()->start(world_.clock(), strands_);
  return {};
}

void OutputSpool::pipe_ended(uint32_t process, uint8_t stream) {
  --open_pipes_;
  if (posted_ != 0) {
    add(process, stream, {});
  } else {  // a job that prints nothing costs no file
    cluster::ProcessEvent event;
    event.set_process(process);
    event.set_silent_stream(stream);
    note(std::move(event));
  }
  if (finishing_ != nullptr) finishing_->ring();
}

void OutputSpool::add(uint32_t process, uint8_t stream, Bytes bytes) {
  if (broken_) return;
  posted_ += kSpoolHeaderBytes + bytes.size();
  add_piece(outbox_, process, stream, bytes);
  start_writing();
}

void OutputSpool::note(cluster::ProcessEvent event) {
  events_.push_back(std::move(event));
  if (events_.size() > kMostSpoolEvents) {
    constexpr size_t kDropped = kMostSpoolEvents / 4;  // many at once: it moves all others
    events_.erase(events_.begin(), events_.begin() + kDropped);
    events_dropped_ += kDropped;
  }
  TUTTI_QUEUE("output spool: events that are kept", events_.size(), kMostSpoolEvents);
  ring();
}

void OutputSpool::ring() {
  for (Alarm* follower : followers_) follower->ring();
}

void OutputSpool::start_writing() {
  if (!std::exchange(is_writing_, true)) strands_.spawn(write_out());
}

Task<void> OutputSpool::write_out() {
  const Shield finish_it;  // what was read from a pipe is nowhere else
  if (!found_) co_await look();
  while (!outbox_.empty()) {
    std::string bytes = std::exchange(outbox_, {});
    const size_t size = bytes.size();
    auto written = co_await write_piece(std::move(bytes));
    if (!written) {
      TUTTI_LOG(error, "cannot keep what a job prints", {{"why", written.error().text()}});
      broken_ = true;
      break;
    }
    written_ += size;
    ring();
  }
  is_writing_ = false;
}

Task<void> OutputSpool::look() {
  const Shield finish_it;
  auto found = co_await find_files();
  if (!found) {
    TUTTI_LOG(error, "cannot find what a job printed", {{"why", found.error().text()}});
    broken_ = true;
  }
  found_ = true;
  ring();
}

std::string OutputSpool::file_name(uint64_t first) const {
  return fmt::format("{}/{}{:016x}", folder_, kFileStart, first);
}

// Of an agent before us. What it had not written as a whole piece is lost with it.
Task<Result<void>> OutputSpool::find_files() {
  auto names = co_await world_.disk().list(folder_);
  if (!names && names.error().code() == Code::not_found) co_return {};
  if (!names) co_return fail(std::move(names).error());
  for (const std::string& name : *names) {
    uint64_t first = 0;
    const char* digits = name.data() + std::min(kFileStart.size(), name.size());
    const auto parsed = std::from_chars(digits, name.data() + name.size(), first, 16);
    if (!name.starts_with(kFileStart) || parsed.ec != std::errc()) continue;
    const std::string path = file_name(first);
    auto size = co_await whole_pieces(path);
    if (!size) co_return fail(std::move(size).error());
    parts_.push_back({first, first + *size, nullptr});
  }
  if (parts_.empty()) co_return {};
  written_ += parts_.back().end;
  posted_ += parts_.back().end;
  co_return {};
}

Task<Result<uint64_t>> OutputSpool::whole_pieces(std::string path) {
  auto file = co_await world_.disk().open(path, OpenOptions{});
  if (!file) co_return fail(std::move(file).error());
  std::string bytes(kReadBytes, '\0');
  uint64_t place = 0;
  while (true) {
    const MutableBytes into = as_mutable_bytes(bytes);
    auto count = co_await (*file)->read(place, into);
    if (!count) co_return fail(std::move(count).error());
    const size_t whole = whole_in(as_bytes(bytes).first(*count));
    place += whole;
    if (whole == 0) co_return place;
  }
}

Task<Result<void>> OutputSpool::begin_folder() {
  CO_TRY_DO(co_await world_.disk().make_directories(folder_));
  const std::string path = folder_ + kReadersFile;
  const OpenOptions options{.write = true, .create = true, .truncate = true, .secret = true};
  CO_TRY(const auto file, co_await world_.disk().open(path, options));
  const Bytes bytes = as_bytes(readers_);
  co_return co_await file->write(0, bytes);
}

Task<Result<void>> OutputSpool::write_piece(std::string bytes) {
  const bool begins = parts_.empty() || parts_.back().file == nullptr ||
                      parts_.back().end - parts_.back().first >= kSpoolFileBytes;
  if (begins) {
    if (parts_.empty()) CO_TRY_DO(co_await begin_folder());
    OpenOptions options{.write = true, .create = true, .truncate = true, .secret = true};
    const std::string path = file_name(written_);
    auto file = co_await world_.disk().open(path, options);
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
  Alarm alarm(world_.clock());
  finishing_ = &alarm;
  while (open_pipes_ != 0 && world_.clock().now() < until) {
    auto woken = co_await alarm.until(until);
    if (!woken) break;
  }
  strands_.cancel();
  for (const auto& pump : pumps_) pump->finish();
  (void)co_await strands_.join();
  pumps_.clear();
  while (is_writing_) {  // somebody who reads looks for files
    auto woken = co_await alarm.until(kNever);
    if (!woken) break;
  }
  finishing_ = nullptr;
  if (!outbox_.empty() && !broken_) co_await write_out();
  over_ = true;
  ring();
}

bool OutputSpool::anything_after(const cluster::OutputRequest& from) const {
  return from.event() < events_dropped_ + events_.size() || (found_ && from.place() < written_);
}

Task<Result<cluster::OutputPiece>> OutputSpool::read(cluster::OutputRequest from) {
  if (!found_ && !std::exchange(is_writing_, true)) {
    co_await look();
    is_writing_ = false;
    if (finishing_ != nullptr) {
      finishing_->ring();
    } else if (!outbox_.empty()) {
      start_writing();
    }
  }
  if (from.life() != life_) from.set_event(0);
  Alarm alarm(world_.clock());
  followers_.push_back(&alarm);
  Result<void> woken;
  while (!anything_after(from) && !(over_ && !is_writing_) && woken)
    woken = co_await alarm.until(kNever);
  std::erase(followers_, &alarm);
  if (!woken) co_return fail(woken.error());
  cluster::OutputPiece piece;
  const uint64_t first = std::max(from.event(), events_dropped_);
  const uint64_t end = std::min(first + kEventsAtOnce, events_dropped_ + events_.size());
  for (uint64_t i = first; i < end; ++i) *piece.add_events() = events_[i - events_dropped_];
  piece.set_event(end);
  piece.set_life(life_);
  piece.set_place(from.place());
  if (from.place() < written_ && !parts_.empty()) {
    uint64_t place = std::max(from.place(), parts_.front().first);
    auto bytes = co_await read_pieces(place);
    if (!bytes) co_return fail(std::move(bytes).error());
    piece.set_place(place);
    piece.set_pieces(std::move(*bytes));
  }
  piece.set_over(over_ && piece.pieces().empty() && piece.events().empty());
  if (piece.over()) piece.set_epoch(last_epoch_);
  co_return piece;
}

// Moves the place on, past what makes no sense there.
Task<Result<std::string>> OutputSpool::read_pieces(uint64_t& place) {
  const auto after = std::ranges::upper_bound(parts_, place, {}, &Part::first);
  const Part part = *std::prev(after);
  std::shared_ptr<File> file = part.file;
  if (file == nullptr) {
    const std::string path = file_name(part.first);
    auto opened = co_await world_.disk().open(path, OpenOptions{});
    if (!opened) co_return fail(std::move(opened).error());
    file = std::move(*opened);
  }
  std::string bytes(std::min<uint64_t>(part.end - place, kReadBytes), '\0');
  const uint64_t offset = place - part.first;
  const MutableBytes into = as_mutable_bytes(bytes);
  auto count = co_await file->read(offset, into);
  if (!count) co_return fail(std::move(count).error());
  bytes.resize(whole_in(as_bytes(bytes).first(*count)));
  place = bytes.empty() ? part.end : place + bytes.size();
  co_return bytes;
}

}  // namespace tutti
