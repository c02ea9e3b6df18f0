#include "fabric/layout.h"

#include <algorithm>
#include <numeric>

#include "base/suggest.h"
#include "fabric/fold_tree.h"

namespace tutti {

namespace {

// "0-3, 8, 10-11"
std::string ranges_text(std::span<const uint32_t> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (last != i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

void add(Hasher& hasher, std::string_view text) {
  const uint64_t size = text.size();
  hasher.update(std::as_bytes(std::span(&size, 1)));
  hasher.update(as_bytes(text));
}

template <class Number>
void add(Hasher& hasher, const std::vector<Number>& numbers) {
  const uint64_t size = numbers.size();
  hasher.update(std::as_bytes(std::span(&size, 1)));
  hasher.update(std::as_bytes(std::span(numbers)));
}

// The product, or nothing when it is past the limit.
std::optional<uint64_t> product(auto begin, auto end, uint64_t limit) {
  uint64_t all = 1;
  for (; begin != end; ++begin)
    if (__builtin_mul_overflow(all, *begin, &all) || all > limit) return std::nullopt;
  return all;
}

std::string axes_text(std::span<const MeshAxis> axes) {
  std::string text;
  for (const MeshAxis& axis : axes)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.name, axis.size);
  return text;
}

}  // namespace

Result<Mesh> Mesh::make(std::vector<MeshAxis> axes) {
  uint64_t size = 1;
  for (const MeshAxis& axis : axes) size = std::min<uint64_t>(size * axis.size, kMostMeshRanks + 1);
  std::vector<uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return make(std::move(axes), std::move(ranks));
}

Result<Mesh> Mesh::make(std::vector<MeshAxis> axes, std::vector<uint32_t> ranks) {
  if (axes.size() > kMostAxes)
    return fail(Code::invalid, "a mesh has at most {} axes, not {}", kMostAxes, axes.size());
  uint64_t size = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].size == 0 || axes[i].name.empty())
      return fail(Code::invalid, "axis {} of mesh {} needs a name, and a size of 1 or more", i,
                  axes_text(axes));
    for (size_t j = 0; j < i; ++j)
      if (axes[j].name == axes[i].name)
        return fail(Code::invalid, "mesh {} has two axes '{}'; give each a name of its own",
                    axes_text(axes), axes[i].name);
    size = std::min<uint64_t>(size * axes[i].size, kMostMeshRanks + 1);
  }
  if (size > kMostMeshRanks)
    return fail(Code::invalid, "mesh {} has more than {} ranks", axes_text(axes), kMostMeshRanks);
  if (ranks.size() != size)
    return fail(Code::invalid, "mesh {} is of {} ranks, not of the {} that were given",
                axes_text(axes), size, ranks.size());
  auto body = std::make_shared<Body>();
  body->by_rank.resize(size);
  std::iota(body->by_rank.begin(), body->by_rank.end(), 0U);
  std::ranges::sort(body->by_rank, {}, [&](uint32_t place) { return ranks[place]; });
  for (size_t i = 1; i < size; ++i)
    if (ranks[body->by_rank[i]] == ranks[body->by_rank[i - 1]])
      return fail(Code::invalid, "rank {} is twice in mesh {}", ranks[body->by_rank[i]],
                  axes_text(axes));
  if (ranks[body->by_rank.back()] >= kMostMeshRanks)
    return fail(Code::invalid, "there is no rank {}; ranks end at {}", ranks[body->by_rank.back()],
                kMostMeshRanks - 1);
  body->strides.resize(axes.size());
  uint32_t stride = 1;
  for (size_t i = axes.size(); i-- > 0; stride *= axes[i].size) body->strides[i] = stride;
  Hasher hasher;
  for (const MeshAxis& axis : axes) {
    add(hasher, axis.name);
    hasher.update(std::as_bytes(std::span(&axis.size, 1)));
  }
  add(hasher, ranks);
  body->hash = hasher.digest128();
  body->axes = std::move(axes);
  body->ranks = std::move(ranks);
  return Mesh(std::move(body));
}

std::optional<uint32_t> Mesh::place_of(uint32_t rank) const {
  const auto& by_rank = body_->by_rank;
  const auto found = std::ranges::lower_bound(by_rank, rank, {},
                                              [&](uint32_t place) { return body_->ranks[place]; });
  if (found == by_rank.end() || body_->ranks[*found] != rank) return std::nullopt;
  return *found;
}

std::string Mesh::text() const {
  const std::string axes = axes_text(body_->axes);
  return fmt::format("{}{}of rank{} {}", axes, axes.empty() ? "" : " ", size() == 1 ? "" : "s",
                     ranges_text(body_->ranks));
}

uint64_t Box::elements() const {
  return std::accumulate(extent.begin(), extent.begin() + dimensions, uint64_t{1},
                         std::multiplies<>());
}

bool Box::operator==(const Box& other) const {
  return dimensions == other.dimensions &&
         std::equal(begin.begin(), begin.begin() + dimensions, other.begin.begin()) &&
         std::equal(extent.begin(), extent.begin() + dimensions, other.extent.begin());
}

std::string Box::text() const {
  std::string text;
  for (uint32_t d = 0; d < dimensions; ++d)
    text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", begin[d], begin[d] + extent[d]);
  return fmt::format("[{}]", text);
}

Layout::Layout(Mesh mesh, LayoutOptions& options)
    : mesh_(std::move(mesh)),
      shape_(std::move(options.shape)),
      split_(shape_.size()),
      op_(options.partial.empty() ? ReduceOp::sum : options.op) {}

Result<Layout> Layout::make(Mesh mesh, LayoutOptions options) {
  if (options.shape.size() > kMostDimensions)
    return fail(Code::invalid, "a tensor has at most {} dimensions, not {}", kMostDimensions,
                options.shape.size());
  constexpr uint64_t kMostElements = uint64_t{1} << 56;  // offsets in bytes fit 64 bits
  if (!product(options.shape.begin(), options.shape.end(), kMostElements))
    return fail(Code::invalid, "a tensor of shape ({}) is past all memory",
                fmt::join(options.shape, ", "));
  Layout layout(std::move(mesh), options);
  std::vector<std::string> roles(layout.mesh_.axes().size());
  for (Sharding& sharding : options.shards) TRY_DO(layout.split(std::move(sharding), roles));
  TRY(layout.partial_, layout.take(options.partial, roles, "is partial"));
  for (uint32_t axis = 0; axis < roles.size(); ++axis)
    if (roles[axis].empty()) layout.replicating_.push_back(axis);
  const auto ranks_along = [&](std::span<const uint32_t> axes) {
    uint32_t ranks = 1;
    for (const uint32_t axis : axes) ranks *= layout.mesh_.axes()[axis].size;
    return ranks;
  };
  layout.lanes_ = ranks_along(layout.partial_);
  layout.replicas_ = ranks_along(layout.replicating_);
  if (layout.lanes_ > kMostLanes)
    return fail(Code::invalid, "partial axes of {} ranks are too many; a reduction has at most {}",
                layout.lanes_, kMostLanes);
  layout.hash_ = layout.hash_of_all();
  return layout;
}

// The axes of these names, none of which may have a role yet.
Result<std::vector<uint32_t>> Layout::take(const std::vector<std::string>& names,
                                           std::vector<std::string>& roles,
                                           std::string role) const {
  std::vector<uint32_t> taken;
  for (const std::string& name : names) {
    const auto axes = mesh_.axes();
    const auto found = std::ranges::find(axes, name, &MeshAxis::name);
    if (found == axes.end()) {
      std::vector<std::string_view> known;
      for (const MeshAxis& axis : axes) known.push_back(axis.name);
      const auto nearest = suggest(name, known);
      return fail(Code::invalid, "mesh {} has no axis '{}'{}", axes_text(axes), name,
                  nearest ? fmt::format("; did you mean '{}'?", *nearest) : "");
    }
    const auto axis = static_cast<uint32_t>(found - axes.begin());
    if (!roles[axis].empty())
      return fail(Code::invalid, "axis '{}' {} already, so it cannot be one that {}", name,
                  roles[axis], role);
    roles[axis] = role;
    taken.push_back(axis);
  }
  return taken;
}

Result<void> Layout::split(Sharding sharding, std::vector<std::string>& roles) {
  const uint32_t dimension = sharding.dimension;
  if (dimension >= shape_.size())
    return fail(Code::invalid, "there is no dimension {} to shard in a tensor of shape ({})",
                dimension, fmt::join(shape_, ", "));
  Split& split = split_[dimension];
  if (!split.axes.empty())
    return fail(Code::invalid, "dimension {} is sharded twice; name all its axes at once",
                dimension);
  TRY(split.axes, take(sharding.axes, roles, fmt::format("shards dimension {}", dimension)));
  for (const uint32_t axis : split.axes) split.pieces *= mesh_.axes()[axis].size;
  if (sharding.chunk == 0)
    return fail(Code::invalid, "pieces of dimension {} cannot be multiples of 0; use 1 or more",
                dimension);
  split.chunk = sharding.chunk;
  if (sharding.bounds.empty()) return {};
  if (sharding.chunk != 1)
    return fail(Code::invalid, "dimension {} has bounds, which leave nothing for chunk to say",
                dimension);
  const std::vector<uint64_t>& bounds = sharding.bounds;
  if (bounds.size() != uint64_t{split.pieces} + 1 || bounds.front() != 0 ||
      bounds.back() != shape_[dimension] || !std::ranges::is_sorted(bounds))
    return fail(Code::invalid,
                "bounds of dimension {} are {} numbers that ascend from 0 to {}, not ({})",
                dimension, split.pieces + 1, shape_[dimension], fmt::join(bounds, ", "));
  split.bounds = std::move(sharding.bounds);
  return {};
}

uint64_t Layout::piece_begin(uint32_t dimension, uint32_t piece) const {
  const Split& split = split_[dimension];
  if (!split.bounds.empty()) return split.bounds[piece];
  const uint64_t size = shape_[dimension];
  const uint64_t chunks = size / split.chunk + (size % split.chunk != 0 ? 1 : 0);
  // piece * chunks / pieces, without going past 64 bits.
  const uint64_t begin =
      chunks / split.pieces * piece + chunks % split.pieces * piece / split.pieces;
  return begin >= chunks ? size : begin * split.chunk;
}

// What an index along these axes adds to a place.
uint32_t Layout::add_up(std::span<const uint32_t> axes, uint32_t index) const {
  uint32_t place = 0;
  for (size_t i = axes.size(); i-- > 0;) {
    const uint32_t size = mesh_.axes()[axes[i]].size;
    place += index % size * mesh_.stride(axes[i]);
    index /= size;
  }
  return place;
}

uint32_t Layout::index_in(std::span<const uint32_t> axes, uint32_t place) const {
  uint32_t index = 0;
  for (const uint32_t axis : axes) {
    const uint32_t size = mesh_.axes()[axis].size;
    index = index * size + place / mesh_.stride(axis) % size;
  }
  return index;
}

uint32_t Layout::place_of_piece(uint32_t dimension, uint32_t piece) const {
  return add_up(split_[dimension].axes, piece);
}
uint32_t Layout::place_of_lane(uint32_t lane) const { return add_up(partial_, lane); }
uint32_t Layout::place_of_replica(uint32_t replica) const { return add_up(replicating_, replica); }

Layout::Holding Layout::holding(uint32_t place) const {
  Holding holding;
  for (uint32_t d = 0; d < dimensions(); ++d) holding.piece[d] = index_in(split_[d].axes, place);
  holding.lane = index_in(partial_, place);
  holding.replica = index_in(replicating_, place);
  return holding;
}

Box Layout::box(const Holding& holding) const {
  Box box{.dimensions = dimensions()};
  for (uint32_t d = 0; d < dimensions(); ++d) {
    box.begin[d] = piece_begin(d, holding.piece[d]);
    box.extent[d] = piece_begin(d, holding.piece[d] + 1) - box.begin[d];
  }
  return box;
}

Hash128 Layout::hash_of_all() const {
  Hasher hasher;
  const Hash128 mesh = mesh_.hash();
  hasher.update(std::as_bytes(std::span(&mesh, 1)));
  add(hasher, shape_);
  for (const Split& split : split_) {
    add(hasher, split.axes);
    add(hasher, split.bounds);
    hasher.update(std::as_bytes(std::span(&split.chunk, 1)));
  }
  add(hasher, partial_);
  hasher.update(std::as_bytes(std::span(&op_, 1)));
  return hasher.digest128();
}

std::string Layout::text() const {
  const auto names = [&](std::span<const uint32_t> axes) {
    std::string text;
    for (const uint32_t axis : axes)
      text += fmt::format("{}{}", text.empty() ? "" : "+", mesh_.axes()[axis].name);
    return text;
  };
  std::string dimensions;
  for (size_t d = 0; d < shape_.size(); ++d) {
    const Split& split = split_[d];
    dimensions += fmt::format("{}{}", d == 0 ? "" : ", ", shape_[d]);
    if (!split.axes.empty()) dimensions += fmt::format(" by {}", names(split.axes));
    if (split.chunk != 1) dimensions += fmt::format(" in {}s", split.chunk);
    if (!split.bounds.empty()) dimensions += fmt::format(" at {}", fmt::join(split.bounds, " "));
  }
  std::string text = fmt::format("({})", dimensions);
  if (!partial_.empty()) text += fmt::format(", {} over {},", reduce_op_name(op_), names(partial_));
  return fmt::format("{} on {}", text, mesh_.text());
}

}  // namespace tutti
