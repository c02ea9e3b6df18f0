#include "run/launch.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "compile/program/interpret_program.h"

namespace tutti {
namespace {

// More parameters than a generated kernel has.
constexpr size_t kMostParameters = 128;

struct Pointer {
  uint32_t buffer;
  int64_t bytes;

  explicit Pointer(const TensorRef& ref)
      : buffer(ref.buffer), bytes(ref.offset * element_bytes(ref.type.dtype)) {}
  std::byte* in(const LaunchCall& call) const { return call.buffers[buffer] + bytes; }
};

// From `all` things in order, those of one thread; boundaries are multiples of `step`.
struct Share {
  int64_t first;
  int64_t end;

  Share(int64_t all, int64_t step, const LaunchCall& call) {
    const int64_t steps = (all + step - 1) / step;
    first = std::min(all, steps * call.thread / call.threads * step);
    end = std::min(all, steps * (call.thread + 1) / call.threads * step);
  }
};

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
    if (by_rows_) {
      const Share share(rows_, 1, call);
      function_(parameters.data(), share.first, share.end, 0, columns_);
    } else {
      const Share share(columns_, 16, call);
      function_(parameters.data(), 0, rows_, share.first, share.end);
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
                                    std::span<const LoopFunction> loops, int) {
  if (instruction.kernel == Kernel::loops) {
    const auto index = static_cast<size_t>(instruction.loops);
    return std::make_unique<LoopLaunch>(program.loops[index], loops[index], instruction.operands,
                                        instruction.results);
  }
  return std::make_unique<PlainLaunch>(program, instruction);
}

}  // namespace tutti
