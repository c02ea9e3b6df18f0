// Every call over several hosts, of every shape, gives what it gives on one.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "fabric/fold.h"
#include "fabric/sim/gang.h"
#include "fabric/wide_call.h"

namespace tutti {
namespace {

using Shape = std::vector<uint32_t>;

uint32_t sum_of(const Shape& shape) { return std::accumulate(shape.begin(), shape.end(), 0U); }

Task<Result<void>> run_gang(SimGang& gang) {
  gang.start();
  auto finished = co_await gang.finish();
  co_return finished;
}

void on_hosts(const Shape& shape, SimGang::Body body) {
  CAPTURE(shape.size());
  CAPTURE(sum_of(shape));
  Simulator sim({.seed = 3, .hosts = static_cast<uint32_t>(shape.size())});
  std::vector<uint32_t> nodes;
  for (uint32_t host = 0; host < shape.size(); ++host) nodes.insert(nodes.end(), shape[host], host);
  const auto gang =
      SimGang::make(sim, {.wires = std::make_shared<FlowWires>(sim, NetModel(), std::move(nodes)),
                          .body = std::move(body)});
  const auto ran = sim.run(run_gang(*gang), 10min);
  REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
  CHECK(gang->losses() == 0);
}

const Shape kShapes[] = {{1, 1}, {2, 2}, {3, 1, 2}, {1, 4}, {1, 1, 1, 1, 1}, {3, 3, 3}};

// Bits of any type: small numbers for integers, so that nothing wraps by chance alone.
std::vector<std::byte> input_of(DType type, uint32_t lane, uint64_t elements) {
  std::vector<std::byte> data(elements * dtype_bytes(type));
  for (uint64_t i = 0; i < elements; ++i) {
    const auto small = static_cast<int>((lane * 131 + i * 7) % 97) - 40;
    const float value = static_cast<float>(small) * 0.37F;
    std::byte* to = data.data() + i * dtype_bytes(type);
    const auto put = [&](auto number) { std::memcpy(to, &number, sizeof number); };
    switch (type) {
      case DType::f32: put(value); break;
      case DType::f64: put(static_cast<double>(value) * 1.1); break;
      case DType::bf16:
      case DType::f16: narrow_halves(type, to, &value, 1); break;
      case DType::i8: put(static_cast<int8_t>(small)); break;
      case DType::u8: put(static_cast<uint8_t>(small + 40)); break;
      case DType::i32: put(int32_t{small * 1000}); break;
      case DType::i64: put(int64_t{small} * 1'000'000'007); break;
      case DType::i16: put(static_cast<int16_t>(small * 100)); break;
      case DType::u16: put(static_cast<uint16_t>((small + 40) * 100)); break;
      case DType::u32: put(static_cast<uint32_t>(small * 1000)); break;
      case DType::u64: put(static_cast<uint64_t>(int64_t{small} * 1'000'000'007)); break;
      case DType::boolean: break;
    }
  }
  return data;
}

std::vector<std::byte> reduced(DType type, ReduceOp op, uint32_t lanes, uint64_t elements) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const std::byte*> sources;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    inputs.push_back(input_of(type, lane, elements));
    sources.push_back(inputs.back().data());
  }
  std::vector<std::byte> result(elements * dtype_bytes(type));
  std::byte* targets[] = {result.data()};
  fold(FoldTree::plain(lanes), {.type = type,
                                .op = op,
                                .divisor = lanes,
                                .sources = sources,
                                .targets = targets,
                                .elements = elements});
  return result;
}

Task<Result<void>> reduce_everything(Fabric& fabric, World& world) {
  Group& group = *fabric.world();
  for (int type = 0; type < kDTypes; ++type) {
    if (!is_reduced(static_cast<DType>(type))) continue;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min}) {
      for (const uint64_t elements : {0UL, 1UL, 1001UL}) {
        const auto dtype = static_cast<DType>(type);
        auto data = input_of(dtype, fabric.rank(), elements);
        Call call{.kind = CallKind::all_reduce, .type = dtype, .op = op, .elements = elements};
        call.input = data.data();
        call.output = data.data();
        auto done = co_await call_in(world, group, std::move(call));
        if (!done) co_return done;
        CHECK(data == reduced(dtype, op, fabric.world_size(), elements));

        const uint64_t each = elements / fabric.world_size();
        std::vector<uint64_t> counts(fabric.world_size(), each);
        counts.back() += elements - each * fabric.world_size();
        const auto whole = input_of(dtype, fabric.rank(), elements);
        const uint64_t first = fabric.rank() * each * dtype_bytes(dtype);
        std::vector<std::byte> share(counts[fabric.rank()] * dtype_bytes(dtype));
        Call scatter{.kind = CallKind::reduce_scatter,
                     .type = dtype,
                     .op = op,
                     .elements = elements,
                     .input = whole.data(),
                     .output = share.data()};
        scatter.counts = counts;
        auto scattered = co_await call_in(world, group, std::move(scatter));
        if (!scattered) co_return scattered;
        const auto expected = reduced(dtype, op, fabric.world_size(), elements);
        CHECK(std::ranges::equal(share, std::span(expected).subspan(first, share.size())));
      }
    }
  }
  co_return Result<void>{};
}

TEST_CASE("reductions over hosts have the bits of those on one, in every type and shape") {
  for (const Shape& shape : kShapes) on_hosts(shape, reduce_everything);
}

TEST_CASE("and by every way between hosts") {
  for (const Shape& shape : {Shape{2, 2, 2, 2}, Shape{1, 1, 1}, Shape{2, 2}, Shape{3, 2, 1}})
    for (const RailWay way : {RailWay::direct, RailWay::halving, RailWay::tree, RailWay::ring})
      on_hosts(shape, [way](Fabric& fabric, World& world) {
        fabric.world()->set_way(way);
        return reduce_everything(fabric, world);
      });
}

Task<Result<void>> reduce_lanes(Fabric& fabric, World& world) {
  constexpr uint64_t kElements = 5000;
  for (const uint32_t lanes : {9U, 13U, 32U}) {
    std::vector<std::vector<std::byte>> joined;
    Call call{.kind = CallKind::all_reduce, .elements = kElements, .lanes = lanes};
    const LaneRange mine = share_of_lanes(lanes, fabric.world_size(), fabric.rank());
    for (const LaneRange node : whole_nodes(mine, lanes)) {
      std::vector<std::vector<std::byte>> inputs;
      std::vector<const std::byte*> sources;
      for (uint32_t lane = node.first; lane < node.first + node.count; ++lane) {
        inputs.push_back(input_of(DType::f32, lane, kElements));
        sources.push_back(inputs.back().data());
      }
      joined.emplace_back(kElements * 4);
      std::byte* targets[] = {joined.back().data()};
      fold(FoldTree::plain(node.count),
           {.sources = sources, .targets = targets, .elements = kElements});
      call.parts.push_back({node, joined.back().data()});
    }
    std::vector<std::byte> result(kElements * 4);
    call.output = result.data();
    auto done = co_await call_in(world, *fabric.world(), std::move(call));
    if (!done) co_return done;
    CHECK(result == reduced(DType::f32, ReduceOp::sum, lanes, kElements));
  }
  co_return Result<void>{};
}

TEST_CASE("lanes give the same bits however they are dealt to hosts") {
  for (const Shape& shape : kShapes) on_hosts(shape, reduce_lanes);
}

int64_t element_of(uint32_t rank, uint64_t i) { return rank * 1'000'000 + static_cast<int64_t>(i); }

Call call_on(CallKind kind, uint64_t elements, const std::vector<int64_t>& in,
             std::vector<int64_t>& out) {
  return {.kind = kind,
          .type = DType::i64,
          .elements = elements,
          .input = reinterpret_cast<const std::byte*>(in.data()),
          .output = reinterpret_cast<std::byte*>(out.data()),
          .output_elements = out.size(),
          .site = "here"};
}

Task<Result<void>> move_everything(Fabric& fabric, World& world) {
  Group& group = *fabric.world();
  const uint32_t size = fabric.world_size();
  const uint32_t rank = fabric.rank();
  for (const uint64_t elements : {0UL, 1UL, 3333UL}) {
    for (uint32_t root = 0; root < size; ++root) {
      std::vector<int64_t> in(elements);
      std::vector<int64_t> out(elements, -1);
      for (uint64_t i = 0; i < elements; ++i) in[i] = element_of(rank, i);
      Call call = call_on(CallKind::broadcast, elements, in, out);
      call.root = root;
      auto told = co_await call_in(world, group, std::move(call));
      if (!told) co_return told;
      for (uint64_t i = 0; i < elements; ++i) REQUIRE(out[i] == element_of(root, i));

      const uint64_t own = elements + rank;  // they differ
      std::vector<int64_t> piece(own);
      for (uint64_t i = 0; i < own; ++i) piece[i] = element_of(rank, i);
      const uint64_t total = elements * size + size * (size - 1) / 2;
      std::vector<int64_t> all(total, -1);
      std::vector<int64_t> at_root(rank == root ? total : 0, -1);
      Call gathering = call_on(CallKind::all_gather, own, piece, all);
      auto gathered = co_await call_in(world, group, std::move(gathering));
      if (!gathered) co_return gathered;
      Call collecting = call_on(CallKind::gather, own, piece, at_root);
      collecting.root = root;
      auto collected = co_await call_in(world, group, std::move(collecting));
      if (!collected) co_return collected;
      uint64_t at = 0;
      for (uint32_t from = 0; from < size; ++from)
        for (uint64_t i = 0; i < elements + from; ++i) REQUIRE(all[at++] == element_of(from, i));
      if (rank == root) CHECK(at_root == all);

      std::vector<int64_t> spread(rank == root ? elements * size : 0);
      for (uint64_t i = 0; i < spread.size(); ++i) spread[i] = element_of(root, i);
      Call scattering = call_on(CallKind::scatter, elements, spread, out);
      scattering.root = root;
      auto scattered = co_await call_in(world, group, std::move(scattering));
      if (!scattered) co_return scattered;
      for (uint64_t i = 0; i < elements; ++i)
        REQUIRE(out[i] == element_of(root, rank * elements + i));

      const auto distance = static_cast<int32_t>(root) - 2;
      Call shifting = call_on(CallKind::shift, elements, in, out);
      shifting.distance = distance;
      auto shifted = co_await call_in(world, group, std::move(shifting));
      if (!shifted) co_return shifted;
      const uint32_t from = (rank + 5 * size - static_cast<uint32_t>(distance + 4 * size)) % size;
      for (uint64_t i = 0; i < elements; ++i) REQUIRE(out[i] == element_of(from, i));
    }
    // Rank r sends r + s + elements to rank s.
    std::vector<uint64_t> counts(size);
    for (uint32_t other = 0; other < size; ++other) counts[other] = elements + rank + other;
    const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    std::vector<int64_t> in;
    for (uint32_t to = 0; to < size; ++to)
      for (uint64_t i = 0; i < counts[to]; ++i) in.push_back(element_of(rank * 10 + to, i));
    std::vector<int64_t> out(total, -1);
    Call exchanging = call_on(CallKind::all_to_all, 0, in, out);
    exchanging.counts = counts;
    exchanging.incoming = counts;
    auto exchanged = co_await call_in(world, group, std::move(exchanging));
    if (!exchanged) co_return exchanged;
    uint64_t at = 0;
    for (uint32_t from = 0; from < size; ++from)
      for (uint64_t i = 0; i < counts[from]; ++i)
        REQUIRE(out[at++] == element_of(from * 10 + rank, i));
  }
  co_return Result<void>{};
}

TEST_CASE("what is moved over hosts arrives where it should") {
  for (const Shape& shape : kShapes) on_hosts(shape, move_everything);
  on_hosts({2, 2, 2}, [](Fabric& fabric, World& world) {
    fabric.world()->set_way(RailWay::ring);
    return move_everything(fabric, world);
  });
}

// Everybody is told, with both lines.
Task<Result<void>> disagree(Fabric& fabric, World& world) {
  std::vector<int64_t> data(100);
  Call call = call_on(CallKind::all_reduce, fabric.rank() == 3 ? 99 : 100, data, data);
  call.site = fabric.rank() == 3 ? "odd.py:7" : "train.py:41";
  auto done = co_await call_in(world, *fabric.world(), std::move(call));
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code() == Code::invalid);
  CHECK(done.error().text().contains("odd.py:7"));
  CHECK(done.error().text().contains("train.py:41"));
  co_return Result<void>{};
}

TEST_CASE("hosts that do not call the same are told so") {
  on_hosts({1, 1, 1, 1, 1}, disagree);
  on_hosts({3, 1, 1}, disagree);
}

}  // namespace
}  // namespace tutti
