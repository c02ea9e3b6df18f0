// Layouts, plans and reshards of this machine's processes: bench_reshard plan CASE [RANK], or
// bench_reshard move CASE BYTES.
//
// "plan" prints seconds from the shapes of a model to the copies of all ranks, or of one. "move"
// prints, for reshards of so many bytes in all between two layouts of four processes and for as
// many concurrent memcpys of the same bytes, the median over calls of the seconds they take.
// All buffers are rewritten before every call.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "fabric/plan.h"
#include "forked_ranks.h"
#include "measure.h"

namespace {

using namespace tutti;

constexpr uint32_t kRanks = 4;
constexpr int kCalls = 5;

Layout layout_of(const Mesh& mesh, std::vector<uint64_t> shape, std::vector<Sharding> shards) {
  return or_die(Layout::make(mesh, {.shape = std::move(shape), .shards = std::move(shards)}));
}

enum class Role : uint8_t { columns, rows, norm };
struct Weight {
  std::string name;
  std::vector<uint64_t> shape;
  Role role;
};

// The 723 weights of Llama 3 70B.
std::vector<Weight> llama_70b() {
  constexpr uint64_t kModel = 8192;
  constexpr uint64_t kKeys = 1024;
  constexpr uint64_t kHidden = 28'672;
  constexpr uint64_t kWords = 128'256;
  std::vector<Weight> all{{"embed", {kWords, kModel}, Role::columns},
                          {"head", {kWords, kModel}, Role::columns},
                          {"norm", {kModel}, Role::norm}};
  for (int layer = 0; layer < 80; ++layer) {
    const auto add = [&](const char* name, std::vector<uint64_t> shape, Role role) {
      all.push_back({fmt::format("{}.{}", layer, name), std::move(shape), role});
    };
    add("q", {kModel, kModel}, Role::columns);
    add("k", {kKeys, kModel}, Role::columns);
    add("v", {kKeys, kModel}, Role::columns);
    add("o", {kModel, kModel}, Role::rows);
    add("gate", {kHidden, kModel}, Role::columns);
    add("up", {kHidden, kModel}, Role::columns);
    add("down", {kModel, kHidden}, Role::rows);
    add("attention_norm", {kModel}, Role::norm);
    add("mlp_norm", {kModel}, Role::norm);
  }
  return all;
}

// How a weight lies on ranks under a kind of parallelism.
Layout layout_of(const Weight& weight, const Mesh& mesh, const std::string& kind) {
  if (kind != "fsdp_tp") return layout_of(mesh, weight.shape, {{0, {"fsdp"}}});
  if (weight.role == Role::columns) return layout_of(mesh, weight.shape, {{0, {"tp", "fsdp"}}});
  if (weight.role == Role::norm) return layout_of(mesh, weight.shape, {{0, {"fsdp"}}});
  return layout_of(mesh, weight.shape, {{0, {"fsdp"}}, {1, {"tp"}}});
}

// Master weights and two moments, from 512 ranks to 384.
void plan_state(const std::string& kind, const char* rank) {
  const std::vector<Weight> weights = llama_70b();
  std::vector<uint32_t> hosts(512);
  for (uint32_t i = 0; i < hosts.size(); ++i) hosts[i] = i / 8;
  const uint64_t start = now_ns();
  const auto mesh = [&](uint32_t ranks) {
    if (kind == "fsdp_tp") return or_die(Mesh::make({{"fsdp", ranks / 8}, {"tp", 8}}));
    const uint32_t width = ranks == 512 ? 64 : 96;
    if (kind == "hsdp") return or_die(Mesh::make({{"dp", ranks / width}, {"fsdp", width}}));
    return or_die(Mesh::make({{"fsdp", ranks}}));
  };
  const Mesh from = mesh(512);
  const Mesh to = mesh(384);
  std::vector<Move> moves;
  for (const Weight& weight : weights)
    moves.push_back({weight.name,
                     layout_of(weight, from, kind),
                     layout_of(weight, to, kind),
                     {DType::f32, DType::f32, DType::f32}});
  const Plan plan = or_die(Plan::make(std::move(moves), hosts));
  uint64_t copies = 0;
  uint64_t bytes = 0;
  const auto add = [&](const SliceCopy& copy) {
    copies += 3;
    bytes += copy.slice.elements() * 12;
  };
  if (rank != nullptr) {
    plan.visit_received(static_cast<uint32_t>(std::atoi(rank)), add);
  } else {
    plan.visit_all(add);
  }
  const uint64_t end = now_ns();
  const PlanTotals totals = plan.totals();
  std::printf("%zu tensors, %llu copies of %.1f GB; a rank sends at most %.2f GB\n",
              plan.moves().size() * 3, static_cast<unsigned long long>(copies),
              static_cast<double>(bytes) / 1e9, static_cast<double>(totals.most_sent_bytes) / 1e9);
  std::printf("%.6f\n", static_cast<double>(end - start) / 1e9);
}

// Eight f32 matrices of so many bytes together, in two layouts of four ranks.
std::shared_ptr<const Plan> plan_matrices(const std::string& kind, uint64_t bytes) {
  constexpr uint64_t kMatrices = 8;
  constexpr uint64_t kColumns = 8192;
  const std::vector<uint64_t> shape{bytes / kMatrices / 4 / kColumns, kColumns};
  const Mesh line = or_die(Mesh::make({{"x", kRanks}}));
  const Mesh square = or_die(Mesh::make({{"fsdp", 2}, {"tp", 2}}));
  const Layout rows = layout_of(line, shape, {{0, {"x"}}});
  const Layout columns = layout_of(line, shape, {{1, {"x"}}});
  const Layout tiles = layout_of(square, shape, {{0, {"fsdp"}}, {1, {"tp"}}});
  const Layout turned =
      layout_of(or_die(Mesh::make({{"x", kRanks}}, {3, 2, 1, 0})), shape, {{0, {"x"}}});
  std::vector<Move> moves;
  for (uint64_t i = 0; i < kMatrices; ++i) {
    const std::string name = fmt::format("w{}", i);
    if (kind == "rows_to_columns") moves.push_back({name, rows, columns});
    if (kind == "columns_to_rows") moves.push_back({name, columns, rows});
    if (kind == "fsdp_to_fsdp_tp") moves.push_back({name, rows, tiles});
    if (kind == "rows_to_other_ranks") moves.push_back({name, rows, turned});
  }
  return std::make_shared<const Plan>(or_die(Plan::make(std::move(moves))));
}

void rewrite(std::byte* data, uint64_t bytes, int round) {
  auto* words = reinterpret_cast<uint64_t*>(data);
  for (uint64_t i = 0; i < bytes / 8; ++i) words[i] = i + static_cast<uint64_t>(round);
}

// Both sides in turn, over the same memory.
void measure_moves(Fabric& fabric, const std::string& kind, uint64_t bytes, Span* ours,
                   Span* copies) {
  Group& world = *fabric.world();
  Call call{.kind = CallKind::reshard, .plan = plan_matrices(kind, bytes), .site = "bench"};
  const uint64_t each = bytes / kRanks;
  std::byte* from = fabric.heap().at(or_die(fabric.heap().allocate(each)));
  std::byte* to = fabric.heap().at(or_die(fabric.heap().allocate(each)));
  const uint64_t tensors = call.plan->moves().size();
  for (uint64_t i = 0; i < tensors; ++i) {
    call.inputs.push_back(from + each / tensors * i);
    call.outputs.push_back(to + each / tensors * i);
  }
  for (int i = -1; i < 2 * kCalls; ++i) {
    rewrite(from, each, i);
    rewrite(to, each, i + 1);
    or_die(world.run({.kind = CallKind::barrier}));
    const uint64_t start = now_ns();
    if (i % 2 == 0) {
      or_die(world.run(call));
    } else {
      std::memcpy(to, from, each);
    }
    const Span span{start, now_ns()};
    if (i >= 0) (i % 2 == 0 ? ours : copies)[i / 2 * kRanks + world.index()] = span;
  }
  or_die(world.run({.kind = CallKind::barrier}));
  const auto seconds = [](const Span* times) {
    return median_span_ns({times, size_t{kCalls} * kRanks}, kRanks) / 1e9;
  };
  if (world.index() == 0) std::printf("%.6f %.6f\n", seconds(ours), seconds(copies));
}

int move(const std::string& kind, uint64_t bytes) {
  auto* times = reinterpret_cast<Span*>(map_shared(2 * kCalls * kRanks * sizeof(Span)).data());
  return on_forked_ranks(kRanks, {}, [&](Fabric& fabric) {
    measure_moves(fabric, kind, bytes, times, times + kCalls * kRanks);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "plan") {
    plan_state(argv[2], argc > 3 ? argv[3] : nullptr);
    return 0;
  }
  if (what == "move" && argc == 4) return move(argv[2], std::strtoull(argv[3], nullptr, 10));
  return 2;
}
