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
    for (const Instruction& instruction : program_.instructions)
      launches_.push_back(make_launch(program_, instruction, functions_));
    buffers_.resize(program_.buffers.size());
    errors_.resize(static_cast<size_t>(team_.threads()));
    return {};
  }

  const Program& program() const override { return program_; }
  size_t arena_bytes() const override {
    size_t room = 0;
    for (const auto& launch : launches_) room = std::max(room, launch->workspace_bytes());
    return static_cast<size_t>(program_.arena_bytes) + room * static_cast<size_t>(team_.threads());
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
    const size_t room = (arena_bytes() - static_cast<size_t>(program_.arena_bytes)) /
                        static_cast<size_t>(team_.threads());
    std::byte* workspaces = arena + program_.arena_bytes;
    team_.run([&](int thread) {
      const LaunchCall call{.buffers = buffers_,
                            .thread = thread,
                            .threads = team_.threads(),
                            .workspace = workspaces + room * static_cast<size_t>(thread)};
      for (size_t i = first; i < end; ++i) {
        auto done = launches_[i]->run(call);
        if (!done) {
          errors_[static_cast<size_t>(thread)] = done.error().context(program_.instructions[i].at);
          failed_.store(true);
        }
        team_.meet();
        if (failed_.load()) return;
      }
    });
    if (!failed_.load()) return {};
    for (auto& error : errors_)
      if (error) return fail(*std::exchange(error, std::nullopt));
    return {};
  }

 private:
  Program program_;
  Team& team_;
  std::unique_ptr<NativeCode> code_;
  std::vector<LoopFunction> functions_;
  std::vector<std::unique_ptr<Launch>> launches_;
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
