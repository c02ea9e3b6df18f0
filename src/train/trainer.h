// Trains a model step by step, on one process or as one of several workers.
//
//   TRY(auto trainer, Trainer::make(model, options, {…}));
//   if (!trainer->has_state()) trainer->initialise_weights();
//   while (trainer->steps_done() < 2000) TRY(StepSummary report, trainer->step());
//   TRY_DO(co_await trainer->save(disk, "runs/a/state.safetensors"));
//
// A step computes, decides, and commits. What the loss and the gradient's norm are is known before
// weights change: when they are not finite, the step is not taken, and the first operation that
// made such a number is named. Whoever is killed before commit has changed nothing; a successor
// goes on with a commit in which one before it was killed (run/commit_log.h). A step belongs to the
// epoch in which it begins: when that is over before the step was decided, it ends with
// aborted(epoch) (run/epoch_watch.h) and has changed nothing; the next call is in the next epoch.
//
// The bits of every step follow from the model, the options and the data: not from threads, nor
// from whether the run was saved and loaded in between, nor from the number of workers; but from
// the axes along which these divide the work on a sample. All workers call the same in the same
// order. In every epoch they compare what they were started with before
// the first step, and who is behind gets the others' state. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "compile/model.h"
#include "compile/program/fit.h"
#include "run/device.h"
#include "train/batch_source.h"
#include "train/prefetch.h"
#include "train/safetensors.h"
#include "train/schedule.h"
#include "train/step_graph.h"
#include "train/trainer_memory.h"
#include "train/workers.h"
#include "world/team.h"

namespace tutti {

struct TrainerOptions {
  StepOptions step;  // whose lanes are dealt to the workers
  // How these are arranged (worker_mesh.h); all share the data if it is not said.
  std::string mesh{};
  std::string rules{};
  Schedule schedule;
  int64_t seed = 0;             // of the weights to begin with
  bool check_numerics = false;  // look at every number of every step; slow
  uint64_t most_bytes = 0;      // of memory to train in; 0: what the machine has left
  bool keep_packed = true;      // weights, where that pays (compile/program/packing.h)
  // What else has to be alike for all workers, hashed; for people who look for what is not.
  std::vector<Alike> alike{};
};

// What it has of the machine. All must outlive it.
struct TrainerHost {
  Device& device;  // which steps run on
  Team& team;      // initialises weights
  const Parking& clock;
  Helper& helper;  // makes data ahead
  Helper& idler;   // what is not urgent, while others wait for something
  TrainerMemory& memory;
  EpochWatch epoch{};          // of the rank, if it is one
  Workers* workers = nullptr;  // if there are others
};

struct StepSummary {
  int64_t step = 0;  // how many were done with it
  double loss = 0;
  double norm = 0;  // the gradient's, before it was clipped
  double rate = 0;
  Duration took{};
  Duration waited{};  // for data, which is part of it
  // Of several workers: the one that took longest for what it computes by itself, how long that
  // was, and the fastest; and how long this one waited for others.
  uint32_t slowest = 0;
  Duration slowest_took{};
  Duration fastest_took{};
  Duration communicated{};
};

// Known before anything runs.
struct TrainerPlan {
  uint64_t weights_bytes = 0;
  uint64_t moments_bytes = 0;
  uint64_t gradients_bytes = 0;
  uint64_t scratch_bytes = 0;  // with the gradients
  uint64_t data_bytes = 0;
  uint64_t panels_bytes = 0;  // of weights that stay packed
  double flops_a_step = 0;
  int64_t tokens_a_step = 0;  // elements of the input "tokens", or 0
  Duration compiled_in{};     // from the model's graph to code
  // What is computed twice because it would not fit to keep it.
  std::vector<std::string> recomputed;

  uint64_t total_bytes() const {
    return weights_bytes + moments_bytes + scratch_bytes + data_bytes + panels_bytes;
  }
  std::string text() const;  // "1.9 GiB (weights 475 MiB, …)"
};

class Trainer {
 public:
  // Compiles the step. Code::exhausted, with the plan, when it does not fit into memory.
  static Result<std::unique_ptr<Trainer>> make(Model model, const TrainerOptions& options,
                                               BatchSource& data, TrainerHost host);

  const Model& model() const { return model_; }
  const TrainerPlan& plan() const { return plan_; }
  const Program& program() const { return step_->program(); }

  // Whether weights are there: initialised, loaded, or left by one before us who was killed between
  // two steps.
  bool has_state() const { return words_[kBorn] != 0; }
  // One before us was killed while it wrote, and worked otherwise than we do: what it left is of no
  // step, and no use.
  bool was_torn() const { return torn_; }
  void initialise_weights();
  int64_t steps_done() const { return words_[kDone]; }
  // One that was decided with one before us is only committed, and told.
  Result<StepSummary> step();
  // All workers meet if they have not in this epoch; who was replaced may hear here what others
  // did.
  Result<void> meet_others();
  // After a step all workers may evaluate and save: who is replaced meanwhile has to know what is
  // behind the others. Of which step they did it last, and what they found.
  struct Evaluation {
    int64_t step = 0;
    double loss = 0;
  };
  Evaluation evaluated() const;
  int64_t saved() const { return words_[kSaved]; }
  void note_evaluation(double loss);
  Result<void> note_saved();  // when all have
  // Also of one before us; not of a step that comes from a file.
  std::optional<StepSummary> last_step() const;
  // Whether the epoch of the last call is over: what was aborted for that may be tried again.
  bool was_aborted() const { return host_.epoch.over(); }
  // The mean loss over so many batches of the data, the same ones each time. A model that drops
  // numbers out when training gives the one without for this.
  Result<double> evaluate(BatchSource& data, int64_t batches,
                          const Model* without_dropout = nullptr);

  // All it takes to go on: weights, moments, the step. Layers have names of their own in files. Of
  // several workers the first writes them.
  Task<Result<void>> save(Disk& disk, std::string path,
                          std::map<std::string, std::string> metadata = {});
  Task<Result<void>> load(Disk& disk, std::string path);
  Task<Result<void>> save_weights(Disk& disk, std::string path,
                                  std::map<std::string, std::string> metadata = {});
  // The moments are zero, and no step was done.
  Task<Result<void>> load_weights(Disk& disk, std::string path);
  // A parameter's values as they are now, stacked if it is; of one that the model has.
  Result<const float*> weights(const Parameter& parameter) const;
  // XXH3 of the weights and moments that this process keeps.
  uint64_t digest() const;
  // Of all of them: the same whoever keeps which. By all workers.
  Result<uint64_t> whole_digest();

 private:
  // Steps are counted from 1: that all is there to commit, that all workers had that, and what is
  // told of it. What the process that works was made of.
  enum Word : uint8_t {
    kBorn,
    kDone,
    kReady,
    kDecided,
    kLoss,
    kNorm,
    kProgram,
    kMostBytes,
    kEvaluated,
    kEvaluation,
    kSaved,
    kWords
  };
  static constexpr size_t kNoData = ~size_t{0};

  // Memory of a program's inputs and outputs.
  struct Places {
    std::vector<std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<size_t> data;  // of each input its place in a batch, or kNoData

    void point_at(const std::vector<BatchTensor>& batch);
  };

  Trainer(Model model, const TrainerOptions& options, TrainerHost host)
      : model_(std::move(model)), options_(options), host_(host) {}
  Result<std::unique_ptr<LoadedProgram>> load_program(const Graph& graph, bool fused) const;
  Result<void> prepare(BatchSource& data);
  Result<void> compile(Program program);
  Result<void> place_words();
  Result<void> place_states();
  Result<void> place_log();
  Result<void> keep_scratch(uint64_t bytes);
  void begin_at(int64_t step);
  Result<void> commit();
  StepSummary summary_of(int64_t step) const;
  void make_plan(const Graph& graph, const Program& program);
  uint64_t most_bytes() const;
  void keep_packed(Program& program);
  Result<FittedProgram> fit(const Graph& graph) const;
  Result<void> check_fit() const;
  Result<Places> places_of(const Program& program);
  Result<void> enter_epoch();
  Result<void> meet();
  Result<std::vector<uint64_t>> catch_up(const std::vector<uint64_t>& told);
  Result<void> roll_forward(int64_t step);
  void hear_of_others(const std::vector<uint64_t>& told);
  Result<void> deal_lanes();
  // Of a state what this worker keeps, piece by piece: bytes from its beginning, and which elements
  // of which tensor in files (layer by layer, if it is stacked) are there.
  using PieceVisit = std::function<void(size_t at, int64_t layer, int64_t first, int64_t elements)>;
  void each_piece(size_t parameter, bool of_moments, const PieceVisit& visit) const;
  int64_t rounds_of(int64_t batches) const;
  Result<std::optional<std::string>> told_by_all(std::optional<std::string> culprit);
  std::vector<BatchTensor> step_inputs(const Program& program) const;
  bool writes_files() const { return host_.workers == nullptr || host_.workers->rank() == 0; }
  Result<void> take_state_of(uint32_t source);
  Result<void> compare_weights();
  Result<void> compare_times(StepSummary& summary, Duration took, Duration communicated);
  Duration communicated_so_far() const;
  std::pair<int64_t, int64_t> own_part(int64_t count) const;
  ProgramCall call_of(const Places& places, std::byte* arena) const;
  // Computes the step with every operation on its own, and names the first whose numbers are not
  // finite. Scratch is not what it was after it.
  Result<std::optional<std::string>> look_at_step(const std::vector<BatchTensor>& data);
  Error not_taken(const std::string& why) const;
  Result<std::byte*> arena(uint64_t bytes);
  std::byte* step_room() const {
    return scratch_.empty() ? arena_->bytes().data() : scratch_.data();
  }
  std::byte* state(const std::string& name) const { return states_.at(name); }
  // Of what this worker has of a parameter.
  Type type_of(const Parameter& own, bool of_moments) const;
  // All that workers have together of a state of which this one keeps some; then by all of them.
  // What was gathered is kept in `room`: from shards of this worker's part of the model, and from
  // all parts.
  using Room = std::unique_ptr<std::byte[]>;
  Result<Bytes> unsharded(const Parameter& own, const std::string& name, bool of_moments,
                          Room& room) const;
  Result<Bytes> whole(size_t parameter, const std::string& name, bool of_moments, Room& room) const;
  struct Whole {
    std::vector<SafeTensor> tensors;
    std::vector<Room> rooms;
  };
  Result<Whole> whole_tensors(bool with_moments);
  Result<void> meet_parts();
  Result<void> read_all(const SafetensorsFile& file, bool with_moments);

  Model model_;
  TrainerOptions options_;
  TrainerHost host_;
  WorkerMesh mesh_;
  std::vector<LocalTensor> parts_;  // of the model's parameters, what this rank has
  std::vector<Parameter> own_;      // these, with the types that they have here
  TrainerPlan plan_;
  std::unique_ptr<LoadedProgram> step_;
  std::unique_ptr<LoadedProgram> looked_at_;  // the step, not fused; made when it is needed
  std::unique_ptr<LoadedProgram> evaluation_;
  Places places_;            // of the step
  size_t commit_begin_ = 0;  // the first instruction that writes states
  std::map<std::string, std::byte*> states_;
  int64_t* words_ = nullptr;
  bool torn_ = false;
  CommitLog log_;
  bool commits_together_ = false;         // weights go from worker to worker in it
  std::optional<StepSummary> caught_up_;  // which nobody was told of
  MutableBytes scratch_;                  // of the step, where a successor finds it
  std::unique_ptr<Mapping> arena_;        // else; and of what takes more
  std::unique_ptr<Prefetch> prefetch_;
  float loss_ = 0;
  float norm_ = 0;
  float rate_ = 0;
  int64_t number_ = 0;      // of the step under way, from 1
  uint64_t met_epoch_ = 0;  // in which the other workers were met
};

}  // namespace tutti
