#include "record/recorder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/hash.h"

namespace tutti {
namespace {

using namespace record_layout;

constexpr uint64_t kFillBytes = 1_MiB;  // zeros written at a time when a file is made

// Threads are numbered by first use. The 65,536th is 1 again: by then nobody counts.
std::atomic<uint32_t> threads_seen = 0;
// Eight bytes of the space that every program keeps for such variables: no call to find it, not
// even in the Python extension.
[[gnu::tls_model("initial-exec")]] thread_local constinit uint64_t this_thread = 0;

// Every word of a recording is stored as an atomic, since readers look while we write.
void store_word(std::byte* at, uint64_t word, std::memory_order order) {
  std::atomic_ref(*reinterpret_cast<uint64_t*>(at)).store(word, order);
}

template <size_t kSize>
void copy_name(std::array<char, kSize>& into, std::string_view name) {
  const std::string_view kept = cut_text(name, kSize);
  std::copy(kept.begin(), kept.end(), into.begin());
}

Result<void> check_count(std::string_view what, uint32_t count, uint32_t most) {
  if (count < 1 || count > most)
    return fail(Code::invalid, "a recording has 1 to {} {}, not {}", most, what, count);
  return {};
}
Result<void> check_power(std::string_view what, uint32_t count, uint32_t most) {
  TRY_DO(check_count(what, count, most));
  if (!std::has_single_bit(count))
    return fail(Code::invalid, "a recording has a power of two of {}, not {}; try {}", what, count,
                std::bit_ceil(count));
  return {};
}

Result<Header> shape_of(const Recorder::Options& options) {
  TRY_DO(check_power("lanes", options.lanes, kMaxLanes));
  TRY_DO(check_power("records per lane", options.records_per_lane, kMaxLaneRecords));
  TRY_DO(check_count("kinds", options.kinds, kMaxEntries));
  TRY_DO(check_count("cells", options.cells, kMaxEntries));
  return Header{.magic = kMagic,
                .version = record_layout::kVersion,
                .header_bytes = kHeaderBytes,
                .entry_bytes = sizeof(Entry),
                .record_bytes = sizeof(Slot),
                .lanes = options.lanes,
                .lane_records = options.records_per_lane,
                .kinds = options.kinds,
                .cells = options.cells};
}

void write_header(Header& header, const Clock& clock, const Recorder::Origin& origin,
                  const std::string& process, MutableBytes into) {
  header.pid = static_cast<uint64_t>(origin.pid);
  header.created_ns = to_ns(clock.now());
  header.created_unix_ns = clock.unix_ns();
  copy_name(header.host, origin.host);
  copy_name(header.process, process);
  const auto* bytes = reinterpret_cast<const std::byte*>(&header);
  header.check = hash64({bytes, offsetof(Header, check)});
  std::memcpy(into.data(), &header, sizeof header);
}

// The word with the type goes last: until then the entry is empty to readers.
void write_entry(std::byte* at, EntryType type, const RecordKind::Names& names) {
  Entry entry{.type = type,
              .name_bytes = static_cast<uint8_t>(names.name.size()),
              .a_bytes = static_cast<uint8_t>(names.a_label.size()),
              .b_bytes = static_cast<uint8_t>(names.b_label.size())};
  const std::string text = names.name + names.a_label + names.b_label;
  TUTTI_ASSERT(text.size() <= entry.text.size(), "names are cut when they are made");
  copy_name(entry.text, text);
  constexpr size_t kTypeAt = offsetof(Entry, type);
  const auto* bytes = reinterpret_cast<const std::byte*>(&entry);
  entry.check = hash64({bytes + kTypeAt, offsetof(Entry, check) - kTypeAt});
  for (size_t offset = kTypeAt + 8; offset < sizeof entry; offset += 8)
    store_word(at + offset, load_le<uint64_t>(bytes + offset), std::memory_order_relaxed);
  store_word(at + kTypeAt, load_le<uint64_t>(bytes + kTypeAt), std::memory_order_release);
}

// A mapped page the disk has no room for ends the process that touches it, so every byte is
// written once before any is mapped.
Task<Result<std::unique_ptr<Mapping>>> make_file(Disk& disk, std::string path, uint64_t size) {
  const OpenOptions options{.write = true, .create = true, .truncate = true};
  CO_TRY(auto file, co_await disk.open(path, options));
  const std::string zeros(std::min(size, kFillBytes), '\0');
  for (uint64_t offset = 0; offset < size; offset += zeros.size()) {
    const Bytes chunk = as_bytes(zeros).first(std::min<uint64_t>(zeros.size(), size - offset));
    CO_TRY_DO(co_await file->write(offset, chunk));
  }
  co_return file->map(0, size, true);
}

}  // namespace

Result<uint64_t> Recorder::size_bytes(const Options& options) {
  TRY(const Header header, shape_of(options));
  return file_bytes(header);
}

std::unique_ptr<Recorder> Recorder::over(std::unique_ptr<Mapping> mapping, Clock& clock,
                                         const Origin& origin, const Options& options) {
  auto header = shape_of(options);
  TUTTI_ASSERT(header.has_value(), "ask size_bytes() first");
  write_header(*header, clock, origin, options.process, mapping->bytes());
  return std::unique_ptr<Recorder>(new Recorder(clock, std::move(mapping), *header));
}

// Made under another name and moved: a reader never meets half a header, and a process that still
// maps the file we replace keeps its own.
Task<Result<std::unique_ptr<Recorder>>> Recorder::create(World& world, std::string path,
                                                         Options options) {
  const std::string doing = fmt::format("making the recording {}", path);
  auto size = size_bytes(options);
  if (!size) co_return fail(size.error().context(doing));
  Disk& disk = world.disk();
  const Origin origin{world.host_name(), world.processes().own_pid()};
  const std::string temporary = fmt::format("{}.{}.new", path, origin.pid);
  std::unique_ptr<Recorder> recorder;
  auto mapping = co_await make_file(disk, temporary, *size);
  Result<void> done;
  if (mapping) {
    recorder = over(*std::move(mapping), world.clock(), origin, options);
    done = co_await disk.rename(temporary, path);
  } else {
    done = fail(mapping.error());
  }
  if (done) co_return recorder;
  Shield shield;  // leave nothing behind, even when cancelled
  auto removed = co_await disk.remove(temporary);
  static_cast<void>(removed);  // the first error is the one that matters
  if (done.error().code() == Code::exhausted)
    done = fail(done.error().context(
        fmt::format("it takes {}: free some space or choose another place", format_bytes(*size))));
  co_return fail(done.error().context(doing));
}

Recorder::Recorder(Clock& clock, std::unique_ptr<Mapping> mapping, const Header& header)
    : clock_(&clock),
      lane_mask_(header.lanes - 1),
      lane_count_(header.lanes),
      lane_bytes_(lane_bytes(header)),
      record_mask_(header.lane_records - 1),
      mapping_(std::move(mapping)),
      kind_limit_(header.kinds),
      cell_limit_(header.cells) {
  std::byte* base = mapping_->bytes().data();
  TUTTI_ASSERT(reinterpret_cast<uintptr_t>(base) % sizeof(uint64_t) == 0, "words are aligned");
  TUTTI_ASSERT(mapping_->bytes().size() >= file_bytes(header), "the mapping is of size_bytes()");
  positions_ = base + kPositionsAt;
  cells_ = base + cells_at(header);
  name_kinds();
  lanes_ = base + lane_at(header, 0);
}

Recorder::~Recorder() {
  if (!enabled()) return;
  store_word(mapping_->bytes().data() + kClosedAt, static_cast<uint64_t>(now_ns()),
             std::memory_order_release);
}

// Compiled into each of its three callers: what they do not use costs nothing there.
[[gnu::always_inline]] inline uint64_t Recorder::write(Op op, RecordKind kind, int64_t time_ns,
                                                       SpanId span, int64_t detail, int64_t a,
                                                       int64_t b) {
  const uint64_t thread = this_thread;
  if (thread == 0 || kind.index() >= named_kinds_.load(std::memory_order_acquire)) [[unlikely]]
    return write_first(op, kind, time_ns, span, detail, a, b);
  const uint64_t lane = thread & lane_mask_;
  auto* position_word = reinterpret_cast<uint64_t*>(positions_ + lane * kPositionStride);
  const uint64_t position = std::atomic_ref(*position_word).fetch_add(1, std::memory_order_relaxed);
  const uint64_t sequence = position * lane_count_ + lane + 1;
  if (op == Op::begin) span = sequence;

  const SlotWords words = {sequence,
                           static_cast<uint64_t>(time_ns),
                           kind.index() | thread << 32 | static_cast<uint64_t>(op) << 48,
                           span,
                           static_cast<uint64_t>(detail),
                           static_cast<uint64_t>(a),
                           static_cast<uint64_t>(b)};
  std::byte* at = lanes_ + lane * lane_bytes_ + (position & record_mask_) * sizeof(Slot);
  store_word(at + offsetof(Slot, time_ns), words[1], std::memory_order_relaxed);
  store_word(at + offsetof(Slot, kind), words[2], std::memory_order_relaxed);
  store_word(at + offsetof(Slot, span), words[3], std::memory_order_relaxed);
  store_word(at + offsetof(Slot, detail), words[4], std::memory_order_relaxed);
  store_word(at + offsetof(Slot, a), words[5], std::memory_order_relaxed);
  store_word(at + offsetof(Slot, b), words[6], std::memory_order_relaxed);
  store_word(at + offsetof(Slot, check), check_of(words), std::memory_order_relaxed);
  store_word(at + offsetof(Slot, sequence), words[0], std::memory_order_release);
  return sequence;
}

// What a thread's first event and a kind's first event need besides; apart, so that the others have
// no calls to save registers for.
[[gnu::cold, gnu::noinline]] uint64_t Recorder::write_first(Op op, RecordKind kind, int64_t time_ns,
                                                            SpanId span, int64_t detail, int64_t a,
                                                            int64_t b) {
  if (this_thread == 0) this_thread = threads_seen.fetch_add(1) % UINT16_MAX + 1;
  if (kind.index() >= named_kinds_.load(std::memory_order_acquire)) {
    name_kinds();
    if (kind.index() >= kind_limit_) kind = RecordKind::unnamed();
  }
  return write(op, kind, time_ns, span, detail, a, b);
}

void Recorder::write_event(RecordKind kind, int64_t time_ns, SpanId in, int64_t a, int64_t b) {
  write(Op::event, kind, time_ns, in, 0, a, b);
}

uint64_t Recorder::write_begin(RecordKind kind, int64_t time_ns, SpanId parent, int64_t a,
                               int64_t b) {
  return write(Op::begin, kind, time_ns, 0, static_cast<int64_t>(parent), a, b);
}

void Recorder::write_end(RecordKind kind, SpanId span, int64_t began_ns, int64_t a, int64_t b) {
  write(Op::end, kind, now_ns(), span, began_ns, a, b);
}

void Recorder::name_kinds() {
  const std::lock_guard lock(mutex_);
  std::byte* base = mapping_->bytes().data();
  for (const RecordKind::Names& names : RecordKind::names_from(seen_kinds_)) {
    if (seen_kinds_ < kind_limit_)
      write_entry(base + kinds_at() + seen_kinds_ * sizeof(Entry), EntryType::kind, names);
    else
      refuse_name();
    ++seen_kinds_;
  }
  named_kinds_.store(std::min(seen_kinds_, kind_limit_), std::memory_order_release);
}

void Recorder::refuse_name() {
  auto* word = reinterpret_cast<uint64_t*>(mapping_->bytes().data() + kRefusedAt);
  std::atomic_ref(*word).fetch_add(1, std::memory_order_relaxed);
}

int64_t* Recorder::find_cell(std::string_view name, EntryType type) {
  if (!enabled()) return nullptr;
  const std::string kept(cut_text(name, Entry::kTextBytes));
  const std::lock_guard lock(mutex_);
  const auto next = static_cast<uint32_t>(cell_indices_.size());
  const auto [found, made] = cell_indices_.try_emplace(kept, Cell{next, type});
  const Cell cell = found->second;
  if (made && next == cell_limit_) cell_indices_.erase(found);
  if ((made && next == cell_limit_) || cell.type != type) {
    refuse_name();
    return nullptr;
  }
  std::byte* at = cells_ + cell.index * sizeof(Entry);
  if (made) write_entry(at, type, {kept, "", ""});
  return reinterpret_cast<int64_t*>(at);
}

Counter Recorder::counter(std::string_view name) {
  return Counter(find_cell(name, EntryType::counter));
}
Gauge Recorder::gauge(std::string_view name) { return Gauge(find_cell(name, EntryType::gauge)); }

Span::Span(Recorder& recorder, RecordKind kind, int64_t a, int64_t b, SpanId parent)
    : recorder_(&recorder), kind_(kind), began_ns_(recorder.now_ns()), a_(a), b_(b) {
  id_ = recorder.write_begin(kind, began_ns_, parent, a, b);
}

void Span::write_end() {
  Recorder& recorder = *std::exchange(recorder_, nullptr);
  recorder.write_end(kind_, id_, began_ns_, a_, b_);
}

void Span::swap(Span& other) noexcept {
  std::swap(recorder_, other.recorder_);
  std::swap(id_, other.id_);
  std::swap(kind_, other.kind_);
  std::swap(began_ns_, other.began_ns_);
  std::swap(a_, other.a_);
  std::swap(b_, other.b_);
}

}  // namespace tutti
