#include "compile/shard/rules.h"

#include "compile/shard/shard_fixture_test.h"

using namespace tutti;

TEST_CASE("rules read back, and the user's come before presets") {
  const ShardMesh mesh = mesh_of("dp=2,fsdp=2,tp=4");
  const ShardRules users = rules_of("batch=fsdp+dp,time=,vocab=tp", mesh);
  CHECK(rules_text(users) == "batch=fsdp+dp,time=,vocab=tp");
  CHECK(rules_text(preset_rules(mesh)) == "batch=dp+fsdp,heads=tp,hidden=tp,time=tp,embed=fsdp");
  CHECK(rules_text(preset_rules(mesh_of("tp=2"))) == "heads=tp,hidden=tp,time=tp");
  CHECK(rules_text(joined_rules(users, preset_rules(mesh))) ==
        "batch=fsdp+dp,time=,vocab=tp,heads=tp,hidden=tp,embed=fsdp");
  CHECK(rules_of("", mesh).empty());
}

TEST_CASE("what is no rule says why") {
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  const auto error_of = [&](std::string_view text) {
    const auto rules = parse_rules(text, mesh);
    REQUIRE(!rules.has_value());
    return rules.error().text();
  };
  CHECK(error_of("hidden") == "`hidden` is no rule; write it as hidden=tp, or batch=dp+fsdp");
  CHECK(error_of("hidden=tpp") ==
        "rule hidden: mesh dp=2,tp=2 has no axis `tpp`; did you mean tp?");
  CHECK(error_of("hidden=tp+tp") == "rule hidden: axis tp is named twice");
  CHECK(error_of("hidden=tp,hidden=dp") == "there are two rules for hidden; keep one");
}

TEST_CASE("a rule for a dimension that no tensor has is a slip") {
  const Graph graph = graph_of("graph g(%x: f32[batch=2, hidden=4]) { return %x as \"y\" }");
  const ShardMesh mesh = mesh_of("tp=2");
  CHECK(check_rules(rules_of("hidden=tp", mesh), graph).has_value());
  CHECK(check_rules(rules_of("hiden=tp", mesh), graph).error().text() ==
        "rule hiden=tp: no tensor has a dimension hiden; did you mean hidden?");
  CHECK(check_rules(rules_of("vocab=tp", mesh), graph).error().text() ==
        "rule vocab=tp: no tensor has a dimension vocab; there are batch, hidden");
}
