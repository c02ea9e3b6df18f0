#include "fabric/far_reshard.h"

#include <algorithm>
#include <cstring>

#include "fabric/fold.h"
#include "world/scope.h"

namespace tutti {

namespace {

// Parts of tags.
constexpr uint64_t kOfferPart = uint64_t{1} << 37;
constexpr uint64_t kDonePart = kOfferPart + 1;

// Slices that are pulled at once, each of kFarSliceBytes at most: enough for links with a latency
// of milliseconds, and 16 MiB of staging at the very most.
constexpr uint32_t kSlicesAtOnce = 32;

}  // namespace

struct FarReshard::Offer {
  uint64_t signature = 0;
  uint64_t table = 0;
  char text[496] = {};
};

Task<Result<void>> FarReshard::run() {
  auto met = co_await meet();
  if (!met) co_return met;
  auto learned = co_await learn_tables();
  if (!learned) co_return learned;
  auto pulled = co_await pull_slices();
  if (!pulled) co_return pulled;
  auto parted = co_await part();
  co_return parted;
}

// Offers go to whom we are read by, and come from whom we read.
Task<Result<void>> FarReshard::meet() {
  const Resharding& work = *options_.work;
  Offer ours{.signature = options_.signature, .table = options_.table};
  std::memcpy(ours.text, options_.text.data(),
              std::min(options_.text.size(), sizeof ours.text - 1));
  std::vector<Offer> theirs(options_.ranks.size());
  std::vector<RailMove> moves;
  for (uint32_t member = 0; member < options_.ranks.size(); ++member) {
    if (!far(member)) continue;
    if (work.is_read_by(member))
      moves.push_back({.rank = options_.ranks[member],
                       .part = kOfferPart,
                       .out = true,
                       .from = std::as_bytes(std::span(&ours, 1))});
    if (work.reads_from(member))
      moves.push_back({.rank = options_.ranks[member],
                       .part = kOfferPart,
                       .into = std::as_writable_bytes(std::span(&theirs[member], 1))});
  }
  auto told = co_await rail_moves(options_.rail, std::move(moves));
  if (!told) co_return told;
  table_places_.resize(theirs.size());
  for (uint32_t member = 0; member < theirs.size(); ++member) {
    Offer& offer = theirs[member];
    table_places_[member] = offer.table;
    if (!far(member) || !work.reads_from(member) || offer.signature == ours.signature) continue;
    offer.text[sizeof offer.text - 1] = '\0';
    co_return fail(Code::invalid, "ranks do not call the same: rank {} {}, rank {} {}",
                   options_.ranks[options_.index], options_.text, options_.ranks[member],
                   offer.text);
  }
  co_return Result<void>{};
}

Task<Result<void>> FarReshard::learn_tables() {
  const Resharding& work = *options_.work;
  tables_.resize(options_.ranks.size());
  Scope scope;
  for (uint32_t member = 0; member < tables_.size(); ++member) {
    if (!far(member) || !work.reads_from(member)) continue;
    tables_[member].resize(work.tensors());
    const MutableBytes into = std::as_writable_bytes(std::span(tables_[member]));
    const Strides from{.offset = table_places_[member], .run = into.size()};
    scope.spawn(options_.rail.transport->get(options_.ranks[member], from, into, Priority::normal,
                                             options_.rail.tag(kOfferPart)));
  }
  auto joined = co_await scope.join();
  co_return joined;
}

// To those we have read from; and by those who have read from us.
Task<Result<void>> FarReshard::part() {
  std::vector<RailMove> moves;
  for (uint32_t member = 0; member < options_.ranks.size(); ++member) {
    if (!far(member)) continue;
    if (options_.work->reads_from(member))
      moves.push_back({.rank = options_.ranks[member], .part = kDonePart, .out = true});
    if (options_.work->is_read_by(member))
      moves.push_back({.rank = options_.ranks[member], .part = kDonePart});
  }
  auto moved = co_await rail_moves(options_.rail, std::move(moves));
  co_return moved;
}

Task<Result<void>> FarReshard::pull_slices() {
  Scope scope;
  const size_t slices = options_.work->far_slices().size();
  for (size_t i = 0; i < std::min<size_t>(kSlicesAtOnce, slices); ++i) scope.spawn(pull_some());
  auto joined = co_await scope.join();
  co_return joined;
}

// One after the other, of those that nobody else pulls.
Task<Result<void>> FarReshard::pull_some() {
  const auto slices = options_.work->far_slices();
  std::vector<std::byte> staging;
  while (next_ < slices.size()) {
    const Resharding::Slice& slice = slices[next_++];
    auto pulled = co_await pull(slice, staging);
    if (!pulled) co_return pulled;
  }
  co_return Result<void>{};
}

uint64_t FarReshard::place_of(uint32_t member, uint32_t tensor) const {
  return tables_[member][tensor];
}

Task<Result<void>> FarReshard::get(const Resharding::Slice& slice, uint32_t member,
                                   MutableBytes into) {
  const Strides from = slice.box.from_strides(place_of(member, slice.tensor));
  return options_.rail.transport->get(options_.ranks[member], from, into, Priority::bulk,
                                      options_.rail.tag(kOfferPart));
}

Task<Result<void>> FarReshard::pull(const Resharding::Slice& slice,
                                    std::vector<std::byte>& staging) {
  if (slice.source_count > 1) return pull_lanes(slice, staging);
  return pull_one(slice, staging);
}

// Straight to where it belongs, if that is contiguous.
Task<Result<void>> FarReshard::pull_one(const Resharding::Slice& slice,
                                        std::vector<std::byte>& staging) {
  std::byte* to = options_.outputs[slice.tensor];
  const uint32_t member = options_.work->sources(slice)[0];
  const uint64_t bytes = slice.box.bytes();
  if (slice.box.to_is_contiguous()) {
    auto got = co_await get(slice, member, {to + slice.box.to_offset, bytes});
    co_return got;
  }
  staging.resize(std::max<size_t>(staging.size(), bytes));
  auto got = co_await get(slice, member, {staging.data(), bytes});
  if (!got) co_return got;
  copy_box(slice.box.from_packed(), to, staging.data(), false);
  co_return Result<void>{};
}

// All lanes one after the other, those of this host too; then they are folded.
Task<Result<void>> FarReshard::pull_lanes(const Resharding::Slice& slice,
                                          std::vector<std::byte>& staging) {
  const uint64_t bytes = slice.box.bytes();
  const auto sources = options_.work->sources(slice);
  staging.resize(std::max<size_t>(staging.size(), sources.size() * bytes));
  std::vector<const std::byte*> lanes;
  Scope scope;
  for (size_t lane = 0; lane < sources.size(); ++lane) {
    const uint32_t member = sources[lane];
    std::byte* into = staging.data() + lane * bytes;
    lanes.push_back(into);
    if (far(member)) {
      scope.spawn(get(slice, member, {into, bytes}));
      continue;
    }
    const std::byte* from =
        member == options_.index
            ? options_.inputs[slice.tensor]
            : options_.heap + load_le<uint64_t>(options_.near[member] + uint64_t{slice.tensor} * 8);
    copy_box(slice.box.to_packed(), into, from, false);
  }
  auto got = co_await scope.join();
  if (!got) co_return got;
  std::byte* to = options_.outputs[slice.tensor];
  fold_box(slice.box.from_packed(), options_.work->tree(slice),
           {.type = slice.type,
            .op = slice.op,
            .divisor = slice.source_count,
            .sources = lanes,
            .targets = {&to, 1}});
  co_return Result<void>{};
}

}  // namespace tutti
