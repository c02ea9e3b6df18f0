#include "run/loaded_program.h"

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
  size_t arena_bytes() const override {
    return static_cast<size_t>(program_.arena_bytes) + shared_bytes_ +
           workspace_bytes_ * static_cast<size_t>(team_.threads());
  }

  Result<void> run_some(size_t first, size_t end, const std::vector<std::byte*>& inputs,
                        const std::vector<std::byte*>& outputs, std::byte* arena) override {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const ProgramBuffer& buffer = program_.buffers[i];
      buffers_[i] = buffer.place == BufferPlace::input    ? inputs[buffer.index]
                    : buffer.place == BufferPlace::output ? outputs[buffer.index]
                                                          : arena;
    }
    failed_.store(false);
    for (size_t i = 0; i < phases_; ++i) turns_[i].begin();
    std::byte* shared = arena + program_.arena_bytes;
    team_.run([&](int thread) {
      LaunchCall call{
          .buffers = buffers_,
          .thread = thread,
          .threads = team_.threads(),
          .shared = shared,
          .workspace = shared + shared_bytes_ + workspace_bytes_ * static_cast<size_t>(thread)};
      for (size_t i = first; i < end; ++i)
        if (!run_one(i, call)) return;
    });
    if (!failed_.load()) return {};
    for (auto& error : errors_)
      if (error) return fail(*std::exchange(error, std::nullopt));
    return {};
  }

 private:
  // All phases of an instruction, unless a thread of the team failed.
  bool run_one(size_t index, LaunchCall& call) {
    const Launch& launch = *launches_[index];
    for (call.phase = 0; call.phase < launch.phases(); ++call.phase) {
      call.turns = &turns_[first_turns_[index] + static_cast<size_t>(call.phase)];
      auto done = launch.run(call);
      if (!done) {
        errors_[static_cast<size_t>(call.thread)] =
            done.error().context(program_.instructions[index].at);
        failed_.store(true);
      }
      team_.meet();
      if (failed_.load()) return false;
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
  std::vector<std::byte*> buffers_;
  std::vector<std::optional<Error>> errors_;  // by thread
  std::atomic<bool> failed_ = false;
};

}  // namespace

Result<std::unique_ptr<LoadedProgram>> LoadedProgram::make(Program program, Team& team,
                                                           NativeCompiler& compiler) {
  auto made = std::make_unique<CpuProgram>(std::move(program), team);
  TRY_DO(made->prepare(compiler));
  return made;
}

}  // namespace tutti
