#include "shard.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "base/units.h"
#include "compile/shard/shard.h"
#include "raise.h"

namespace nb = nanobind;

using tutti::Code;
using tutti::Error;
using tutti::Graph;
using tutti::ShardMesh;

namespace {

class PythonSharded {
 public:
  PythonSharded(const Graph& graph, const std::string& mesh, const std::string& rules,
                const std::optional<std::string>& limit)
      : whole_(graph), mesh_(value_or_raise(ShardMesh::parse(mesh))) {
    tutti::ShardRules users = value_or_raise(tutti::parse_rules(rules, mesh_));
    if (const auto checked = tutti::check_rules(users, graph); !checked) raise(checked.error());
    rules_ = tutti::joined_rules(std::move(users), tutti::preset_rules(mesh_));
    tutti::ShardOptions options;
    if (limit)
      options.reshard_limit = static_cast<int64_t>(value_or_raise(tutti::parse_bytes(*limit)));
    sharded_ = value_or_raise(tutti::shard(graph, mesh_, rules_, options));
  }

  // That of all ranks, or of one.
  Graph graph(std::optional<int64_t> rank) const {
    if (!rank) return sharded_.graph;
    if (*rank < 0 || *rank >= mesh_.ranks())
      raise(Error(Code::invalid, "rank " + std::to_string(*rank) + " is none of mesh " +
                                     mesh_.text() + "; use 0 to " +
                                     std::to_string(mesh_.ranks() - 1)));
    return tutti::local_graph(sharded_.graph, mesh_, *rank);
  }

  std::string text(std::optional<int64_t> rank) const {
    std::string heading = "# mesh " + mesh_.text() + " by " + tutti::rules_text(rules_);
    if (rank) heading += ", rank " + std::to_string(*rank);
    return heading + "\n" + tutti::layouts_text(whole_, sharded_) + graph(rank).text();
  }

 private:
  Graph whole_;
  ShardMesh mesh_;
  tutti::ShardRules rules_;
  tutti::ShardedGraph sharded_;
};

}  // namespace

void bind_shard(nb::module_& module) {
  nb::class_<PythonSharded>(module, "Sharded")
      .def(nb::init<const Graph&, const std::string&, const std::string&,
                    const std::optional<std::string>&>(),
           nb::arg("graph"), nb::arg("mesh"), nb::arg("rules") = "", nb::arg("limit") = nb::none())
      .def("graph", &PythonSharded::graph, nb::arg("rank") = nb::none())
      .def("text", &PythonSharded::text, nb::arg("rank") = nb::none());
}
