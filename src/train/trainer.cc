#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/assert.h"
#include "base/hash.h"
#include "base/version.h"
#include "compile/flops.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/program/memory_use.h"
#include "compile/program/packing.h"
#include "run/initialise.h"
#include "train/numerics.h"

namespace tutti {
namespace {

constexpr const char* kWordsName = "trainer/words";
// Kernels for the step's small loops, the command's own code, and whatever else runs here.
constexpr uint64_t kOtherBytes = 64_MiB;
constexpr uint64_t kAnyBytes = 1ULL << 60;
// Of kernels, for both their threads; far more than they take.
constexpr uint64_t kWorkspaceBytes = 32_MiB;

// A killed process leaves a prefix of its stores; the compiler must keep their order.
void publish(int64_t& word, int64_t value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref(word).store(value, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// What must be filled anew for each step, without memory.
std::vector<BatchTensor> data_inputs(const Program& program) {
  std::vector<BatchTensor> data;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input& input = program.inputs[i];
    if (input.role == InputRole::data && input.name != "rate" && input.name != "step")
      data.push_back({.name = input.name, .type = program.input_types[i], .data = nullptr});
  }
  return data;
}

// Pages of scratch come while something else goes on, as far as compilers leave cores for it: those
// of a large model take longer than compiling.
class Touching {
 public:
  Touching(const TrainerHost& host, MutableBytes scratch) : helper_(host.idler) {
    helper_.start([this, &device = host.device, scratch] {
      for (size_t at = 0; at < scratch.size() && !enough_.load(); at += kPiece)
        device.touch(scratch.subspan(at, std::min(kPiece, scratch.size() - at)));
    });
  }
  ~Touching() {
    enough_.store(true);
    helper_.wait();
  }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;

 private:
  // Whoever does not need it any more, or wants memory meanwhile, waits for this much at most: also
  // for an idler who has no core.
  static constexpr size_t kPiece = 256_KiB;

  Helper& helper_;
  std::atomic<bool> enough_ = false;
};

// Whether a commit that was left anywhere may be gone on with: it is of updates, of which every
// block is told apart, and of collectives, whose inputs are there until its end.
bool can_go_on(const Program& program) {
  const auto of_commit = std::span(program.instructions).subspan(program.commit_begin());
  return std::ranges::all_of(of_commit, [&](const Instruction& one) {
    if (one.kernel != Kernel::collective_start)
      return one.kernel == Kernel::adamw || one.kernel == Kernel::collective_wait;
    std::vector<MemoryUse> read = memory_uses(program, one);
    std::erase_if(read, &MemoryUse::writes);
    return std::ranges::none_of(
        std::span(&one + 1, of_commit.data() + of_commit.size()),
        [&](const auto& later) { return disturb(read, memory_uses(program, later)); });
  });
}

Graph not_fused(const Graph& graph) { return remove_unused(expand(graph)); }

}  // namespace

std::string TrainerPlan::text() const {
  const std::string again =
      recomputed.empty() ? ""
                         : fmt::format("; {} values of a layer computed again", recomputed.size());
  const std::string packed =
      panels_bytes == 0 ? "" : fmt::format(", packed weights {}", format_bytes(panels_bytes));
  return fmt::format("{} (weights {}, moments {}, gradients {}, scratch {}, data {}{}{})",
                     format_bytes(total_bytes()), format_bytes(weights_bytes),
                     format_bytes(moments_bytes), format_bytes(gradients_bytes),
                     format_bytes(scratch_bytes - std::min(scratch_bytes, gradients_bytes)),
                     format_bytes(data_bytes), packed, again);
}

Result<std::unique_ptr<Trainer>> Trainer::make(Model model, const TrainerOptions& options,
                                               BatchSource& data, TrainerHost host) {
  TRY_DO(check_schedule(options.schedule));
  std::unique_ptr<Trainer> made(new Trainer(std::move(model), options, host));
  TRY_DO(made->deal_lanes());
  TRY_DO(made->prepare(data));
  return made;
}

Result<std::unique_ptr<LoadedProgram>> Trainer::load_program(const Graph& graph, bool fused) const {
  TRY(Program program, lower_to_program(fused ? optimize(graph) : not_fused(graph)));
  return host_.device.load(std::move(program));
}

Result<void> Trainer::compile(Program program) {
  if (host_.memory.outlives_process()) {
    TRY(step_, host_.device.load(std::move(program)));
    return keep_scratch(step_->arena_bytes());
  }
  const uint64_t scratch = static_cast<uint64_t>(program.arena_bytes);
  TRY(std::byte * room, arena(scratch + kWorkspaceBytes));
  const Touching touching(host_, {room, scratch});
  TRY(step_, host_.device.load(std::move(program)));
  return {};
}

Result<void> Trainer::prepare(BatchSource& data) {
  const Instant start = host_.clock.now();
  TRY_DO(place_words());
  TRY(parts_, parameter_parts(model_, options_.step.place));
  own_ = ModelPart{.graph = {}, .parameters = parts_}.own(model_);
  TRY(const Graph graph, training_step(model_, options_.step));
  TRY(FittedProgram fitted, fit(graph));
  Program& lowered = fitted.program;
  plan_.recomputed = std::move(fitted.recomputed);
  TRY_DO(data.check(step_inputs(lowered)));
  make_plan(graph, lowered);
  keep_packed(lowered);
  TRY_DO(check_fit());  // before anything is compiled
  TRY_DO(compile(std::move(lowered)));
  plan_.compiled_in = host_.clock.now() - start;
  plan_.scratch_bytes = step_->arena_bytes();
  plan_.panels_bytes = step_->panel_bytes();
  TRY_DO(check_fit());
  const Program& code = step_->program();
  commit_begin_ = code.commit_begin();
  TRY_DO(place_states());
  TRY(places_, places_of(code));
  if (scratch_.empty()) TRY_DO(arena(step_->arena_bytes()));
  TRY_DO(place_log());
  prefetch_ = std::make_unique<Prefetch>(data, host_.helper, host_.clock, step_inputs(code));
  return {};
}

std::vector<BatchTensor> Trainer::step_inputs(const Program& program) const {
  std::vector<BatchTensor> inputs = data_inputs(program);
  const StepOptions& step = options_.step;
  if (step.atoms == 1) return inputs;
  for (BatchTensor& input : inputs)
    input.share = {.first = step.atoms / step.lanes * step.own_lanes.first, .of = step.atoms};
  return inputs;
}

void Trainer::make_plan(const Graph& graph, const Program& program) {
  for (const Parameter& parameter : own_) {
    plan_.weights_bytes += static_cast<uint64_t>(type_of(parameter, false).bytes());
    plan_.moments_bytes += 2 * static_cast<uint64_t>(type_of(parameter, true).bytes());
    plan_.gradients_bytes += static_cast<uint64_t>(parameter.type.bytes());
  }
  plan_.scratch_bytes = static_cast<uint64_t>(program.arena_bytes);
  for (const BatchTensor& input : data_inputs(program)) {
    plan_.data_bytes += 2 * static_cast<uint64_t>(input.type.bytes());
    if (input.name == "tokens") plan_.tokens_a_step = input.type.elements();
  }
  plan_.tokens_a_step = plan_.tokens_a_step / options_.step.own_lanes.count * options_.step.lanes;
  plan_.flops_a_step = flops_of(graph);
}

// Panels have what everything else leaves.
void Trainer::keep_packed(Program& program) {
  const uint64_t most = most_bytes();
  const uint64_t others = plan_.total_bytes() + kWorkspaceBytes;
  if (!options_.keep_packed || most <= others) return;
  choose_packing(program, {.most_bytes = static_cast<int64_t>(most - others)});
  plan_.panels_bytes = static_cast<uint64_t>(panel_bytes(program));
}

// A successor is given what the first of them had: else it would work otherwise.
uint64_t Trainer::most_bytes() const {
  if (options_.most_bytes != 0) return options_.most_bytes;
  if (words_[kMostBytes] != 0) return static_cast<uint64_t>(words_[kMostBytes]);
  const auto available = host_.device.available_bytes();
  return available ? *available - std::min(*available, kOtherBytes) : kAnyBytes;
}

// What states leave is for scratch, of which workspaces of kernels take a part.
Result<FittedProgram> Trainer::fit(const Graph& graph) const {
  uint64_t states = kWorkspaceBytes;
  for (const Parameter& parameter : own_)
    states += static_cast<uint64_t>(type_of(parameter, false).bytes() +
                                    2 * type_of(parameter, true).bytes());
  const uint64_t most = most_bytes();
  return fit_program(graph, static_cast<int64_t>(most - std::min(most, states)));
}

Result<void> Trainer::check_fit() const {
  const uint64_t most = most_bytes();
  if (plan_.total_bytes() <= most) return {};
  return fail(Code::exhausted,
              "the model does not fit: training it takes {}, even with all computed again that can "
              "be, and {} of memory {}; use a smaller batch (the same in more atoms), a shorter "
              "context, or a smaller model",
              plan_.text(),
              format_bytes(options_.most_bytes != 0 ? most : *host_.device.available_bytes()),
              options_.most_bytes != 0 ? "may be used" : "are left on this machine");
}

Result<void> Trainer::place_words() {
  TRY(const StateTensor kept, host_.memory.state(kWordsName, Type{DType::i64, {{"word", kWords}}}));
  words_ = reinterpret_cast<int64_t*>(kept.data);
  return {};
}

// What a commit reads is kept with what it writes.
Result<void> Trainer::keep_scratch(uint64_t bytes) {
  TRY(const StateTensor kept,
      host_.memory.state(fmt::format("trainer/scratch/{}", bytes),
                         {DType::u8, {{"byte", static_cast<int64_t>(bytes)}}}));
  scratch_ = {kept.data, bytes};
  return {};
}

// Somebody was killed while writing: we can go on with it if we work as it did.
Result<void> Trainer::place_log() {
  const Program& code = step_->program();
  for (size_t i = commit_begin_; i < code.instructions.size(); ++i)
    commits_together_ |= code.instructions[i].kernel == Kernel::collective_start;
  const int threads = host_.team.threads();
  const auto alike = static_cast<int64_t>(hash64(
      as_bytes(fmt::format("{} {} {} {}", kVersion, threads, scratch_.size(), code.text()))));
  if (host_.memory.outlives_process() && can_go_on(code)) {
    const auto record_bytes = static_cast<int64_t>(CommitLog::record_bytes(threads));
    const int64_t blocks = commit_blocks(code);
    TRY(const StateTensor records, host_.memory.state(fmt::format("trainer/records/{}", threads),
                                                      {DType::u8, {{"byte", record_bytes}}}));
    TRY(const StateTensor done, host_.memory.state(fmt::format("trainer/blocks/{}", blocks),
                                                   {DType::i32, {{"block", blocks}}}));
    log_ = CommitLog({records.data, static_cast<size_t>(record_bytes)},
                     {reinterpret_cast<uint32_t*>(done.data), static_cast<size_t>(blocks)});
  }
  if (words_[kProgram] == alike && log_.keeps()) return {};
  torn_ = words_[kDecided] > words_[kDone];
  if (torn_) publish(words_[kBorn], 0);
  publish(words_[kReady], 0);
  log_.forget();
  publish(words_[kProgram], alike);
  return {};
}

Result<void> Trainer::place_states() {
  for (const Parameter& parameter : own_)
    for (const std::string& name :
         {parameter.name, first_moment_name(parameter.name), second_moment_name(parameter.name)}) {
      TRY(const StateTensor tensor,
          host_.memory.state(name, type_of(parameter, name != parameter.name)));
      states_.emplace(name, tensor.data);
    }
  return {};
}

// States were written otherwise than by steps.
void Trainer::begin_at(int64_t step) {
  for (const Word word : {kReady, kDecided, kLoss, kNorm, kEvaluated, kSaved}) words_[word] = 0;
  log_.forget();
  words_[kDone] = step;
  publish(words_[kBorn], 1);
}

void Trainer::initialise_weights() {
  publish(words_[kBorn], 0);
  step_->states_changed();
  for (size_t i = 0; i < own_.size(); ++i) {
    const Parameter& parameter = model_.parameters[i];
    const Type own = type_of(own_[i], false);
    const std::span weights(reinterpret_cast<float*>(state(parameter.name)),
                            static_cast<size_t>(own.elements()));
    if (own == parameter.type)
      initialise(parameter, options_.seed, weights, host_.team);
    else
      each_piece(i, false, [&](size_t at, int64_t layer, int64_t first, int64_t elements) {
        initial_values(parameter.init, options_.seed, layer_name(parameter.name, layer), first,
                       weights.subspan(at / sizeof(float), static_cast<size_t>(elements)));
      });
    for (const std::string& name :
         {first_moment_name(parameter.name), second_moment_name(parameter.name)})
      std::memset(state(name), 0, static_cast<size_t>(type_of(own_[i], true).bytes()));
  }
  begin_at(0);
}

// What was there to commit is not any more.
Result<std::byte*> Trainer::arena(uint64_t bytes) {
  publish(words_[kReady], 0);
  if (bytes <= scratch_.size()) return scratch_.data();
  if (arena_ == nullptr || bytes > arena_->bytes().size()) {
    arena_.reset();  // what was there is given back first
    TRY(arena_, host_.device.allocate(std::max<uint64_t>(bytes, 1)));
  }
  return arena_->bytes().data();
}

Result<Trainer::Places> Trainer::places_of(const Program& program) {
  const auto find = [&](const std::string& name) -> std::byte* {
    if (name == "rate") return reinterpret_cast<std::byte*>(&rate_);
    if (name == "step") return reinterpret_cast<std::byte*>(&number_);
    if (name == "loss") return reinterpret_cast<std::byte*>(&loss_);
    if (name == "norm") return reinterpret_cast<std::byte*>(&norm_);
    const auto kept = states_.find(name);
    return kept == states_.end() ? nullptr : kept->second;
  };
  Places places;
  const std::vector<BatchTensor> data = data_inputs(program);
  for (const Input& input : program.inputs) {
    const auto given = std::ranges::find(data, input.name, &BatchTensor::name);
    places.data.push_back(given == data.end() ? kNoData
                                              : static_cast<size_t>(given - data.begin()));
    places.inputs.push_back(find(input.name));
    if (places.inputs.back() == nullptr && given == data.end())
      return fail(Code::invalid, "nobody gives the model its state {}: it is no parameter",
                  input.name);
  }
  for (const Output& output : program.outputs) places.outputs.push_back(find(output.name));
  return places;
}

ProgramCall Trainer::call_of(const Places& places, std::byte* arena) const {
  return {.inputs = places.inputs,
          .outputs = places.outputs,
          .arena = arena,
          .epoch = &host_.epoch,
          .communicator = host_.workers == nullptr ? nullptr : &host_.workers->communicator(),
          .commit = log_.keeps() ? &log_ : nullptr};
}

void Trainer::Places::point_at(const std::vector<BatchTensor>& batch) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (data[i] != kNoData) inputs[i] = batch[data[i]].data;
}

Result<StepSummary> Trainer::step() {
  TUTTI_ASSERT(has_state(), "weights are there");
  TRY_DO(enter_epoch());
  if (caught_up_) return *std::exchange(caught_up_, std::nullopt);
  const Instant start = host_.clock.now();
  const Duration communicated = communicated_so_far();
  const int64_t done = steps_done();
  TRY(const std::vector<BatchTensor>* data,
      prefetch_->take(static_cast<uint64_t>(done), host_.epoch));
  rate_ = static_cast<float>(rate_at(options_.schedule, done));
  number_ = done + 1;
  places_.point_at(*data);
  if (options_.check_numerics) {
    TRY(const auto culprit, look_at_step(*data));
    if (culprit) return fail(not_taken(*culprit));
  }
  TRY(std::byte * room, arena(step_->arena_bytes()));
  const ProgramCall call = call_of(places_, room);
  TRY_DO(step_->run({0, commit_begin_}, call));
  const double loss = loss_;
  const double norm = norm_;
  if (!std::isfinite(loss) || !std::isfinite(norm)) {
    TRY(const auto culprit, look_at_step(*data));
    const std::string all = "only all operations together make it, fused as they are";
    // Not a number has a sign, which says nothing.
    const auto text = [](double x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); };
    return fail(not_taken(fmt::format("its loss is {} and its gradient's norm {}: {}", text(loss),
                                      text(norm), culprit.value_or(all))));
  }
  words_[kLoss] = std::bit_cast<int64_t>(loss);
  words_[kNorm] = std::bit_cast<int64_t>(norm);
  if (log_.keeps()) publish(words_[kReady], number_);
  StepSummary summary = summary_of(number_);
  // The last moment at which a step may be given up: all have what it takes to commit.
  if (host_.workers != nullptr)
    TRY_DO(compare_times(summary, host_.clock.now() - start, communicated_so_far() - communicated));
  TRY_DO(commit());
  summary.took = host_.clock.now() - start;
  summary.waited = prefetch_->waited();
  return summary;
}

// What was decided, from wherever it was left. Where weights go from worker to worker nobody
// computes on before all have them: else who has not could not ask for them again.
Result<void> Trainer::commit() {
  publish(words_[kDecided], number_);
  log_.begin(number_);
  const ProgramCall call = call_of(places_, step_room());
  auto committed = step_->run({commit_begin_, step_->program().instructions.size()}, call);
  if (!committed) {
    if (!log_.keeps() || !was_aborted()) publish(words_[kBorn], 0);
    return committed;
  }
  publish(words_[kDone], number_);
  // When somebody dies here, the next call finds out who has all of it.
  if (commits_together_ && host_.workers != nullptr)
    static_cast<void>(host_.workers->gather({uint64_t{0}}));
  return {};
}

StepSummary Trainer::summary_of(int64_t step) const {
  return {.step = step,
          .loss = std::bit_cast<double>(words_[kLoss]),
          .norm = std::bit_cast<double>(words_[kNorm]),
          .rate = rate_at(options_.schedule, step - 1)};
}

std::optional<StepSummary> Trainer::last_step() const {
  if (steps_done() == 0 || words_[kNorm] == 0) return std::nullopt;
  return summary_of(steps_done());
}

Trainer::Evaluation Trainer::evaluated() const {
  return {.step = words_[kEvaluated], .loss = std::bit_cast<double>(words_[kEvaluation])};
}

void Trainer::note_evaluation(double loss) {
  words_[kEvaluation] = std::bit_cast<int64_t>(loss);
  publish(words_[kEvaluated], steps_done());
}

Error Trainer::not_taken(const std::string& why) const {
  return Error(Code::invalid,
               fmt::format("step {} was not taken: {}; the weights are those of step {}: lower the "
                           "learning rate, or look at the data",
                           number_, why, number_ - 1));
}

Result<std::optional<std::string>> Trainer::look_at_step(const std::vector<BatchTensor>& data) {
  if (looked_at_ == nullptr) {
    TRY(const Graph graph, training_step(model_, options_.step));
    TRY(looked_at_, load_program(graph, false));
  }
  const Program& code = looked_at_->program();
  TRY(Places places, places_of(code));
  places.point_at(data);
  TRY(std::byte * room, arena(looked_at_->arena_bytes()));
  TRY(auto culprit, find_not_finite(*looked_at_, code.commit_begin(), call_of(places, room)));
  return told_by_all(std::move(culprit));
}

Result<double> Trainer::evaluate(BatchSource& data, int64_t batches, const Model* without_dropout) {
  if (evaluation_ == nullptr) {
    const Model& model = without_dropout == nullptr ? model_ : *without_dropout;
    const ModelPlace& place = options_.step.place;
    TRY(const std::vector<LocalTensor> parameters, parameter_parts(model, place));
    TRY_DO(check_alike(parts_, parameters));
    TRY(const Graph graph, evaluation_step(model, options_.step.sharding, place));
    TRY(evaluation_, load_program(graph, true));
  }
  const Program& code = evaluation_->program();
  TRY_DO(data.check(data_inputs(code)));
  Prefetch prefetch(data, host_.helper, host_.clock, data_inputs(code));
  TRY(Places places, places_of(code));
  TRY_DO(enter_epoch());
  TRY(std::byte * room, arena(evaluation_->arena_bytes()));
  // Each worker its share; losses are added in their order, whoever found them.
  std::vector<double> losses(static_cast<size_t>(batches));
  const auto [first, end] = own_part(batches);
  const int64_t rounds = rounds_of(batches);
  for (int64_t i = first; i < first + rounds; ++i) {
    TRY(const std::vector<BatchTensor>* batch,
        prefetch.take(static_cast<uint64_t>(i), host_.epoch));
    places.point_at(*batch);
    TRY_DO(evaluation_->run(call_of(places, room)));
    if (i < end) losses[static_cast<size_t>(i)] = loss_;
  }
  if (host_.workers != nullptr) TRY_DO(host_.workers->add_up(losses));
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(batches);
}

}  // namespace tutti
