#include "run/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "run/launch.h"

namespace tutti {
namespace {

std::string source_of(const std::vector<LoopKernel>& kernels) {
  const auto printer = make_c_printer();
  std::string source = printer->prelude();
  for (const LoopKernel& kernel : kernels) source += printer->kernel(kernel);
  return source;
}

constexpr size_t kLine = 64;

// Threads write to lines of their own.
size_t whole_lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

class CpuProgram final : public LoadedProgram {
 public:
  CpuProgram(Program program, Team& team) : program_(std::move(program)), team_(team) {}

  Result<void> prepare(NativeCompiler& compiler) {
    if (!program_.loops.empty()) {
      TRY(code_, compiler.compile(source_of(program_.loops)));
      for (const LoopKernel& kernel : program_.loops) {
        auto* function = reinterpret_cast<LoopFunction>(code_->find(kernel.name));
        if (function == nullptr)
          return fail(Code::internal, "compiled kernels have no {}", kernel.name);
        functions_.push_back(function);
      }
    }
    for (const Instruction& instruction : program_.instructions) {
      launches_.push_back(make_launch(program_, instruction, functions_));
      const Launch& launch = *launches_.back();
      first_turns_.push_back(phases_);
      phases_ += static_cast<size_t>(launch.phases());
      shared_bytes_ = std::max(shared_bytes_, whole_lines(launch.shared_bytes()));
      workspace_bytes_ = std::max(workspace_bytes_, whole_lines(launch.workspace_bytes()));
    }
    turns_ = std::make_unique<Turns[]>(phases_);
    buffers_.resize(program_.buffers.size());
    errors_.resize(static_cast<size_t>(team_.threads()));
    return {};
  }

  const Program& program() const override { return program_; }
  uint64_t arena_bytes() const override {
    return static_cast<uint64_t>(program_.arena_bytes) + shared_bytes_ +
           workspace_bytes_ * static_cast<size_t>(team_.threads());
  }

  void start(InstructionRange instructions, const ProgramCall& call) override {
    range_ = instructions;
    call_ = call;
  }

  Result<void> wait() override {
    const auto [first, end] = range_;
    const ProgramCall& given = call_;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const ProgramBuffer& buffer = program_.buffers[i];
      buffers_[i] = buffer.place == BufferPlace::input    ? given.inputs[buffer.index]
                    : buffer.place == BufferPlace::output ? given.outputs[buffer.index]
                                                          : given.arena;
    }
    if (first < end && is_over(first, given.epoch)) return fail(given.epoch->aborted());
    stop_after_.store(kNever, std::memory_order_relaxed);
    for (auto& error : errors_) error.reset();
    for (size_t i = 0; i < phases_; ++i) turns_[i].begin();
    std::byte* shared = given.arena + program_.arena_bytes;
    team_.run([&](int thread) {
      LaunchCall call{
          .buffers = buffers_,
          .thread = thread,
          .threads = team_.threads(),
          .shared = shared,
          .workspace = shared + shared_bytes_ + workspace_bytes_ * static_cast<size_t>(thread)};
      for (size_t i = first; i < end; ++i)
        if (!run_one(i, i + 1 == end ? nullptr : given.epoch, call)) return;
    });
    if (stop_after_.load(std::memory_order_relaxed) == kNever) return {};
    for (auto& error : errors_)
      if (error) return fail(*error);
    return fail(given.epoch->aborted());
  }

 private:
  static constexpr size_t kNever = ~size_t{0};

  // Whether it is too late to begin, or to go on with, this instruction.
  bool is_over(size_t index, const EpochWatch* epoch) const {
    return epoch != nullptr && program_.instructions[index].section != Section::commit &&
           epoch->over();
  }

  // All phases of an instruction, unless a thread of the team failed, or the epoch is over.
  //
  // Threads say before they meet after which phase they want to stop. Who is slow to leave the
  // meeting may find the wish of one who is a phase further: he keeps it for that phase's end.
  bool run_one(size_t index, const EpochWatch* epoch, LaunchCall& call) {
    const Launch& launch = *launches_[index];
    for (call.phase = 0; call.phase < launch.phases(); ++call.phase) {
      const size_t phase = first_turns_[index] + static_cast<size_t>(call.phase);
      const bool last = call.phase + 1 == launch.phases();
      call.turns = &turns_[phase];
      auto done = launch.run(call);
      if (!done) {
        errors_[static_cast<size_t>(call.thread)] =
            done.error().context(program_.instructions[index].at);
        stop_after_.store(phase, std::memory_order_relaxed);
      } else if (is_over(last ? index + 1 : index, epoch)) {
        stop_after_.store(phase, std::memory_order_relaxed);
      }
      team_.meet();
      if (stop_after_.load(std::memory_order_relaxed) <= phase) return false;
    }
    return true;
  }

  Program program_;
  Team& team_;
  std::unique_ptr<NativeCode> code_;
  std::vector<LoopFunction> functions_;
  std::vector<std::unique_ptr<Launch>> launches_;
  std::vector<size_t> first_turns_;  // of each launch
  std::unique_ptr<Turns[]> turns_;   // of each phase of each launch
  size_t phases_ = 0;
  size_t shared_bytes_ = 0;
  size_t workspace_bytes_ = 0;  // of each thread
  InstructionRange range_{};    // that were started
  ProgramCall call_;
  std::vector<std::byte*> buffers_;
  std::vector<std::optional<Error>> errors_;  // by thread
  std::atomic<size_t> stop_after_ = kNever;   // a phase
};

}  // namespace

Result<std::unique_ptr<LoadedProgram>> CpuDevice::load(Program program) {
  auto made = std::make_unique<CpuProgram>(std::move(program), team_);
  TRY_DO(made->prepare(compiler_));
  return made;
}

}  // namespace tutti
