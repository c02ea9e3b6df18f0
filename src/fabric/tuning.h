// The choices of the fabric that depend on the machine: where one way becomes faster than another.
// None of them changes a bit of any result. docs/fabric.md says how they are found.
//
// All members of a group must choose alike, so a group has one Tuning, which its first member
// brings along. TuningStore keeps what was measured, for the next program of the same shape.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fabric/board.h"
#include "fabric/rail.h"

namespace tutti {

enum class TuningOrigin : uint8_t { defaults, cached, measured };
constexpr std::string_view tuning_origin_name(TuningOrigin origin) {
  constexpr std::string_view names[] = {"defaults", "cached", "measured"};
  return names[static_cast<int>(origin)];
}

// Ways between hosts are chosen by what a rail carries: up to each of these, and above.
constexpr std::array<uint64_t, 3> kRailBytes = {16 << 10, 64 << 10, 1 << 20};
constexpr size_t kRailClasses = kRailBytes.size() + 1;
size_t rail_class(uint64_t bytes);
using RailWays = std::array<RailWay, kRailClasses>;

using TuningWords = std::array<uint64_t, kTuningWords>;
constexpr size_t kMeasureWord = kTuningWords - 1;  // no part of a tuning: a group's TuneWhen

struct Tuning {
  uint64_t small_bytes = 0;   // data of up to this much travels with its call, in one tick
  uint64_t stream_bytes = 0;  // calls that touch more than this store past the caches
  RailWays reduces{};         // between hosts, where it fits
  RailWays gathers{};         // of all_gather and broadcast: direct or ring
  TuningOrigin origin = TuningOrigin::defaults;

  // What is right on most machines. `alone`: every rank of the host has a core.
  static Tuning defaults(bool alone, uint32_t hosts);

  // As it is shown to other ranks; nothing for words that are no tuning.
  TuningWords words() const;
  static std::optional<Tuning> of(const TuningWords& words);
  bool operator==(const Tuning&) const = default;
};

// What a tuning is good for, besides the processor.
struct TuningShape {
  uint32_t cores = 1;
  uint32_t ranks = 1;  // of rank 0's host
  uint32_t hosts = 1;
};

// A tuning as a file has it: JSON, and a line with its hash. `processor` is its name.
std::string tuning_text(const Tuning& tuning, const TuningShape& shape, std::string_view processor);
// Of a file for this shape and processor; an error says what is wrong with it.
Result<Tuning> parse_tuning(std::string_view text, const TuningShape& shape,
                            std::string_view processor);
// The file's name: a hash of shape, processor and layout.
std::string tuning_file_name(const TuningShape& shape, std::string_view processor);

// Where tunings are kept. Losing one costs the time to measure it again, and nothing else.
class TuningStore {
 public:
  virtual ~TuningStore() = default;
  virtual std::optional<Tuning> load(const TuningShape& shape) = 0;
  virtual void save(const TuningShape& shape, const Tuning& tuning) = 0;
};

// never: the defaults. lazily: what the store has; else the defaults, until the first large
// all_reduce of all ranks has measured. now: measured in join().
enum class TuneWhen : uint8_t { never, lazily, now };
Result<TuneWhen> parse_tune_when(std::string_view text);  // "off", "auto", "now"

}  // namespace tutti
