#include "fabric/box_copy.h"

#include <algorithm>
#include <cstring>

namespace tutti {

namespace {

// Runs shorter than this are gathered before they are folded.
constexpr uint64_t kShortRun = 2 << 10;
// Of each source, so that all of them stay in the caches.
constexpr uint64_t kTileBytes = 16 << 10;

}  // namespace

BoxCopy BoxCopy::make(const Box& slice, const Box& to, const Box& from, uint64_t element_bytes) {
  BoxCopy copy;
  copy.run = element_bytes;
  uint64_t to_stride = element_bytes;
  uint64_t from_stride = element_bytes;
  for (uint32_t d = slice.dimensions; d-- > 0;) {
    const uint64_t count = slice.extent[d];
    copy.to_offset += (slice.begin[d] - to.begin[d]) * to_stride;
    copy.from_offset += (slice.begin[d] - from.begin[d]) * from_stride;
    Loop* inner = copy.loop_count > 0 ? &copy.loops[copy.loop_count - 1] : nullptr;
    if (count == 1) {
      // repeats nothing
    } else if (inner == nullptr && to_stride == copy.run && from_stride == copy.run) {
      copy.run *= count;
    } else if (inner != nullptr && to_stride == inner->count * inner->to_stride &&
               from_stride == inner->count * inner->from_stride) {
      inner->count *= count;
    } else {
      copy.loops[copy.loop_count++] = {count, to_stride, from_stride};
    }
    to_stride *= to.extent[d];
    from_stride *= from.extent[d];
  }
  return copy;
}

uint64_t BoxCopy::bytes() const {
  uint64_t all = run;
  for (uint32_t i = 0; i < loop_count; ++i) all *= loops[i].count;
  return all;
}

void BoxCopy::split(uint64_t most_bytes, std::vector<BoxCopy>& into) const {
  const uint64_t all = bytes();
  if (all <= most_bytes) {
    into.push_back(*this);
    return;
  }
  BoxCopy part = *this;
  if (loop_count == 0) {
    for (uint64_t done = 0; done < run; done += part.run) {
      part.run = std::min(most_bytes, run - done);
      part.to_offset = to_offset + done;
      part.from_offset = from_offset + done;
      into.push_back(part);
    }
    return;
  }
  const Loop& outer = loops[loop_count - 1];
  const uint64_t each = std::max<uint64_t>(most_bytes / (all / outer.count), 1);
  for (uint64_t done = 0; done < outer.count; done += each) {
    part.loops[loop_count - 1].count = std::min(each, outer.count - done);
    part.loop_count = each == 1 ? loop_count - 1 : loop_count;
    part.to_offset = to_offset + done * outer.to_stride;
    part.from_offset = from_offset + done * outer.from_stride;
    part.split(most_bytes, into);
  }
}

BoxCopy BoxCopy::from_packed() const {
  BoxCopy copy = *this;
  copy.from_offset = 0;
  uint64_t inner = run;
  for (uint32_t i = 0; i < loop_count; ++i) {
    copy.loops[i].from_stride = inner;
    inner *= loops[i].count;
  }
  return copy;
}

BoxCopy BoxCopy::to_packed() const {
  BoxCopy copy = *this;
  copy.to_offset = 0;
  uint64_t inner = run;
  for (uint32_t i = 0; i < loop_count; ++i) {
    copy.loops[i].to_stride = inner;
    inner *= loops[i].count;
  }
  return copy;
}

bool BoxCopy::to_is_contiguous() const {
  uint64_t inner = run;
  for (uint32_t i = 0; i < loop_count; ++i) {
    if (loops[i].to_stride != inner) return false;
    inner *= loops[i].count;
  }
  return true;
}

Strides BoxCopy::from_strides(uint64_t array_offset) const {
  Strides strides{.offset = array_offset + from_offset, .run = run};
  for (uint32_t i = 0; i < loop_count; ++i) strides.repeat(loops[i].count, loops[i].from_stride);
  return strides;
}

void copy_box(const BoxCopy& box, std::byte* to, const std::byte* from, bool streaming) {
  RowCopy rows{.bytes = box.run};
  if (box.loop_count > 0)
    rows = {box.run, box.loops[0].count, box.loops[0].to_stride, box.loops[0].from_stride};
  box.repeat(1, [&](uint64_t to_offset, uint64_t from_offset) {
    copy_rows(to + to_offset, from + from_offset, rows, streaming);
  });
}

void zero_box(const BoxCopy& box, std::byte* to) {
  box.repeat(0, [&](uint64_t to_offset, uint64_t) { std::memset(to + to_offset, 0, box.run); });
}

namespace {

void fold_runs(const BoxCopy& box, const FoldTree& tree, FoldWork work) {
  const std::vector<const std::byte*> bases(work.sources.begin(), work.sources.end());
  std::vector<const std::byte*> sources(bases.size());
  std::byte* target = nullptr;
  std::byte* const base = work.targets[0];
  work.sources = sources;
  work.targets = {&target, 1};
  work.elements = box.run / dtype_bytes(work.type);
  box.repeat(0, [&](uint64_t to_offset, uint64_t from_offset) {
    for (size_t i = 0; i < bases.size(); ++i) sources[i] = bases[i] + from_offset;
    target = base + to_offset;
    fold(tree, work);
  });
}

// Gathers runs of all sources into tiles, folds these, and deals the result out again.
void fold_tiles(const BoxCopy& box, const FoldTree& tree, FoldWork work) {
  const uint64_t runs_each = std::max<uint64_t>(kTileBytes / box.run, 1);
  const uint64_t tile = runs_each * box.run;
  std::vector<std::byte> tiles((work.sources.size() + 1) * tile);
  std::vector<const std::byte*> sources;
  for (size_t i = 0; i < work.sources.size(); ++i) sources.push_back(tiles.data() + i * tile);
  std::byte* result = tiles.data() + work.sources.size() * tile;
  std::vector<uint64_t> places;  // in the target, of the runs that are in the tiles
  FoldWork folding = work;
  folding.sources = sources;
  folding.targets = {&result, 1};
  folding.streaming = false;
  const auto deal = [&] {
    folding.elements = places.size() * box.run / dtype_bytes(work.type);
    fold(tree, folding);
    for (size_t i = 0; i < places.size(); ++i)
      std::memcpy(work.targets[0] + places[i], result + i * box.run, box.run);
    places.clear();
  };
  box.repeat(0, [&](uint64_t to_offset, uint64_t from_offset) {
    for (size_t i = 0; i < work.sources.size(); ++i)
      std::memcpy(tiles.data() + i * tile + places.size() * box.run, work.sources[i] + from_offset,
                  box.run);
    places.push_back(to_offset);
    if (places.size() == runs_each) deal();
  });
  if (!places.empty()) deal();
}

}  // namespace

void fold_box(const BoxCopy& box, const FoldTree& tree, FoldWork work) {
  box.run < kShortRun ? fold_tiles(box, tree, work) : fold_runs(box, tree, work);
}

}  // namespace tutti
