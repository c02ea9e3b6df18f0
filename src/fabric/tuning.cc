#include "fabric/tuning.h"

#include <algorithm>

#include "base/hash.h"
#include "base/json.h"

namespace tutti {

namespace {

// Changes with the meaning of what is stored, and with what is measured.
constexpr uint64_t kLayout = 1;

// Where every rank has a core, waiting twice costs less than moving everything to everybody, from
// this size on; where they share cores, waiting is what costs.
constexpr uint64_t kSmallBytesAlone = 1 << 10;
constexpr uint64_t kSmallBytesShared = 8 << 10;
// Past this much memory in one call its output will not be in the caches when it is read.
constexpr uint64_t kStreamBytes = 24 << 20;
// Between hosts latency counts up to 64 KiB, bandwidth above; measured over loopback and veth.
constexpr size_t kLatencyClasses = 2;
constexpr uint32_t kFewHosts = 4;  // speaking with each of them costs no more than a tree
// More would be no limit at all.
constexpr uint64_t kMostStreamBytes = uint64_t{1} << 40;

uint64_t packed(const RailWays& ways) {
  uint64_t word = 0;
  for (size_t i = 0; i < ways.size(); ++i) word |= static_cast<uint64_t>(ways[i]) << (8 * i);
  return word;
}

std::optional<RailWays> unpacked(uint64_t word) {
  RailWays ways{};
  for (size_t i = 0; i < ways.size(); ++i) {
    const uint64_t way = word >> (8 * i) & 0xff;
    if (way >= kRailWays) return std::nullopt;
    ways[i] = static_cast<RailWay>(way);
  }
  return packed(ways) == word ? std::optional(ways) : std::nullopt;
}

Json names_of(const RailWays& ways) {
  Json names = Json::array();
  for (const RailWay way : ways) names.push_back(std::string(rail_way_name(way)));
  return names;
}

Result<uint64_t> ways_in(const Json& object, std::string_view key) {
  TRY(const Json names, json_get<Json>(object, key));
  RailWays ways{};
  if (!names.is_array() || names.size() != ways.size())
    return fail(Code::corrupt, "{} has not {} ways", key, ways.size());
  for (size_t i = 0; i < ways.size(); ++i) {
    int way = 0;
    while (way < kRailWays && names[i] != Json(std::string(rail_way_name(RailWay(way))))) ++way;
    if (way == kRailWays) return fail(Code::corrupt, "{} has a way that there is not", key);
    ways[i] = static_cast<RailWay>(way);
  }
  return packed(ways);
}

Json shape_json(const TuningShape& shape, std::string_view processor) {
  return {{"processor", processor},
          {"cores", shape.cores},
          {"ranks", shape.ranks},
          {"hosts", shape.hosts},
          {"layout", kLayout}};
}

std::string hash_line(std::string_view text) {
  return fmt::format("{:016x}\n", hash64(as_bytes(text)));
}

}  // namespace

size_t rail_class(uint64_t bytes) {
  return static_cast<size_t>(std::ranges::lower_bound(kRailBytes, bytes) - kRailBytes.begin());
}

Tuning Tuning::defaults(bool alone, uint32_t hosts) {
  Tuning tuning{.small_bytes = alone ? kSmallBytesAlone : kSmallBytesShared,
                .stream_bytes = kStreamBytes};
  tuning.reduces.fill(RailWay::direct);
  tuning.gathers.fill(RailWay::direct);
  if (hosts <= kFewHosts) return tuning;
  for (size_t i = 0; i < kRailClasses; ++i) {
    tuning.reduces[i] = i < kLatencyClasses ? RailWay::tree : RailWay::halving;
    tuning.gathers[i] = i < kLatencyClasses ? RailWay::direct : RailWay::ring;
  }
  return tuning;
}

TuningWords Tuning::words() const {
  return {kLayout,         small_bytes,     stream_bytes,
          packed(reduces), packed(gathers), static_cast<uint64_t>(origin)};
}

std::optional<Tuning> Tuning::of(const TuningWords& words) {
  const auto reduces = unpacked(words[3]);
  const auto gathers = unpacked(words[4]);
  if (words[0] != kLayout || words[1] > kSmallBytes || words[2] > kMostStreamBytes || !reduces ||
      !gathers || words[5] > static_cast<uint64_t>(TuningOrigin::measured))
    return std::nullopt;
  if (std::ranges::count(*reduces, RailWay::ring) != 0) return std::nullopt;  // it cannot sum
  return Tuning{.small_bytes = words[1],
                .stream_bytes = words[2],
                .reduces = *reduces,
                .gathers = *gathers,
                .origin = static_cast<TuningOrigin>(words[5])};
}

std::string tuning_text(const Tuning& tuning, const TuningShape& shape,
                        std::string_view processor) {
  const Json whole = {{"for", shape_json(shape, processor)},
                      {"small_bytes", tuning.small_bytes},
                      {"stream_bytes", tuning.stream_bytes},
                      {"reduces", names_of(tuning.reduces)},
                      {"gathers", names_of(tuning.gathers)}};
  const std::string text = dump_json(whole, 2) + "\n";
  return text + hash_line(text);
}

Result<Tuning> parse_tuning(std::string_view text, const TuningShape& shape,
                            std::string_view processor) {
  const size_t line = hash_line("").size();
  if (text.size() <= line ||
      text.substr(text.size() - line) != hash_line(text.substr(0, text.size() - line)))
    return fail(Code::corrupt, "its hash does not fit");
  TRY(const Json whole, parse_json(text.substr(0, text.size() - line), "tuning"));
  TRY(const Json made_for, json_get<Json>(whole, "for"));
  if (made_for != shape_json(shape, processor))
    return fail(Code::corrupt, "it is for {}", dump_json(made_for));
  TuningWords words{kLayout};
  TRY(words[1], json_get<uint64_t>(whole, "small_bytes"));
  TRY(words[2], json_get<uint64_t>(whole, "stream_bytes"));
  TRY(words[3], ways_in(whole, "reduces"));
  TRY(words[4], ways_in(whole, "gathers"));
  words[5] = static_cast<uint64_t>(TuningOrigin::cached);
  const auto tuning = Tuning::of(words);
  if (!tuning) return fail(Code::corrupt, "its values cannot be");
  return *tuning;
}

std::string tuning_file_name(const TuningShape& shape, std::string_view processor) {
  return fmt::format("{:016x}.json", hash64(as_bytes(dump_json(shape_json(shape, processor)))));
}

Result<TuneWhen> parse_tune_when(std::string_view text) {
  if (text == "off") return TuneWhen::never;
  if (text == "auto") return TuneWhen::lazily;
  if (text == "now") return TuneWhen::now;
  return fail(Code::invalid, "'{}' is no way to tune the fabric; use off, auto or now", text);
}

}  // namespace tutti
