#include "train/trainer.h"

#include <cmath>
#include <filesystem>

#include "run/epoch_fixture_test.h"
#include "train/folder_fixture_test.h"
#include "train/trainer_fixture_test.h"

using namespace tutti;

namespace {

const TrainerOptions kOptions{
    .step = {.atoms = 2, .max_norm = 1, .adamw = {.decay = 0.1}},
    .schedule = {.rate = 0.02, .least = 0.001, .warm_up = 3, .end = 60, .decline = Decline::cosine},
    .seed = 7};

TokenBatches small_data(uint64_t seed = 5) {
  return {small_text(), {.seed = seed, .vocabulary = 5}};
}

Model stacked_model() { return with_layer_names(small_model(3)); }

void save(Trainer& trainer, const std::string& path) {
  RealWorld world;
  auto saved = world.run(trainer.save(world.disk(), path));
  REQUIRE_MESSAGE(saved.has_value(), saved.error().text());
}

Result<void> load(Trainer& trainer, const std::string& path) {
  RealWorld world;
  return world.run(trainer.load(world.disk(), path));
}

}  // namespace

TEST_CASE("a small model learns a small text") {
  TestMachine machine;
  TokenBatches data = small_data();
  const auto trainer = trainer_of(machine, data, kOptions);
  CHECK_FALSE(trainer->has_state());
  trainer->initialise_weights();
  const double first = step_of(*trainer).loss;
  CHECK(first == doctest::Approx(std::log(5)).epsilon(0.1));
  StepSummary last;
  while (trainer->steps_done() < 60) last = step_of(*trainer);
  CHECK(last.step == 60);
  CHECK(last.loss < 0.5 * first);
  CHECK(last.norm > 0);
  TokenBatches held_out = small_data(99);
  const auto evaluated = trainer->evaluate(held_out, 8);
  REQUIRE(evaluated.has_value());
  CHECK(*evaluated == doctest::Approx(last.loss).epsilon(0.5));
  CHECK(trainer->evaluate(held_out, 8) == *evaluated);
}

TEST_CASE("one thread and two, and more than one seed, give the bits they should") {
  const auto digest_after_steps = [](int threads, int64_t seed) {
    TestMachine machine(threads);
    TokenBatches data = small_data();
    TrainerOptions options = kOptions;
    options.seed = seed;
    const auto trainer = trainer_of(machine, data, options);
    trainer->initialise_weights();
    for (int i = 0; i < 5; ++i) step_of(*trainer);
    return trainer->digest();
  };
  CHECK(digest_after_steps(1, 7) == digest_after_steps(2, 7));
  CHECK(digest_after_steps(1, 7) != digest_after_steps(1, 8));
}

TEST_CASE("a run that was saved and loaded has the bits of one that was not") {
  const TestFolder folder;
  const std::string path = folder / "state.safetensors";
  TokenBatches data = small_data();
  TestMachine machine;
  const auto whole = trainer_of(machine, data, kOptions, stacked_model());
  whole->initialise_weights();
  for (int i = 0; i < 4; ++i) step_of(*whole);
  save(*whole, path);
  for (int i = 0; i < 4; ++i) step_of(*whole);

  TestMachine another;
  const auto rest = trainer_of(another, data, kOptions, stacked_model());
  const auto loaded = load(*rest, path);
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
  CHECK(rest->steps_done() == 4);
  CHECK(rest->digest() != whole->digest());
  for (int i = 0; i < 4; ++i) step_of(*rest);
  CHECK(rest->steps_done() == 8);
  CHECK(rest->digest() == whole->digest());
}

TEST_CASE(
    "weights that stay packed give the bits of those that do not, also when they are changed") {
  const TestFolder folder;
  const std::string path = folder / "state.safetensors";
  const auto digests = [&](int threads, bool keep_packed) {
    TestMachine machine(threads);
    TokenBatches data = small_data();
    TrainerOptions options = kOptions;
    options.step.atoms = 4;
    options.keep_packed = keep_packed;
    const Graph graph =
        tiny_gpt(2, {.batch = 2, .time = 20, .heads = 4, .head = 26, .hidden = 130});
    const auto trainer = trainer_of(machine, data, options, model_of(graph));
    CHECK((trainer->plan().panels_bytes > 0) == keep_packed);
    trainer->initialise_weights();
    for (int i = 0; i < 2; ++i) step_of(*trainer);
    std::vector<uint64_t> all{trainer->digest()};
    save(*trainer, path);
    step_of(*trainer);
    all.push_back(trainer->digest());
    // Somebody else's weights, and its own again.
    trainer->initialise_weights();
    step_of(*trainer);
    all.push_back(trainer->digest());
    REQUIRE(load(*trainer, path).has_value());
    step_of(*trainer);
    all.push_back(trainer->digest());
    return all;
  };
  const auto expected = digests(1, false);
  CHECK(expected[3] == expected[1]);
  for (const int threads : {1, 2, 3}) CHECK(digests(threads, true) == expected);
}

TEST_CASE("files have every layer's weights under a name of their own") {
  const TestFolder folder;
  TokenBatches data = small_data();
  TestMachine machine;
  const auto trainer = trainer_of(machine, data, kOptions, stacked_model());
  trainer->initialise_weights();
  RealWorld world;
  REQUIRE(world.run(trainer->save_weights(world.disk(), folder / "w.safetensors")));
  const auto file = world.run(open_safetensors(world.disk(), folder / "w.safetensors"));
  REQUIRE(file.has_value());
  CHECK((*file)->tensors().contains("words"));
  CHECK((*file)->tensors().at("blocks.2.up").shape == std::vector<uint64_t>{4, 8});
  CHECK_FALSE((*file)->tensors().contains("blocks.3.up"));
  CHECK_FALSE((*file)->tensors().contains("first/words"));

  step_of(*trainer);
  const uint64_t after = trainer->digest();
  REQUIRE(world.run(trainer->load_weights(world.disk(), folder / "w.safetensors")));
  CHECK(trainer->steps_done() == 0);
  step_of(*trainer);
  CHECK(trainer->digest() == after);

  const auto refused = load(*trainer, folder / "w.safetensors");
  CHECK(refused.error().text().find("weights alone") != std::string::npos);
  CHECK(trainer->steps_done() == 1);
}

TEST_CASE("a file of another model changes nothing") {
  const TestFolder folder;
  const std::string path = folder / "state.safetensors";
  TokenBatches data = small_data();
  TestMachine machine;
  const auto trainer = trainer_of(machine, data, kOptions, stacked_model());
  trainer->initialise_weights();
  const uint64_t before = trainer->digest();
  TestMachine another;
  const auto other = trainer_of(another, data, kOptions, small_model());
  other->initialise_weights();
  save(*other, path);
  const auto refused = load(*trainer, path);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == Code::not_found);
  CHECK(trainer->digest() == before);
  CHECK(trainer->has_state());
}

TEST_CASE("who comes after one that was killed between steps goes on where it was") {
  TokenBatches data = small_data();
  TestMachine machine;
  uint64_t before = 0;
  {
    const auto trainer = trainer_of(machine, data, kOptions);
    trainer->initialise_weights();
    step_of(*trainer);
    before = trainer->digest();
  }
  const auto next = trainer_of(machine, data, kOptions);
  CHECK(next->has_state());
  CHECK(next->steps_done() == 1);
  CHECK(next->digest() == before);
}

TEST_CASE("who comes after one that was killed in commit goes on with that") {
  TokenBatches data = small_data();
  TestMachine machine;
  const auto first = trainer_of(machine, data, kOptions);
  first->initialise_weights();
  step_of(*first);
  const TestMemory::Copy before = machine.memory.copy();
  const StepSummary second = step_of(*first);
  const uint64_t digest = first->digest();
  // All that a commit writes, as it was; and the words but for the number of steps done.
  machine.memory.restore(before, [](const std::string& name) {
    return !name.starts_with("trainer/words") && !name.starts_with("trainer/scratch");
  });
  const Type words{DType::i64, {{"word", 11}}};
  auto* word = reinterpret_cast<int64_t*>(machine.memory.state("trainer/words", words)->data);
  word[1] = 1;
  const TestMemory::Copy killed = machine.memory.copy();
  {
    const auto next = trainer_of(machine, data, kOptions);
    CHECK(next->has_state());
    CHECK(next->steps_done() == 1);
    const StepSummary told = step_of(*next);
    CHECK(told.step == 2);
    CHECK(told.loss == second.loss);
    CHECK(told.norm == second.norm);
    CHECK(next->digest() == digest);
    CHECK(step_of(*next).step == 3);
  }
  // Who works otherwise cannot.
  machine.memory.restore(killed, [](const std::string&) { return true; });
  TrainerOptions other = kOptions;
  other.step.max_norm = 0.25;
  const auto torn = trainer_of(machine, data, other);
  CHECK_FALSE(torn->has_state());
  CHECK(torn->was_torn());
}

TEST_CASE("a loss that is not finite stops the run before weights change, and its maker is named") {
  // The loss is the log of a weight, which the first step makes negative.
  Builder b("bad");
  const Tensor tokens = b.input("tokens", {DType::i32, {{"batch", 1}, {"time", 2}}});
  b.input("targets", tokens.type());
  const Tensor w = b.state("w", {DType::f32, {{"row", 3}}});
  b.at("bad.py:12");
  const Tensor high = b.unary(OpKind::exp, b.unary(OpKind::exp, w * 3.0) * -1.0);
  b.at("bad.py:13");
  const Tensor low = b.unary(OpKind::log, w);
  b.at("bad.py:14");
  const Tensor all = high + low + 0.0 * b.sum(b.cast(tokens, DType::f32), {"batch", "time"});
  b.output("loss", b.mean(all, {"row"}));
  auto graph = b.build();
  REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
  Model model = model_of(*std::move(graph));
  model.parameters[0].init = kOnes;
  for (const bool check : {false, true}) {
    CAPTURE(check);
    TokenBatches data = small_data();
    TestMachine machine;
    TrainerOptions options{.step = {}, .schedule = {.rate = 2}, .seed = 1, .check_numerics = check};
    const auto trainer = trainer_of(machine, data, options, model);
    trainer->initialise_weights();
    step_of(*trainer);
    const uint64_t before = trainer->digest();
    const auto refused = trainer->step();
    REQUIRE_FALSE(refused.has_value());
    const std::string words = refused.error().text();
    CHECK_MESSAGE(words.find("log of bad.py:13 made nan at [row 0]") != std::string::npos, words);
    CHECK(words.find("step 2 was not taken") != std::string::npos);
    CHECK(trainer->steps_done() == 1);
    CHECK(trainer->digest() == before);
  }
}

TEST_CASE("a model that does not fit is refused with its plan") {
  TokenBatches data = small_data();
  TestMachine machine;
  machine.device.memory.available = 1000;
  const auto made = Trainer::make(small_model(), kOptions, data, machine.host());
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code() == Code::exhausted);
  for (const char* word : {"weights", "moments", "gradients", "scratch", "1000 B"})
    CHECK_MESSAGE(made.error().text().find(word) != std::string::npos, made.error().text());
}

TEST_CASE("in little memory the same bits are computed, some of them twice") {
  struct Outcome {
    uint64_t digest;
    int64_t scratch;
    TrainerPlan plan;
  };
  const auto run = [](uint64_t most_bytes) {
    TokenBatches data = small_data();
    TestMachine machine;
    TrainerOptions options = kOptions;
    options.most_bytes = most_bytes;
    const auto trainer = trainer_of(machine, data, options);
    trainer->initialise_weights();
    for (int i = 0; i < 3; ++i) REQUIRE(trainer->step().has_value());
    return Outcome{trainer->digest(), trainer->program().arena_bytes, trainer->plan()};
  };
  const Outcome roomy = run(0);
  CHECK(roomy.plan.recomputed.empty());
  // What kernels might take is left free.
  const uint64_t states = roomy.plan.weights_bytes + roomy.plan.moments_bytes;
  const Outcome narrow = run(32_MiB + states + static_cast<uint64_t>(roomy.scratch) * 9 / 10);
  CHECK_FALSE(narrow.plan.recomputed.empty());
  CHECK(narrow.scratch <= roomy.scratch * 9 / 10);
  CHECK(narrow.digest == roomy.digest);
}

TEST_CASE("a plan counts what a step takes") {
  TokenBatches data = small_data();
  TestMachine machine;
  const auto trainer = trainer_of(machine, data, kOptions);
  const TrainerPlan& plan = trainer->plan();
  CHECK(plan.weights_bytes == 4 * static_cast<uint64_t>(trainer->model().parameter_count()));
  CHECK(plan.moments_bytes == 2 * plan.weights_bytes);
  CHECK(plan.scratch_bytes > plan.gradients_bytes);
  CHECK(plan.tokens_a_step == 2 * 2 * 3);
  CHECK(plan.flops_a_step > 0);
}

TEST_CASE(
    "a step whose epoch ends before it was decided changes nothing, and is taken in the next") {
  TestMachine machine(2);
  TestPage page;
  AbortedTeam team(2, page);
  TokenBatches data = small_data();
  TestDevice device(team);
  const TrainerHost host = machine.host();
  const TrainerHost in_epochs{.device = device.cpu,
                              .team = team,
                              .clock = host.clock,
                              .helper = host.helper,
                              .idler = host.idler,
                              .memory = host.memory,
                              .epoch = page.watch()};
  auto made = Trainer::make(small_model(), kOptions, data, in_epochs);
  REQUIRE_MESSAGE(made.has_value(), made.error().text());
  Trainer& trainer = **made;
  trainer.initialise_weights();
  step_of(trainer);
  const int marks = team.marks;
  for (int at = 1; at < marks; at += 1 + at / 4) {
    const uint64_t before = trainer.digest();
    const int64_t steps = trainer.steps_done();
    team.marks = 0;
    team.abort_at = at;
    const auto report = trainer.step();
    team.abort_at = 0;
    CHECK(trainer.was_aborted());
    page.begin(page.page.epoch + 1);
    CAPTURE(at);
    if (report.has_value()) {
      CHECK(trainer.steps_done() == steps + 1);  // it was decided
      continue;
    }
    CHECK(report.error().text().starts_with(fmt::format("aborted(epoch {})", page.page.epoch - 1)));
    CHECK(trainer.steps_done() == steps);
    CHECK(trainer.digest() == before);
    CHECK(trainer.has_state());
    CHECK(step_of(trainer).step == steps + 1);
  }
  // The bits are those of a run that nobody disturbed.
  TestMachine alone;
  TokenBatches same = small_data();
  const auto undisturbed = trainer_of(alone, same, kOptions);
  undisturbed->initialise_weights();
  while (undisturbed->steps_done() < trainer.steps_done()) step_of(*undisturbed);
  CHECK(undisturbed->digest() == trainer.digest());
}

TEST_CASE("a step that waits for data stops waiting when its epoch ends") {
  // Makes a batch when it is allowed to; its epoch ends meanwhile.
  class Held final : public BatchSource {
   public:
    Held(BatchSource& source, TestPage& page) : source_(source), page_(page) {}
    Result<void> check(const std::vector<BatchTensor>& inputs) const override {
      return source_.check(inputs);
    }
    Result<void> fill(uint64_t step, const std::vector<BatchTensor>& inputs) override {
      if (page_.page.epoch == 1) page_.abort();
      go.acquire();
      return source_.fill(step, inputs);
    }
    std::counting_semaphore<> go{0};

   private:
    BatchSource& source_;
    TestPage& page_;
  };
  TestMachine machine(1);
  TestPage page;
  machine.epoch = page.watch();
  TokenBatches data = small_data();
  Held held(data, page);
  const auto trainer = trainer_of(machine, held, kOptions);
  trainer->initialise_weights();
  const auto report = trainer->step();
  REQUIRE_FALSE(report.has_value());
  CHECK(report.error().text().starts_with("aborted(epoch 1)"));
  page.begin(2);
  held.go.release(2);  // this step's, and the next one's, which are made ahead
  CHECK(step_of(*trainer).step == 1);
}
