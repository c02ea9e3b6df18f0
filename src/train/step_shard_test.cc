// The trainer's own step on ranks: pass and step know nothing of each other.
#include "compile/shard/shard_fixture_test.h"
#include "train/model_fixture_test.h"
#include "train/step_graph.h"

using namespace tutti;

TEST_CASE(
    "a step of several atoms on ranks is the step on one, and its gradients are summed once") {
  const Model model = model_of(tiny_gpt(2, {.batch = 2, .time = 4, .heads = 2}));
  const auto step = training_step(
      model, {.atoms = 3, .max_norm = 0.5, .adamw = {.beta1 = 0.8, .beta2 = 0.9, .decay = 0.5}});
  REQUIRE_MESSAGE(step.has_value(), step.error().text());
  const auto inputs = step_inputs(*step);
  const auto expected = run(*step, inputs, Precision::wide);
  for (const char* text : {"dp=2", "tp=2", "dp=2,tp=2"}) {
    CAPTURE(text);
    const ShardMesh mesh = mesh_of(text);
    const ShardedGraph made = sharded(*step, mesh, preset_rules(mesh));
    const auto results = run_on_ranks(*step, made, mesh, inputs, Precision::wide);
    for (size_t i = 0; i < results.size(); ++i) {
      CAPTURE(step->outputs[i].name);
      check_close(results[i], expected[i], 1e-9);
    }
    // No round of the atoms meets for a gradient.
    std::map<std::string, int> in_rounds;
    for (const Node& op : made.graph.ops)
      if (op.kind == OpKind::repeat) in_rounds = meetings(*op.body);
    CHECK(in_rounds["all_reduce"] == 0);
  }
}
