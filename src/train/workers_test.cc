#include "train/workers.h"

#include <map>

#include "train/folder_fixture_test.h"
#include "train/workers_fixture_test.h"

using namespace tutti;

namespace {

constexpr int64_t kSteps = 3;

TrainerOptions options_of(int64_t atoms, uint32_t lanes) {
  return {.step = {.atoms = atoms,
                   .lanes = lanes,
                   .own_lanes = {.count = lanes},
                   .max_norm = 1,
                   .adamw = {.decay = 0.1}},
          .schedule = {.rate = 0.02, .least = 0.001, .warm_up = 1, .end = 60},
          .seed = 7};
}

struct Outcome {
  std::vector<double> losses;
  double evaluated = 0;
  uint64_t digest = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome train(Trainer& trainer) {
  Outcome outcome;
  trainer.initialise_weights();
  for (int64_t i = 0; i < kSteps; ++i) outcome.losses.push_back(step_of(trainer).loss);
  TokenBatches held(small_text(), {.vocabulary = 5, .order = SampleOrder::consecutive});
  auto evaluated = trainer.evaluate(held, 5);
  REQUIRE_MESSAGE(evaluated.has_value(), evaluated.error().text());
  outcome.evaluated = *evaluated;
  auto digest = trainer.whole_digest();
  REQUIRE_MESSAGE(digest.has_value(), digest.error().text());
  outcome.digest = *digest;
  return outcome;
}

Outcome alone(const TrainerOptions& options, Model model = small_model()) {
  TestMachine machine;
  TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
  return train(*trainer_of(machine, data, options, std::move(model)));
}

// Large enough that weights are parted, in layers and not, and not all evenly.
Model wide_model() {
  const TinyGptSizes sizes{.time = 4, .heads = 4, .head = 32, .vocab = 301, .hidden = 256};
  return with_layer_names(model_of(tiny_gpt(2, sizes)));
}

// Of every worker.
std::vector<Outcome> together(uint32_t workers, const TrainerOptions& options,
                              const Model& model = small_model()) {
  std::vector<Outcome> outcomes(workers);
  SharedHost host(workers, 64 << 20);
  host.run([&](Fabric& fabric) {
    Worker worker(fabric);
    TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
    auto trainer = worker.trainer(data, options, model);
    REQUIRE_MESSAGE(trainer.has_value(), trainer.error().text());
    outcomes[fabric.rank()] = train(**trainer);
  });
  return outcomes;
}

}  // namespace

TEST_CASE("weights and losses do not depend on how many workers share the lanes") {
  for (const int64_t atoms : {8, 16}) {
    const TrainerOptions options = options_of(atoms, 8);
    const Outcome expected = alone(options);
    for (const uint32_t workers : {2U, 3U, 5U, 8U}) {
      CAPTURE(workers);
      for (const Outcome& outcome : together(workers, options)) CHECK(outcome == expected);
    }
  }
}

TEST_CASE("weights and losses do not depend on who keeps which shards") {
  for (const int64_t atoms : {4, 8}) {
    TrainerOptions options = options_of(atoms, 4);
    const Outcome expected = alone(options, wide_model());
    for (const auto what : {ShardedState::moments, ShardedState::all}) {
      options.step.sharding.what = what;
      for (const uint32_t workers : {1U, 2U, 3U, 4U}) {
        CAPTURE(static_cast<int>(what));
        CAPTURE(workers);
        for (const Outcome& outcome : together(workers, options, wide_model()))
          CHECK(outcome == expected);
      }
    }
  }
}

TEST_CASE("axes that divide the work on samples go with those that share them") {
  TrainerOptions options = options_of(8, 4);
  const Outcome whole = alone(options, wide_model());
  for (const auto& [rules, same] : std::map<std::string, std::vector<std::string>>{
           {"", {"tp=2", "dp=2,tp=2", "zero1=2,tp=2", "tp=2,fsdp=2"}},
           {"time=sp", {"dp=2,sp=2,tp=2"}}}) {
    std::optional<Outcome> expected;
    for (const std::string& mesh : same) {
      CAPTURE(rules);
      CAPTURE(mesh);
      options.mesh = mesh;
      options.rules = rules;
      const auto ranks = ShardMesh::parse(mesh)->ranks();
      for (const Outcome& outcome : together(static_cast<uint32_t>(ranks), options, wide_model())) {
        if (!expected) expected = outcome;
        CHECK(outcome == *expected);
      }
    }
    CHECK(expected->digest != whole.digest);
    for (size_t i = 0; i < whole.losses.size(); ++i)
      CHECK(expected->losses[i] == doctest::Approx(whole.losses[i]).epsilon(1e-5));
    CHECK(expected->evaluated == doctest::Approx(whole.evaluated).epsilon(1e-5));
  }
}

TEST_CASE("weights begin with the same bits on every mesh, and any mesh goes on from a file") {
  TrainerOptions options = options_of(4, 4);
  TestMachine machine;
  TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
  const auto one = trainer_of(machine, data, options, wide_model());
  one->initialise_weights();
  const uint64_t initial = *one->whole_digest();
  step_of(*one);
  const uint64_t after = *one->whole_digest();
  const TestFolder folder;
  RealWorld world;
  REQUIRE(world.run(one->save(world.disk(), folder / "one")).has_value());
  for (const std::string mesh : {"tp=2", "fsdp=2,tp=2", "tp=2,zero1=2"}) {
    CAPTURE(mesh);
    options.mesh = mesh;
    const auto ranks = ShardMesh::parse(mesh)->ranks();
    SharedHost host(static_cast<uint32_t>(ranks), 64 << 20);
    host.run([&](Fabric& fabric) {
      Worker worker(fabric);
      TokenBatches its(small_text(), {.seed = 5, .vocabulary = 5});
      auto trainer = worker.trainer(its, options, wide_model());
      REQUIRE_MESSAGE(trainer.has_value(), trainer.error().text());
      (*trainer)->initialise_weights();
      CHECK(*(*trainer)->whole_digest() == initial);
      RealWorld mine;
      REQUIRE(mine.run((*trainer)->load(mine.disk(), folder / "one")).has_value());
      CHECK(*(*trainer)->whole_digest() == after);
      REQUIRE(mine.run((*trainer)->save(mine.disk(), folder / mesh)).has_value());
    });
    REQUIRE(world.run(one->load(world.disk(), folder / mesh)).has_value());
    CHECK(*one->whole_digest() == after);
  }
}

TEST_CASE("lanes are another order of summation, and so are fewer of them") {
  CHECK(alone(options_of(8, 8)).digest != alone(options_of(8, 1)).digest);
  CHECK(alone(options_of(8, 8)).digest != alone(options_of(8, 2)).digest);
}

TEST_CASE("more workers than lanes are refused, with what to say instead") {
  SharedHost host(3, 64 << 20);
  host.run([&](Fabric& fabric) {
    Worker worker(fabric);
    TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
    const auto made = worker.trainer(data, options_of(8, 2));
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().text().find("3 workers cannot share 2 lanes") != std::string::npos);
    CHECK(made.error().text().find("lanes=3") != std::string::npos);
  });
}

TEST_CASE("workers that were started with something else are named before the first step") {
  struct Difference {
    std::string words;
    std::function<void(TrainerOptions&)> options = [](TrainerOptions&) {};
    int64_t layers = 2;
  };
  const Difference differences[] = {
      {"rank 1 was started with other options",
       [](TrainerOptions& options) { options.schedule.rate = 0.5; }},
      {"rank 1 was started with other data",
       [](TrainerOptions& options) { options.alike = {{"other data", 1}}; }},
      {.words = "rank 1 was started with another model", .layers = 3},
  };
  for (const Difference& difference : differences) {
    CAPTURE(difference.words);
    SharedHost host(3, 64 << 20);
    host.run([&](Fabric& fabric) {
      Worker worker(fabric);
      TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
      TrainerOptions options = options_of(4, 4);
      options.alike = {{"other data", 0}};
      const bool odd = fabric.rank() == 1;
      if (odd) difference.options(options);
      auto trainer = worker.trainer(data, options, small_model(odd ? difference.layers : 2));
      REQUIRE_MESSAGE(trainer.has_value(), trainer.error().text());
      (*trainer)->initialise_weights();
      const auto step = (*trainer)->step();
      REQUIRE_FALSE(step.has_value());
      CHECK_MESSAGE(step.error().text().find(difference.words) != std::string::npos,
                    step.error().text());
      CHECK((*trainer)->steps_done() == 0);
    });
  }
}

TEST_CASE("who is behind goes on with the state of the others, and other weights are told") {
  const TrainerOptions options = options_of(4, 4);
  SharedHost host(3, 64 << 20);
  std::vector<uint64_t> digests(3);
  host.run([&](Fabric& fabric) {
    Worker worker(fabric);
    TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
    {
      auto trainer = worker.trainer(data, options);
      REQUIRE(trainer.has_value());
      (*trainer)->initialise_weights();
      step_of(**trainer);
      step_of(**trainer);
    }
    // Rank 1 comes back with nothing.
    auto again = worker.trainer(data, options);
    REQUIRE(again.has_value());
    if (fabric.rank() == 1) (*again)->initialise_weights();
    CHECK(step_of(**again).step == 3);
    digests[fabric.rank()] = (*again)->digest();
    auto third = worker.trainer(data, options);
    REQUIRE(third.has_value());
    (*third)->initialise_weights();
    auto* weights = const_cast<float*>(*(*third)->weights((*third)->model().parameters[0]));
    if (fabric.rank() == 2) weights[0] += 1;
    const auto step = (*third)->step();
    REQUIRE_FALSE(step.has_value());
    CHECK(step.error().text().find("rank 2 was started with other weights") != std::string::npos);
  });
  CHECK(digests == std::vector<uint64_t>(3, alone(options).digest));
}

TEST_CASE("who is behind takes the state of one with the same part, if there is one") {
  TrainerOptions options = options_of(4, 4);
  for (const std::string mesh : {"dp=2,tp=2", "tp=2"}) {
    CAPTURE(mesh);
    options.mesh = mesh;
    const auto ranks = static_cast<uint32_t>(ShardMesh::parse(mesh)->ranks());
    std::vector<uint64_t> digests(ranks);
    SharedHost host(ranks, 64 << 20);
    host.run([&](Fabric& fabric) {
      Worker worker(fabric);
      TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
      {
        auto trainer = worker.trainer(data, options, wide_model());
        REQUIRE_MESSAGE(trainer.has_value(), trainer.error().text());
        (*trainer)->initialise_weights();
        step_of(**trainer);
      }
      // Rank 1 comes back with nothing.
      auto again = worker.trainer(data, options, wide_model());
      REQUIRE(again.has_value());
      if (fabric.rank() == 1) (*again)->initialise_weights();
      if (ranks == 2) {
        const auto step = (*again)->step();
        REQUIRE_FALSE(step.has_value());
        CHECK(step.error().text().find("nobody has the shards") != std::string::npos);
        return;
      }
      CHECK(step_of(**again).step == 2);
      digests[fabric.rank()] = *(*again)->whole_digest();
    });
    if (ranks == 2) continue;
    std::vector<uint64_t> expected(ranks);
    SharedHost other(ranks, 64 << 20);
    other.run([&](Fabric& fabric) {
      Worker worker(fabric);
      TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
      auto trainer = worker.trainer(data, options, wide_model());
      REQUIRE(trainer.has_value());
      (*trainer)->initialise_weights();
      step_of(**trainer);
      step_of(**trainer);
      expected[fabric.rank()] = *(*trainer)->whole_digest();
    });
    CHECK(digests == expected);
  }
}

TEST_CASE("a number that is not finite ends the step of all, and who made it says how") {
  SharedHost host(2, 64 << 20);
  host.run([&](Fabric& fabric) {
    Worker worker(fabric);
    TokenBatches data(small_text(), {.seed = 5, .vocabulary = 5});
    auto trainer = worker.trainer(data, options_of(2, 2));
    REQUIRE(trainer.has_value());
    (*trainer)->initialise_weights();
    step_of(**trainer);
    const Parameter& weights = (*trainer)->model().parameters[0];
    auto* first = const_cast<float*>(*(*trainer)->weights(weights));
    for (int64_t i = 0; i < weights.type.elements(); ++i) first[i] = 1e38F;
    const auto step = (*trainer)->step();
    REQUIRE_FALSE(step.has_value());
    CHECK(step.error().text().find("step 2 was not taken") != std::string::npos);
    CHECK((*trainer)->steps_done() == 1);
  });
}
