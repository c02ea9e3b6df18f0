#include "run/launch.h"

#include <array>

#include "base/assert.h"
#include "compile/program/interpret_program.h"
#include "kernels/share.h"
#include "run/collective_launch.h"
#include "run/heavy_launch.h"
#include "run/pointer.h"

namespace tutti {
namespace {

// More parameters than a generated kernel has.
constexpr size_t kMostParameters = 128;
// Of a loop, for each thread: so many that one that was held up can take fewer.
constexpr int64_t kPiecesEach = 4;

class LoopLaunch final : public Launch {
 public:
  LoopLaunch(const LoopKernel& kernel, LoopFunction function,
             const std::vector<TensorRef>& operands, const std::vector<TensorRef>& results)
      : function_(function), rows_(kernel.row_count()), columns_(kernel.columns) {
    by_rows_ = kernel.reduces() || rows_ >= columns_;
    for (const auto* refs : {&operands, &results})
      for (const TensorRef& ref : *refs) pointers_.emplace_back(ref);
    TUTTI_ASSERT(pointers_.size() <= kMostParameters, "kernels have few parameters");
  }

  Result<void> run(const LaunchCall& call) const override {
    std::array<void*, kMostParameters> parameters;
    for (size_t i = 0; i < pointers_.size(); ++i) parameters[i] = pointers_[i].in(call);
    const int64_t pieces = call.threads == 1 ? 1 : call.threads * kPiecesEach;
    for (int64_t turn = call.turns->take(); turn < pieces; turn = call.turns->take()) {
      if (by_rows_) {
        const Part part = part_of(rows_, turn, pieces);
        function_(parameters.data(), part.first, part.end, 0, columns_);
      } else {
        const Part part = part_of(columns_, turn, pieces, 16);
        function_(parameters.data(), 0, rows_, part.first, part.end);
      }
    }
    return {};
  }

 private:
  LoopFunction function_;
  int64_t rows_;
  int64_t columns_;
  bool by_rows_;
  std::vector<Pointer> pointers_;
};

// Element after element, by one thread.
class PlainLaunch final : public Launch {
 public:
  PlainLaunch(const Program& program, const Instruction& instruction)
      : program_(program), instruction_(instruction) {}

  Result<void> run(const LaunchCall& call) const override {
    if (call.thread != 0) return {};
    return interpret_instruction(program_, instruction_,
                                 {call.buffers.begin(), call.buffers.end()});
  }

 private:
  const Program& program_;
  const Instruction& instruction_;
};

}  // namespace

std::unique_ptr<Launch> make_launch(const Program& program, const Instruction& instruction,
                                    std::span<const LoopFunction> loops,
                                    std::span<float* const> panels, int threads) {
  if (instruction.kernel == Kernel::loops) {
    const auto index = static_cast<size_t>(instruction.loops);
    return std::make_unique<LoopLaunch>(program.loops[index], loops[index], instruction.operands,
                                        instruction.results);
  }
  if (instruction.kernel == Kernel::collective_start ||
      instruction.kernel == Kernel::collective_wait)
    return make_collective_launch(instruction);
  auto heavy = make_heavy_launch(program, instruction, loops, panels, threads);
  if (heavy != nullptr) return heavy;
  return std::make_unique<PlainLaunch>(program, instruction);
}

}  // namespace tutti
