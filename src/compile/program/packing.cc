#include "compile/program/packing.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "compile/program/memory_use.h"
#include "compile/program/schedule.h"

namespace tutti {
namespace {

// With fewer rows products read weights in place; with more, packing is less than two per cent.
constexpr int64_t kFewRows = 32;
constexpr int64_t kManyRows = 1024;
// Products with so few columns are not worth packing for (gemm_loops.inc).
constexpr int64_t kFewColumns = 96;
// What packing a byte costs a product, and what writing it to a panel costs an update: measured,
// docs/kernels.md. And what has to be saved by a byte of memory that an update keeps.
constexpr double kPackNs = 0.08;
constexpr double kUpdateNs = 0.12;
constexpr double kWorthNs = 0.1;

// A matrix that products have as their second operand: weights, or their transpose.
struct Candidate {
  TensorRef b;
  std::vector<size_t> products;
  int64_t updated_by = -1;  // an instruction, or none

  int64_t bytes() const { return b.type.bytes(); }
  int64_t row_floats() const { return b.type.dims[b.strides[1] == 1 ? 1 : 0].size; }
  double saved_a_byte() const {
    return static_cast<double>(products.size()) * kPackNs -
           (updated_by >= 0 ? kUpdateNs + kWorthNs : 0);
  }
};

// One of equal matrices that follow one another in a state: of a layer, or all of it.
bool is_part_of_state(const Program& program, const TensorRef& b) {
  const ProgramBuffer& buffer = program.buffers[b.buffer];
  if (buffer.place != BufferPlace::input || b.type.dtype != DType::f32) return false;
  if (program.inputs[buffer.index].role != InputRole::state) return false;
  const int64_t k = b.type.dims[0].size;
  const int64_t n = b.type.dims[1].size;
  const bool lies_so = b.strides == std::vector<int64_t>{n, 1};
  const bool turned = b.strides == std::vector<int64_t>{1, k};
  return (lies_so || turned) && b.offset % (k * n) == 0 && buffer.bytes % b.type.bytes() == 0;
}

bool is_worth_packing(const Program& program, const Instruction& instruction) {
  if (instruction.kernel != Kernel::gemm) return false;
  const int64_t rows = instruction.operands[0].type.dims[0].size;
  const TensorRef& b = instruction.operands[1];
  return rows > kFewRows && rows <= kManyRows && b.type.dims[1].size > kFewColumns &&
         is_part_of_state(program, b);
}

// Which instructions write each state.
std::map<uint32_t, std::vector<size_t>> writers_of(const Program& program) {
  std::map<uint32_t, std::vector<size_t>> writers;
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for (const MemoryUse& use : memory_uses(program, program.instructions[i]))
      if (use.writes) writers[use.memory].push_back(i);
  return writers;
}

std::vector<Candidate> find_candidates(const Program& program, bool constant_states) {
  std::vector<Candidate> found;
  std::map<std::array<int64_t, 5>, size_t> known;
  auto writers = writers_of(program);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!is_worth_packing(program, instruction)) continue;
    const TensorRef& b = instruction.operands[1];
    const std::vector<size_t>& by = writers[b.buffer];
    const bool is_updated =
        by.size() == 1 && program.instructions[by[0]].kernel == Kernel::adamw && by[0] > i;
    if (!is_updated && !(by.empty() && constant_states)) continue;
    const std::array key{static_cast<int64_t>(b.buffer), b.offset, b.strides[0], b.strides[1],
                         b.type.dims[0].size};
    const auto [at, added] = known.emplace(key, found.size());
    if (added)
      found.push_back({.b = b, .updated_by = is_updated ? static_cast<int64_t>(by[0]) : -1});
    found[at->second].products.push_back(i);
  }
  return found;
}

}  // namespace

void choose_packing(Program& program, const PackingOptions& options) {
  std::vector<Candidate> candidates = find_candidates(program, options.constant_states);
  std::ranges::stable_sort(candidates, std::ranges::greater{}, &Candidate::saved_a_byte);
  std::map<uint32_t, std::pair<int64_t, int64_t>> shapes;  // of the matrices of a state
  int64_t left = options.most_bytes;
  for (const Candidate& each : candidates) {
    if (each.saved_a_byte() <= 0 || each.bytes() > left) continue;
    // An update goes by rows of equal matrices.
    const std::pair shape{each.row_floats(), each.bytes()};
    if (shapes.emplace(each.b.buffer, shape).first->second != shape) continue;
    left -= each.bytes();
    const auto panel = static_cast<uint32_t>(program.panels.size());
    program.panels.push_back(each.b);
    for (const size_t product : each.products) program.instructions[product].panels = {panel};
    if (each.updated_by >= 0)
      program.instructions[static_cast<size_t>(each.updated_by)].panels.push_back(panel);
  }
  schedule_over_threads(program);
}

int64_t panel_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const TensorRef& panel : program.panels) bytes += panel.type.bytes();
  return bytes;
}

}  // namespace tutti
