#include "run/cpu_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <optional>

#include "compile/program/schedule.h"
#include "run/launch.h"
#include "run/panels.h"

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

  Result<void> prepare(NativeCompiler& compiler, ProcessMemory& memory) {
    TRY_DO(check_schedule(program_));
    TRY_DO(panels_.allocate(program_, memory));
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
      launches_.push_back(
          make_launch(program_, instruction, functions_, panels_.places(), team_.threads()));
      const Launch& launch = *launches_.back();
      first_turns_.push_back(phases_);
      phases_ += static_cast<size_t>(launch.phases());
      size_t& room = room_bytes_[instruction.room];
      room = std::max(room, whole_lines(launch.shared_bytes()));
      workspace_bytes_ = std::max(workspace_bytes_, whole_lines(launch.workspace_bytes()));
    }
    first_turns_.push_back(phases_);
    turns_ = std::make_unique<Turns[]>(phases_);
    buffers_.resize(program_.buffers.size());
    failures_.resize(static_cast<size_t>(team_.threads()));
    return {};
  }

  const Program& program() const override { return program_; }
  uint64_t arena_bytes() const override {
    return static_cast<uint64_t>(program_.arena_bytes) + shared_bytes() +
           workspace_bytes_ * static_cast<size_t>(team_.threads());
  }

  uint64_t panel_bytes() const override { return panels_.bytes(); }
  void states_changed() override { panels_.forget(); }

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
    panels_.renew(program_, buffers_, team_);
    stop_after_.store(kNever, std::memory_order_relaxed);
    for (Failure& failure : failures_) failure = {};
    for (size_t i = 0; i < phases_; ++i) turns_[i].begin();
    std::byte* shared = given.arena + program_.arena_bytes;
    rooms_[0] = shared;
    for (size_t i = 1; i < rooms_.size(); ++i) rooms_[i] = rooms_[i - 1] + room_bytes_[i - 1];
    team_.run([&](int thread) {
      LaunchCall call{
          .buffers = buffers_,
          .thread = thread,
          .threads = team_.threads(),
          .workspace = shared + shared_bytes() + workspace_bytes_ * static_cast<size_t>(thread),
          .communicator = given.communicator,
          .commit = given.commit};
      for (size_t i = first; i < end; ++i)
        if (!run_one(i, i + 1 == end ? nullptr : given.epoch, call)) return;
    });
    if (stop_after_.load(std::memory_order_relaxed) == kNever) return {};
    panels_.forget();
    const Failure& first_failure = *std::ranges::min_element(failures_, {}, &Failure::phase);
    return fail(first_failure.error ? *first_failure.error : given.epoch->aborted());
  }

 private:
  static constexpr size_t kNever = ~size_t{0};

  // What went wrong in a thread, and in which phase.
  struct Failure {
    size_t phase = kNever;
    std::optional<Error> error;
  };

  size_t shared_bytes() const {
    return std::accumulate(room_bytes_.begin(), room_bytes_.end(), size_t{0});
  }

  // Whether it is too late to begin, or to go on with, this instruction.
  bool is_over(size_t index, const EpochWatch* epoch) const {
    return epoch != nullptr && program_.instructions[index].section != Section::commit &&
           epoch->over();
  }

  // All phases of an instruction, unless a thread of the team failed, or the epoch is over.
  //
  // Threads say after which phase they want to stop before they say that they are done with it. All
  // finish the earliest such phase that any of them names, and leave before the next: so what went
  // wrong first does not depend on who was fast, and nobody is in commit when another gives up.
  bool run_one(size_t index, const EpochWatch* epoch, LaunchCall& call) {
    const Launch& launch = *launches_[index];
    call.shared = rooms_[program_.instructions[index].room];
    for (call.phase = 0; call.phase < launch.phases(); ++call.phase) {
      const size_t phase = first_turns_[index] + static_cast<size_t>(call.phase);
      const size_t needed =
          call.phase == 0 ? first_turns_[index - program_.instructions[index].beside] : phase;
      team_.wait_for(mark_of(needed));
      if (stop_after_.load(std::memory_order_relaxed) < phase) return false;
      call.turns = &turns_[phase];
      auto done = launch.run(call);
      const bool last = call.phase + 1 == launch.phases();
      if (!done)
        failures_[static_cast<size_t>(call.thread)] = {
            phase, done.error().context(program_.instructions[index].at)};
      if (!done || is_over(last ? index + 1 : index, epoch)) stop_after(phase);
      team_.reach(call.thread, mark_of(phase + 1));
    }
    return true;
  }

  // What all threads have come to when those phases of this run are done that come before.
  uint32_t mark_of(size_t phase) const {
    const size_t first = first_turns_[range_.first];
    return phase <= first ? 0 : static_cast<uint32_t>(phase - first);
  }

  void stop_after(size_t phase) {
    size_t now = stop_after_.load(std::memory_order_relaxed);
    while (phase < now &&
           !stop_after_.compare_exchange_weak(now, phase, std::memory_order_relaxed)) {
    }
  }

  Program program_;
  Team& team_;
  Panels panels_;
  std::unique_ptr<NativeCode> code_;
  std::vector<LoopFunction> functions_;
  std::vector<std::unique_ptr<Launch>> launches_;
  std::vector<size_t> first_turns_;  // of each launch, and the end
  std::unique_ptr<Turns[]> turns_;   // of each phase of each launch
  size_t phases_ = 0;
  std::array<size_t, kSharedRooms> room_bytes_{};
  std::array<std::byte*, kSharedRooms> rooms_{};
  size_t workspace_bytes_ = 0;  // of each thread
  InstructionRange range_{};    // that were started
  ProgramCall call_;
  std::vector<std::byte*> buffers_;
  std::vector<Failure> failures_;            // by thread
  std::atomic<size_t> stop_after_ = kNever;  // a phase
};

}  // namespace

Result<std::unique_ptr<LoadedProgram>> CpuDevice::load(Program program) {
  auto made = std::make_unique<CpuProgram>(std::move(program), team_);
  TRY_DO(made->prepare(compiler_, memory_));
  return made;
}

}  // namespace tutti
