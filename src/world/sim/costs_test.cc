#include "world/sim/costs.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "world/sim/fault_plan.h"
#include "world/sim/links.h"

namespace tutti {
namespace {

std::string text_of(const CostTable& table) {
  std::string text =
      fmt::format("name = \"{}\"\nmeasured_on = \"here\"\nmeasured_with = \"x\"\n", table.name);
  for (const CostTable::Entry& entry : CostTable::entries())
    text += fmt::format("{} = {}\n", entry.key, table.*entry.value);
  return text;
}

TEST_CASE("a cost table is read whole, and mistakes in it are told") {
  const std::string text = text_of(CostTable());
  auto table = CostTable::parse(text, "costs.toml");
  REQUIRE(table);
  CHECK(table->spawn_ns == CostTable().spawn_ns);
  CHECK_FALSE(CostTable::parse(text + "spwan_ns = 3\n", "costs.toml"));
  CHECK_FALSE(CostTable::parse("name = \"x\"\n", "costs.toml"));
}

TEST_CASE("the built-in table is the one in sims/costs") {
  std::ifstream file("sims/costs/loopback.toml");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto table = CostTable::parse(text, "loopback.toml");
  REQUIRE_MESSAGE(table, (table ? "" : table.error().text()));
  const CostTable built_in;
  CHECK(table->name == built_in.name);
  CHECK(table->measured_on == built_in.measured_on);
  CHECK(table->measured_with == built_in.measured_with);
  for (const CostTable::Entry& entry : CostTable::entries())
    CHECK_MESSAGE((*table).*entry.value == built_in.*entry.value, entry.key);
}

TEST_CASE("an entry is scaled alone, and the table's name says so") {
  auto table = CostTable().scaled("send_ns", 2);
  REQUIRE(table);
  CHECK(table->send_ns == 2 * CostTable().send_ns);
  CHECK(table->receive_ns == CostTable().receive_ns);
  CHECK(table->name == "loopback, send_ns x2");
  CHECK_FALSE(CostTable().scaled("sending", 2));
}

TEST_CASE("a fault plan is a profile or a file") {
  CHECK(FaultPlan::named("none")->rates[0].every == 0s);
  CHECK((*FaultPlan::named("heavy"))[FaultKind::crash].every <
        (*FaultPlan::named("light"))[FaultKind::crash].every);
  CHECK_FALSE(FaultPlan::named("worst"));
  auto plan = FaultPlan::parse("crash = { every = \"5s\", lasts = \"1s\" }\n", "my.toml");
  REQUIRE(plan);
  CHECK((*plan)[FaultKind::crash].every == 5s);
  CHECK_FALSE(FaultPlan::parse("crsh = { every = \"5s\", lasts = \"1s\" }\n", "my.toml"));
  CHECK_FALSE(FaultPlan::parse("crash = { every = \"0s\", lasts = \"1s\" }\n", "my.toml"));
}

TEST_CASE("a set of hosts holds exactly its members") {
  const HostSet set = HostSet::of({7, 3, 4, 4, 9});
  for (uint32_t host = 0; host < 12; ++host)
    CHECK(set.contains(host) == (host == 3 || host == 4 || host == 7 || host == 9));
  CHECK_FALSE(HostSet::of({}).contains(0));
}

}  // namespace
}  // namespace tutti
