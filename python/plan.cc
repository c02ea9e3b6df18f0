// Meshes, layouts and plans for Python: values, made and read. tutti/layout.py is what people see.
#include "plan.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "raise.h"

namespace nb = nanobind;

namespace {

using tutti::Code;
using tutti::Layout;
using tutti::Mesh;
using tutti::SliceCopy;

using Range = std::pair<uint64_t, uint64_t>;
// Dimension, axes, chunk, bounds.
using Shard = std::tuple<uint32_t, std::vector<std::string>, uint64_t, std::vector<uint64_t>>;
// Name, from, to, types.
using NamedMove = std::tuple<std::string, Layout*, Layout*, std::vector<std::string>>;

Mesh make_mesh(const std::vector<std::pair<std::string, uint32_t>>& axes,
               std::optional<std::vector<uint32_t>> ranks) {
  std::vector<tutti::MeshAxis> all;
  for (const auto& [name, size] : axes) all.push_back({name, size});
  return value_or_raise(ranks ? Mesh::make(std::move(all), *std::move(ranks))
                              : Mesh::make(std::move(all)));
}

Layout make_layout(std::vector<uint64_t> shape, const Mesh& mesh, const std::vector<Shard>& shards,
                   std::vector<std::string> partial, const std::string& op) {
  tutti::LayoutOptions options{.shape = std::move(shape), .partial = std::move(partial)};
  for (const auto& [dimension, axes, chunk, bounds] : shards)
    options.shards.push_back({dimension, axes, chunk, bounds});
  const auto known = tutti::reduce_op_named(op);
  if (!known) raise({Code::invalid, "op is 'sum', 'mean', 'max' or 'min', not '" + op + "'"});
  options.op = *known;
  return value_or_raise(Layout::make(mesh, std::move(options)));
}

std::vector<Range> ranges_of(const tutti::Box& box) {
  std::vector<Range> ranges;
  for (uint32_t d = 0; d < box.dimensions; ++d)
    ranges.emplace_back(box.begin[d], box.begin[d] + box.extent[d]);
  return ranges;
}

std::optional<std::vector<Range>> box_of(const Layout& layout, uint32_t rank) {
  const auto place = layout.mesh().place_of(rank);
  if (!place) return std::nullopt;
  return ranges_of(layout.box(*place));
}

PythonPlan make_plan(const std::vector<NamedMove>& moves, std::vector<uint32_t> hosts) {
  static std::mutex mutex;
  static tutti::PlanCache cache;
  std::vector<tutti::Move> all;
  for (const auto& [name, from, to, types] : moves) {
    tutti::Move move{name, *from, *to, {}};
    for (const std::string& type : types) {
      const auto known = tutti::dtype_named(type);
      if (!known)
        raise({Code::invalid, "'" + type +
                                  "' is no type of the fabric; use f32, f64, bf16, f16, i8 " +
                                  "to i64, u8 to u64, or bool"});
      if (!tutti::is_reduced(*known) && from->lanes() > 1)
        raise({Code::invalid, "truth values are moved, not summed, and " + name +
                                  " is partial in its source; use u8"});
      move.types.push_back(*known);
    }
    all.push_back(std::move(move));
  }
  const std::scoped_lock lock(mutex);
  return {value_or_raise(cache.plan(std::move(all), std::move(hosts)))};
}

// Name, ranks that send, rank that receives, slice.
using Listed = std::tuple<std::string, std::vector<uint32_t>, uint32_t, std::vector<Range>>;

std::vector<Listed> copies_of(const PythonPlan& self, uint32_t rank, bool sent) {
  std::vector<Listed> all;
  const auto add = [&](const SliceCopy& copy) {
    all.emplace_back(self.plan->moves()[copy.move].name,
                     std::vector<uint32_t>(copy.from.begin(), copy.from.end()), copy.to,
                     ranges_of(copy.slice));
  };
  sent ? self.plan->visit_sent(rank, add) : self.plan->visit_received(rank, add);
  return all;
}

}  // namespace

void bind_plan(nb::module_& module) {
  nb::class_<Mesh>(module, "Mesh")
      .def_static("make", make_mesh, nb::arg("axes"), nb::arg("ranks").none())
      .def_prop_ro("ranks",
                   [](const Mesh& self) {
                     return std::vector<uint32_t>(self.ranks().begin(), self.ranks().end());
                   })
      .def("equals", [](const Mesh& self, const Mesh& other) { return self == other; })
      .def("hash", [](const Mesh& self) { return self.hash().low; })
      .def("text", &Mesh::text);
  nb::class_<Layout>(module, "Layout")
      .def_static("make", make_layout, nb::arg("shape"), nb::arg("mesh"), nb::arg("shards"),
                  nb::arg("partial"), nb::arg("op"))
      .def("box", box_of, nb::arg("rank"))
      .def_prop_ro("lanes", &Layout::lanes)
      .def_prop_ro("replicas", &Layout::replicas)
      .def("equals", [](const Layout& self, const Layout& other) { return self == other; })
      .def("hash", [](const Layout& self) { return self.hash().low; })
      .def("text", &Layout::text);
  nb::class_<PythonPlan>(module, "Plan")
      .def_static("make", make_plan, nb::arg("moves"), nb::arg("hosts"))
      .def("copies", copies_of, nb::arg("rank"), nb::arg("sent"))
      .def("hash", [](const PythonPlan& self) { return self.plan->hash().hex(); })
      .def("totals", [](const PythonPlan& self) {
        const tutti::PlanTotals totals = self.plan->totals();
        return std::tuple(totals.copies, totals.moved_bytes, totals.kept_bytes,
                          totals.most_sent_bytes, totals.most_received_bytes);
      });
}
