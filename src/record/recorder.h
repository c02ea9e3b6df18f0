// The flight recorder: a process's latest events, in a file that outlives it.
//
//   const RecordKind kStep("train.step", "step");
//   CO_TRY(auto recorder, co_await Recorder::create(world, path, {.process = "worker 3"}));
//   recorder->event(kSend, bytes, peer);
//   Span step = recorder->span(kStep, number);    // ends with its scope, or by end()
//
// The file is mapped: an event is a handful of stores, there is nothing to flush, and what was
// recorded can be read at any moment by another process, also after kill -9. It keeps the newest
// events; `tutti record dump` and record/reader.h say how many older ones are gone. Put it on a
// tmpfs such as /dev/shm: on a disk the kernel's write-back makes writers fault now and then.
//
// Any number of threads may record at the same time. They never wait for each other: threads are
// spread over lanes, each a ring of its own, and one fetch_add gives an event its slot. Only the
// first use of a kind made after the recorder, counter() and gauge() take a lock.
//
// A default-constructed Recorder is disabled: everything on it costs one branch. A Recorder must
// outlive its spans, counters and gauges; a forked child has no business with its parent's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "record/cell.h"
#include "record/kind.h"
#include "record/layout.h"
#include "world/world.h"

namespace tutti {

class Span;

// Names a span within its recording, and may be sent along with work; 0 is no span.
using SpanId = uint64_t;

class Recorder {
 public:
  struct Options {
    std::string process;                // for people: "agent", "worker 3"
    uint32_t lanes = 4;                 // threads meet in a lane only when there are more of them
    uint32_t records_per_lane = 16384;  // 64 bytes each: 4 MiB in all. Both: powers of two
    uint32_t kinds = 512;               // 128 bytes each
    uint32_t cells = 256;               // counters and gauges, 128 bytes each
  };

  // A new file at the path, in place of one that is there. All of its space is taken now, so that
  // a disk that fills up later cannot hurt; Code::exhausted when there is not enough.
  static Task<Result<std::unique_ptr<Recorder>>> create(World& world, std::string path,
                                                        Options options);

  // The same in memory the caller has, such as an arena: size_bytes(options) zeros.
  struct Origin {
    std::string host;
    pid_t pid;
  };
  static std::unique_ptr<Recorder> over(std::unique_ptr<Mapping> mapping, Clock& clock,
                                        const Origin& origin, const Options& options);
  static Result<uint64_t> size_bytes(const Options& options);

  Recorder() = default;
  ~Recorder();  // notes that the process closed it, as opposed to being killed
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Takes the time from another clock of the same host, for a recorder that outlives its World. Not
  // while others record.
  void set_clock(Clock& clock) { clock_ = &clock; }

  bool enabled() const { return lanes_ != nullptr; }

  void event(RecordKind kind, int64_t a = 0, int64_t b = 0, SpanId in = 0) {
    if (enabled()) write_event(kind, now_ns(), in, a, b);
  }
  // `parent` is the span this one is a part of.
  Span span(RecordKind kind, int64_t a = 0, int64_t b = 0, SpanId parent = 0);

  // The number of that name, made when first asked for. When the table is full or the name is one
  // of the other type, what is given does nothing, and the recording says that a name was refused.
  Counter counter(std::string_view name);
  Gauge gauge(std::string_view name);

 private:
  friend class Span;
  Recorder(Clock& clock, std::unique_ptr<Mapping> mapping, const record_layout::Header& header);

  // The caller reads the clock: so these call nothing, and keep everything in registers.
  void write_event(RecordKind kind, int64_t time_ns, SpanId in, int64_t a, int64_t b);
  uint64_t write_begin(RecordKind kind, int64_t time_ns, SpanId parent, int64_t a, int64_t b);
  void write_end(RecordKind kind, SpanId span, int64_t began_ns, int64_t a, int64_t b);
  // Gives the sequence of the record, which is the span of a begin.
  uint64_t write(record_layout::Op op, RecordKind kind, int64_t time_ns, SpanId span,
                 int64_t detail, int64_t a, int64_t b);
  uint64_t write_first(record_layout::Op op, RecordKind kind, int64_t time_ns, SpanId span,
                       int64_t detail, int64_t a, int64_t b);
  void name_kinds();
  void refuse_name();
  int64_t* find_cell(std::string_view name, record_layout::EntryType type);
  int64_t now_ns() const { return to_ns(clock_->now()); }

  // What every event reads; nothing below changes once the kinds are named.
  std::byte* lanes_ = nullptr;
  std::byte* positions_ = nullptr;
  Clock* clock_ = nullptr;
  uint64_t lane_mask_ = 0;
  uint64_t lane_count_ = 0;
  uint64_t lane_bytes_ = 0;
  uint64_t record_mask_ = 0;
  std::atomic<uint32_t> named_kinds_ = 0;  // kinds from here on need write_first()

  std::unique_ptr<Mapping> mapping_;
  std::mutex mutex_;  // of the tables of names
  uint32_t seen_kinds_ = 0;
  uint32_t kind_limit_ = 0;
  std::byte* cells_ = nullptr;
  uint32_t cell_limit_ = 0;
  struct Cell {
    uint32_t index;
    record_layout::EntryType type;
  };
  std::map<std::string, Cell> cell_indices_;
};

// Something with a beginning and an end, recorded when it begins and again, with its duration, when
// it ends. It may be moved, live in a coroutine across waits and end on another thread.
class Span {
 public:
  Span() = default;
  Span(Span&& other) noexcept { swap(other); }
  Span& operator=(Span&& other) noexcept {
    Span gone(std::move(other));
    swap(gone);
    return *this;
  }
  ~Span() { end(); }

  SpanId id() const { return id_; }
  // What the record of the end shall say in place of what the beginning said.
  void set(int64_t a, int64_t b) {
    a_ = a;
    b_ = b;
  }
  // Both belong to this span; from a span that ended, or of a disabled recorder, they do nothing.
  void event(RecordKind kind, int64_t a = 0, int64_t b = 0) const {
    if (recorder_ != nullptr) recorder_->event(kind, a, b, id_);
  }
  Span child(RecordKind kind, int64_t a = 0, int64_t b = 0) const {
    return recorder_ == nullptr ? Span() : Span(*recorder_, kind, a, b, id_);
  }
  void end() {
    if (recorder_ != nullptr) write_end();
  }

 private:
  friend class Recorder;
  Span(Recorder& recorder, RecordKind kind, int64_t a, int64_t b, SpanId parent);
  void write_end();
  void swap(Span& other) noexcept;

  Recorder* recorder_ = nullptr;
  SpanId id_ = 0;
  RecordKind kind_ = RecordKind::unnamed();
  int64_t began_ns_ = 0;
  int64_t a_ = 0;
  int64_t b_ = 0;
};

inline Span Recorder::span(RecordKind kind, int64_t a, int64_t b, SpanId parent) {
  return enabled() ? Span(*this, kind, a, b, parent) : Span();
}

}  // namespace tutti
