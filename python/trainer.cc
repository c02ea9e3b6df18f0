// Tokens and trainers for Python. Nothing is decided here: tutti.Trainer says what is wanted,
// src/train does it.
#include "trainer.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "raise.h"
#include "rank/trainer_machine.h"
#include "train/progress.h"
#include "train/tokens.h"
#include "world/real/parking.h"
#include "world/real/real_world.h"

namespace nb = nanobind;

using tutti::Code;
using tutti::Error;
using tutti::Result;
using tutti::Tokens;

namespace {

using Metadata = std::map<std::string, std::string>;
using SharedTokens = std::shared_ptr<Tokens>;

constexpr tutti::Duration kMemoryEvery = std::chrono::seconds(1);

// Runs what reads and writes files, on a loop of its own, while other Python threads may run.
template <class Make>
auto with_disk(const Make& make) {
  const nb::gil_scoped_release others_may_run;
  tutti::RealWorld world;
  return world.run(make(world.disk()));
}

// While other Python threads may run.
template <class Call>
auto others_may_run(const Call& call) {
  const nb::gil_scoped_release released;
  return call();
}

void done_or_raise(const Result<void>& done) {
  if (!done) raise(done.error());
}

SharedTokens open_tokens(const std::string& path) {
  auto opened = with_disk([&](tutti::Disk& disk) { return tutti::open_tokens(disk, path); });
  return std::make_shared<Tokens>(*value_or_raise(std::move(opened)));
}

// Of a buffer of numbers with 1, 2 or 4 bytes each, copied.
SharedTokens tokens_of(nb::handle buffer, size_t item_bytes, std::string name) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  const auto* bytes = static_cast<const uint8_t*>(view.buf);
  const size_t count = static_cast<size_t>(view.len) / item_bytes;
  SharedTokens made;
  if (item_bytes == 4) {
    std::vector<uint32_t> all(count);
    std::memcpy(all.data(), bytes, count * 4);
    made = std::make_shared<Tokens>(Tokens::of(std::move(all), std::move(name)));
  } else {
    std::vector<uint16_t> all(count);
    if (item_bytes == 2) std::memcpy(all.data(), bytes, count * 2);
    if (item_bytes == 1) std::copy(bytes, bytes + count, all.begin());
    made = std::make_shared<Tokens>(Tokens::of(std::move(all), std::move(name)));
  }
  PyBuffer_Release(&view);
  return made;
}

SharedTokens part_of(const Tokens& tokens, uint64_t first, uint64_t count) {
  if (first > tokens.size() || count > tokens.size() - first)
    raise(Error(Code::invalid, "a part of " + tokens.name() + " past its end"));
  return std::make_shared<Tokens>(tokens.part(first, count));
}

// What tutti.Trainer found out, as it calls it.
class Options {
 public:
  explicit Options(const nb::dict& values) : values_(values) {}
  template <class T>
  T get(const char* name) const {
    return nb::cast<T>(values_[name]);
  }

  tutti::TrainerOptions trainer() const {
    return {
        .step = {.atoms = get<int64_t>("atoms"),
                 .lanes = get<uint32_t>("lanes"),
                 .own_lanes = {.count = get<uint32_t>("lanes")},
                 .max_norm = get<double>("max_norm"),
                 .adamw = {.beta1 = get<double>("beta1"),
                           .beta2 = get<double>("beta2"),
                           .epsilon = get<double>("epsilon"),
                           .decay = get<double>("decay")}},
        .mesh = get<std::string>("mesh"),
        .rules = get<std::string>("rules"),
        .schedule = {.rate = get<double>("rate"),
                     .least = get<double>("least"),
                     .warm_up = get<int64_t>("warm_up"),
                     .end = get<int64_t>("end"),
                     .decline = value_or_raise(tutti::decline_named(get<std::string>("decline")))},
        .seed = get<int64_t>("seed"),
        .check_numerics = get<bool>("check_numerics"),
        .most_bytes = most_bytes(),
        .alike = {{"other data or another configuration",
                   tutti::hash64(tutti::as_bytes(get<std::string>("alike")))}}};
  }
  tutti::TokenBatchOptions data() const {
    return {.seed = get<uint64_t>("data_seed"),
            .vocabulary = get<uint32_t>("vocabulary"),
            .order = get<bool>("consecutive") ? tutti::SampleOrder::consecutive
                                              : tutti::SampleOrder::random};
  }

 private:
  uint64_t most_bytes() const {
    const auto text = get<std::string>("memory");
    return text.empty() ? 0 : value_or_raise(tutti::parse_bytes(text));
  }

  const nb::dict& values_;
};

class PythonTrainer {
 public:
  PythonTrainer(tutti::Model model, tutti::Model evaluation, const SharedTokens& train,
                const SharedTokens& validation, const nb::dict& values)
      : evaluation_(std::move(evaluation)) {
    const Options options(values);
    const tutti::TrainerOptions trainer = options.trainer();
    const tutti::TokenBatchOptions data = options.data();
    const auto steps = options.get<int64_t>("steps");
    const auto threads = options.get<int>("threads");
    train_ = std::make_unique<tutti::TokenBatches>(train, data);
    if (validation != nullptr)
      validation_ = std::make_unique<tutti::TokenBatches>(
          validation, tutti::TokenBatchOptions{.vocabulary = data.vocabulary,
                                               .order = tutti::SampleOrder::consecutive});
    const auto made = make(std::move(model), trainer, threads);
    if (!made) raise(made.error());
    const auto* workers = machine_->host().workers;
    meter_.emplace(trainer_->plan(), steps, workers == nullptr ? 1 : workers->size());
  }

  // (step, loss, norm, rate, seconds, seconds waited for data)
  nb::tuple step() {
    std::optional<Result<tutti::StepSummary>> report;
    {
      const nb::gil_scoped_release others_may_run;
      report.emplace(trainer_->step());
    }
    const tutti::StepSummary done = value_or_raise(*std::move(report));
    meter_->add(done);
    return nb::make_tuple(done.step, done.loss, done.norm, done.rate, tutti::to_seconds(done.took),
                          tutti::to_seconds(done.waited));
  }

  // (for people, as JSON); `passing`: the next one is of the same steps too.
  nb::tuple progress(bool passing) {
    // The first step is told at once; what the machine could do is found out later.
    if (told_ && !meter_->has_peak()) meter_->set_peak(machine_->peak_flops());
    told_ = true;
    const auto bytes = memory();
    const tutti::Progress progress = passing ? meter_->look(bytes) : meter_->take(bytes);
    return nb::make_tuple(tutti::progress_text(progress),
                          tutti::dump_json(tutti::progress_json(progress)));
  }

  void meet_others() {
    done_or_raise(others_may_run([&] { return trainer_->meet_others(); }));
  }
  void note_saved() {
    done_or_raise(others_may_run([&] { return trainer_->note_saved(); }));
  }

  double evaluate(int64_t batches) {
    std::optional<Result<double>> loss;
    {
      const nb::gil_scoped_release others_may_run;
      loss.emplace(trainer_->evaluate(*validation_, batches, &evaluation_));
    }
    return value_or_raise(*std::move(loss));
  }

  void save(const std::string& path, const Metadata& metadata) {
    done_or_raise(
        with_disk([&](tutti::Disk& disk) { return trainer_->save(disk, path, metadata); }));
  }
  void save_weights(const std::string& path, const Metadata& metadata) {
    done_or_raise(
        with_disk([&](tutti::Disk& disk) { return trainer_->save_weights(disk, path, metadata); }));
  }
  void load(const std::string& path) {
    done_or_raise(with_disk([&](tutti::Disk& disk) { return trainer_->load(disk, path); }));
  }
  void load_weights(const std::string& path) {
    done_or_raise(with_disk([&](tutti::Disk& disk) { return trainer_->load_weights(disk, path); }));
  }

  nb::dict plan() const {
    const tutti::TrainerPlan& plan = trainer_->plan();
    nb::dict all;
    all["parameters"] = trainer_->model().parameter_count();
    all["threads"] = machine_->threads();
    all["weights_bytes"] = plan.weights_bytes;
    all["moments_bytes"] = plan.moments_bytes;
    all["gradients_bytes"] = plan.gradients_bytes;
    all["scratch_bytes"] = plan.scratch_bytes;
    all["panels_bytes"] = plan.panels_bytes;
    all["total_bytes"] = plan.total_bytes();
    all["flops_a_step"] = plan.flops_a_step;
    all["tokens_a_step"] = plan.tokens_a_step;
    all["compile_seconds"] = tutti::to_seconds(plan.compiled_in);
    all["text"] = plan.text();
    return all;
  }

  tutti::Trainer& trainer() { return *trainer_; }
  tutti::TrainerMachine& machine() { return *machine_; }

 private:
  Result<void> make(tutti::Model model, const tutti::TrainerOptions& options, int threads) {
    const nb::gil_scoped_release others_may_run;
    TRY(machine_, tutti::TrainerMachine::open({.threads = threads}));
    TRY(trainer_, tutti::Trainer::make(std::move(model), options, *train_, machine_->host()));
    return {};
  }

  // The kernel counts pages to tell: not more often than people read.
  std::optional<uint64_t> memory() {
    const tutti::Instant now = tutti::RealParking().now();
    if (!memory_ || now - memory_at_ >= kMemoryEvery) {
      memory_ = machine_->memory_bytes();
      memory_at_ = now;
    }
    return memory_;
  }

  tutti::Model evaluation_;
  std::unique_ptr<tutti::TrainerMachine> machine_;
  std::unique_ptr<tutti::TokenBatches> train_;
  std::unique_ptr<tutti::TokenBatches> validation_;
  std::unique_ptr<tutti::Trainer> trainer_;
  std::optional<tutti::ProgressMeter> meter_;
  bool told_ = false;
  std::optional<uint64_t> memory_;
  tutti::Instant memory_at_{};
};

}  // namespace

void bind_trainer(nb::module_& module) {
  nb::class_<Tokens>(module, "Tokens")
      .def_prop_ro("name", &Tokens::name)
      .def("__len__", &Tokens::size)
      .def("__getitem__",
           [](const Tokens& tokens, uint64_t index) {
             if (index >= tokens.size()) throw nb::index_error();
             return tokens[index];
           })
      .def("part", part_of, nb::arg("first"), nb::arg("count"));
  module.def("open_tokens", open_tokens, nb::arg("path"));
  module.def("tokens_of", tokens_of, nb::arg("buffer"), nb::arg("item_bytes"), nb::arg("name"));
  module.def(
      "step_graph",
      [](const tutti::Model& model, const nb::dict& values) {
        return value_or_raise(tutti::training_step(model, Options(values).trainer().step));
      },
      nb::arg("model"), nb::arg("options"), "The graph of a trainer's step.");
  module.def(
      "check_mesh",
      [](const std::string& mesh, const std::string& rules, uint32_t workers) {
        return value_or_raise(tutti::WorkerMesh::make(mesh, rules, workers)).data_workers();
      },
      nb::arg("mesh"), nb::arg("rules"), nb::arg("workers"));
  nb::class_<PythonTrainer>(module, "Trainer")
      .def(nb::init<tutti::Model, tutti::Model, const SharedTokens&, const SharedTokens&,
                    const nb::dict&>(),
           nb::arg("model"), nb::arg("evaluation"), nb::arg("train"), nb::arg("validation").none(),
           nb::arg("options"))
      .def("step", &PythonTrainer::step)
      .def("progress", &PythonTrainer::progress, nb::arg("passing"))
      .def("evaluate", &PythonTrainer::evaluate, nb::arg("batches"))
      .def("save", &PythonTrainer::save, nb::arg("path"), nb::arg("metadata"))
      .def("save_weights", &PythonTrainer::save_weights, nb::arg("path"), nb::arg("metadata"))
      .def("load", &PythonTrainer::load, nb::arg("path"))
      .def("load_weights", &PythonTrainer::load_weights, nb::arg("path"))
      .def("initialise_weights", [](PythonTrainer& self) { self.trainer().initialise_weights(); })
      .def("meet_others", &PythonTrainer::meet_others)
      .def("note_saved", &PythonTrainer::note_saved)
      .def("note_evaluation",
           [](PythonTrainer& self, double loss) { self.trainer().note_evaluation(loss); })
      .def_prop_ro("saved", [](PythonTrainer& self) { return self.trainer().saved(); })
      .def_prop_ro("evaluated",
                   [](PythonTrainer& self) {
                     const auto last = self.trainer().evaluated();
                     return nb::make_tuple(last.step, last.loss);
                   })
      .def_prop_ro("last_step",
                   [](PythonTrainer& self) -> nb::object {
                     const auto last = self.trainer().last_step();
                     if (!last) return nb::none();
                     return nb::make_tuple(last->step, last->loss, last->norm, last->rate, 0.0,
                                           0.0);
                   })
      .def("digest",
           [](PythonTrainer& self) { return value_or_raise(self.trainer().whole_digest()); })
      .def("peak_flops", [](PythonTrainer& self) { return self.machine().peak_flops(); })
      .def_prop_ro("has_state", [](PythonTrainer& self) { return self.trainer().has_state(); })
      .def_prop_ro("was_aborted", [](PythonTrainer& self) { return self.trainer().was_aborted(); })
      .def_prop_ro("was_torn", [](PythonTrainer& self) { return self.trainer().was_torn(); })
      .def_prop_ro("steps_done", [](PythonTrainer& self) { return self.trainer().steps_done(); })
      .def_prop_ro("in_vault", [](PythonTrainer& self) { return self.machine().has_vault(); })
      .def_prop_ro("rank",
                   [](PythonTrainer& self) {
                     const auto* workers = self.machine().host().workers;
                     return workers == nullptr ? 0 : workers->rank();
                   })
      .def_prop_ro("plan", &PythonTrainer::plan)
      .def("program_text", [](PythonTrainer& self) { return self.trainer().program().text(); });
}
