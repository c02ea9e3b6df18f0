// Models for Python: ModelBuilder, its tensors, and what comes of them. python/tutti/nn is what
// people see. Every operation raises at once when it is wrong, with the line that asked for it.
#include "model.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "base/suggest.h"
#include "base/units.h"
#include "compile/autodiff.h"
#include "compile/model.h"
#include "compile/parse.h"
#include "compile/passes/passes.h"
#include "compile/program/fit.h"
#include "compile/verify.h"
#include "raise.h"

namespace nb = nanobind;

using tutti::Code;
using tutti::Error;
using tutti::Graph;
using tutti::Model;
using tutti::ModelBuilder;
using tutti::OpKind;
using tutti::Parameter;

tutti::Dims dims_of(const PythonDims& dims) {
  tutti::Dims all;
  for (const auto& [name, size] : dims) all.push_back({name, size});
  return all;
}

PythonDims python_dims(const tutti::Dims& dims) {
  PythonDims all;
  for (const tutti::Dim& dim : dims) all.emplace_back(dim.name, dim.size);
  return all;
}

tutti::DType dtype_of(const std::string& name) {
  const auto known = tutti::dtype_named(name);
  if (!known || !tutti::is_in_graphs(*known))
    raise(Error(Code::invalid, "'" + name + "' is no kind of number; use f32, bf16, f16, i32, " +
                                   "i64, u32, u8 or bool"));
  return *known;
}

namespace {

// A tensor and the model that it is of, which lives as long.
struct ModelTensor {
  std::shared_ptr<ModelBuilder> model;
  tutti::Tensor tensor;
};

using Tensors = std::vector<ModelTensor>;

class PythonBuilder {
 public:
  PythonBuilder(std::string name, const std::string& use, int64_t seed) {
    model_ = std::make_shared<ModelBuilder>(std::move(name), value_or_raise(tutti::use_named(use)),
                                            seed);
  }

  ModelBuilder& model() { return *model_; }
  tutti::Builder& ops() { return model_->ops(); }
  void check() {
    if (model_->error()) raise(*model_->error());
  }
  ModelTensor made(const tutti::Tensor& tensor) {
    check();
    return {model_, tensor};
  }
  // A tensor of another trace would be told of as of another graph; here it may not even live.
  const tutti::Tensor& use(const ModelTensor& tensor) {
    if (tensor.model != model_)
      raise(Error(Code::invalid, tensor.tensor.type().text() +
                                     " is of another trace; what a model keeps from one trace " +
                                     "cannot be used in the next"));
    return tensor.tensor;
  }
  std::vector<tutti::Tensor> use(const Tensors& tensors) {
    std::vector<tutti::Tensor> all;
    for (const ModelTensor& each : tensors) all.push_back(use(each));
    return all;
  }

 private:
  std::shared_ptr<ModelBuilder> model_;
};

OpKind op_of(const std::string& name) {
  const auto kind = tutti::op_named(name);
  if (!kind) raise(Error(Code::invalid, "there is no operation '" + name + "'"));
  return *kind;
}

tutti::Init init_of(const std::string& kind, double scale) {
  using tutti::InitKind;
  for (const auto each : {InitKind::zeros, InitKind::ones, InitKind::normal, InitKind::uniform})
    if (tutti::init_name(each) == kind) return {each, scale};
  raise(Error(Code::invalid, "there is no initial value '" + kind + "'"));
}

using B = PythonBuilder;
using T = const ModelTensor&;
using Str = const std::string&;

void bind_structure(nb::class_<B>& builder) {
  builder.def(nb::init<std::string, const std::string&, int64_t>(), nb::arg("name"), nb::arg("use"),
              nb::arg("seed"));
  builder.def("keep_cache", [](B& b, int64_t sequences, int64_t places) {
    b.model().keep_cache({sequences, places});
    b.check();
  });
  builder.def("at", [](B& b, Str where) { b.model().at(where); });
  builder.def("input", [](B& b, Str name, Str dtype, const PythonDims& dims) {
    return b.made(b.model().input(name, {dtype_of(dtype), dims_of(dims)}));
  });
  builder.def("output", [](B& b, Str name, T x) {
    b.model().output(name, b.use(x));
    b.check();
  });
  builder.def(
      "declare", [](B& b, Str name, const PythonDims& dims, Str init, double scale, bool decay) {
        b.model().declare({name, {tutti::DType::f32, dims_of(dims)}, init_of(init, scale), decay});
        b.check();
      });
  builder.def("weight", [](B& b, Str name) { return b.made(b.model().weight(name)); });
  builder.def("open_layers", [](B& b, int64_t count, Str name, T x) {
    return b.made(b.model().open_layers(count, name, b.use(x)));
  });
  builder.def("close_layers", [](B& b, T y) { return b.made(b.model().close_layers(b.use(y))); });
  builder.def("build", [](B& b) { return value_or_raise(b.model().build()); });
}

void bind_elementwise(nb::class_<B>& builder) {
  builder.def("constant", [](B& b, double value, Str dtype) {
    return b.made(b.ops().constant(value, {dtype_of(dtype), {}}));
  });
  builder.def("iota", [](B& b, Str dim, int64_t size, Str dtype) {
    return b.made(b.ops().iota(dim, {dtype_of(dtype), {{dim, size}}}));
  });
  builder.def("unary",
              [](B& b, Str op, T x) { return b.made(b.ops().unary(op_of(op), b.use(x))); });
  builder.def("binary", [](B& b, Str op, T x, T y) {
    return b.made(b.ops().binary(op_of(op), b.use(x), b.use(y)));
  });
  builder.def("select", [](B& b, T condition, T yes, T no) {
    return b.made(b.ops().select(b.use(condition), b.use(yes), b.use(no)));
  });
  builder.def("cast",
              [](B& b, T x, Str dtype) { return b.made(b.ops().cast(b.use(x), dtype_of(dtype))); });
  builder.def("gelu", [](B& b, T x, bool tanh) { return b.made(b.ops().gelu(b.use(x), tanh)); });
  builder.def("dropout", [](B& b, T x, double rate, Str name) {
    return b.made(b.model().dropout(b.use(x), rate, name));
  });
}

void bind_shapes(nb::class_<B>& builder) {
  builder.def("reshape", [](B& b, T x, const PythonDims& dims) {
    return b.made(b.ops().reshape(b.use(x), dims_of(dims)));
  });
  builder.def("rename", [](B& b, T x, Str from, Str to) {
    return b.made(b.ops().rename(b.use(x), from, to));
  });
  builder.def("transpose", [](B& b, T x, const tutti::Names& order) {
    return b.made(b.ops().transpose(b.use(x), order));
  });
  builder.def("broadcast", [](B& b, T x, const PythonDims& dims) {
    return b.made(b.ops().broadcast(b.use(x), dims_of(dims)));
  });
  builder.def("slice", [](B& b, T x, Str dim, int64_t start, int64_t size) {
    return b.made(b.ops().slice(b.use(x), dim, start, size));
  });
  builder.def("pad", [](B& b, T x, Str dim, int64_t low, int64_t high) {
    return b.made(b.ops().pad(b.use(x), dim, low, high));
  });
  builder.def("concat", [](B& b, const Tensors& parts, Str dim) {
    return b.made(b.ops().concat(b.use(parts), dim));
  });
}

void bind_large(nb::class_<B>& builder) {
  builder.def("sum", [](B& b, T x, const tutti::Names& dims) {
    return b.made(b.ops().sum(b.use(x), dims));
  });
  builder.def("mean", [](B& b, T x, const tutti::Names& dims) {
    return b.made(b.ops().mean(b.use(x), dims));
  });
  builder.def("max", [](B& b, T x, const tutti::Names& dims) {
    return b.made(b.ops().max(b.use(x), dims));
  });
  builder.def("argmax", [](B& b, T x, Str dim) { return b.made(b.ops().argmax(b.use(x), dim)); });
  builder.def("cumulative_sum",
              [](B& b, T x, Str dim) { return b.made(b.ops().cumulative_sum(b.use(x), dim)); });
  builder.def("gather", [](B& b, T table, T indices, Str dim) {
    return b.made(b.ops().gather(b.use(table), b.use(indices), dim));
  });
  builder.def("scatter_add", [](B& b, T indices, T updates, Str dim, int64_t size) {
    return b.made(b.ops().scatter_add(b.use(indices), b.use(updates), dim, size));
  });
  builder.def("matmul", [](B& b, T x, T y, const tutti::Names& over) {
    return b.made(b.ops().matmul(b.use(x), b.use(y), over));
  });
  builder.def("softmax", [](B& b, T x, Str dim) { return b.made(b.ops().softmax(b.use(x), dim)); });
  builder.def("layer_norm", [](B& b, T x, T scale, T shift, Str dim, double epsilon) {
    return b.made(b.ops().layer_norm(b.use(x), b.use(scale), b.use(shift), dim, epsilon));
  });
  builder.def("rms_norm", [](B& b, T x, T scale, Str dim, double epsilon) {
    return b.made(b.ops().rms_norm(b.use(x), b.use(scale), dim, epsilon));
  });
  builder.def("positions",
              [](B& b, Str dim, int64_t size) { return b.made(b.model().positions(dim, size)); });
  builder.def("attention",
              [](B& b, T q, T k, T v, bool causal, double scale, Str query, Str key, Str head) {
                return b.made(b.model().attention(
                    b.use(q), b.use(k), b.use(v),
                    {.causal = causal, .scale = scale, .query = query, .key = key, .head = head}));
              });
  builder.def("linear_cross_entropy", [](B& b, T x, T weight, T targets, Str over, Str vocab) {
    return b.made(
        b.ops().linear_cross_entropy(b.use(x), b.use(weight), b.use(targets), over, vocab));
  });
}

// (name, kind of number, dimensions, whether it is kept from call to call)
using InputTuple = std::tuple<std::string, std::string, PythonDims, bool>;

std::vector<InputTuple> inputs_of(const Graph& graph) {
  std::vector<InputTuple> all;
  for (const tutti::Input& input : graph.inputs) {
    const tutti::Type& type = graph.type(input.value);
    all.emplace_back(input.name, std::string(tutti::dtype_name(type.dtype)), python_dims(type.dims),
                     input.role == tutti::InputRole::state);
  }
  return all;
}

Graph optimized(const Graph& graph, const std::string& until) {
  std::vector<std::string_view> names;
  for (const tutti::Pass& pass : tutti::passes()) names.push_back(pass.name);
  if (!until.empty() && std::ranges::find(names, until) == names.end()) {
    const auto near = tutti::suggest(until, names);
    raise(Error(Code::invalid, "there is no pass '" + until + "'" +
                                   (near ? "; did you mean '" + std::string(*near) + "'?" : "")));
  }
  return tutti::optimize(graph, until);
}

std::optional<std::string> suggestion(const std::string& word,
                                      const std::vector<std::string>& candidates) {
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  const auto near = tutti::suggest(word, views);
  return near ? std::optional<std::string>(*near) : std::nullopt;
}

}  // namespace

void bind_model(nb::module_& module) {
  module.def("suggest", suggestion, nb::arg("word"), nb::arg("candidates"));
  nb::class_<ModelTensor>(module, "Tensor")
      .def_prop_ro("dtype",
                   [](T x) { return std::string(tutti::dtype_name(x.tensor.type().dtype)); })
      .def_prop_ro("dims", [](T x) { return python_dims(x.tensor.type().dims); })
      .def("text", [](T x) { return x.tensor.type().text(); });
  nb::class_<B> builder(module, "ModelBuilder");
  bind_structure(builder);
  bind_elementwise(builder);
  bind_shapes(builder);
  bind_large(builder);
  module.def("passes", [] {
    std::vector<std::string> names;
    for (const tutti::Pass& pass : tutti::passes()) names.emplace_back(pass.name);
    return names;
  });
  nb::class_<Graph>(module, "Graph")
      .def_static(
          "parse",
          [](Str text, Str name) {
            Graph graph = value_or_raise(tutti::parse_graph(text, name));
            if (const auto checked = tutti::verify(graph); !checked) raise(checked.error());
            return graph;
          },
          nb::arg("text"), nb::arg("name") = "graph")
      .def("text", &Graph::text)
      .def_prop_ro("inputs", inputs_of)
      .def_prop_ro("outputs",
                   [](const Graph& graph) {
                     std::vector<std::string> names;
                     for (const tutti::Output& each : graph.outputs) names.push_back(each.name);
                     return names;
                   })
      .def("differentiate",
           [](const Graph& graph, Str loss, const tutti::Names& inputs) {
             return value_or_raise(tutti::differentiate(graph, loss, inputs));
           })
      .def("optimize", optimized, nb::arg("until") = "")
      .def(
          "rematerialise",
          [](const Graph& graph, Str scratch) {
            const uint64_t bytes = value_or_raise(tutti::parse_bytes(scratch));
            return value_or_raise(tutti::fit_program(graph, static_cast<int64_t>(bytes))).graph;
          },
          nb::arg("scratch"));
  nb::class_<Parameter>(module, "Parameter")
      .def_ro("name", &Parameter::name)
      .def_prop_ro("dims", [](const Parameter& p) { return python_dims(p.type.dims); })
      .def_prop_ro("init",
                   [](const Parameter& p) {
                     return std::pair(std::string(tutti::init_name(p.init.kind)), p.init.scale);
                   })
      .def_ro("decay", &Parameter::decay)
      .def_prop_ro("stacked", &Parameter::stacked);
  nb::class_<Model>(module, "Model")
      .def_prop_ro("graph", [](const Model& model) { return model.graph; })
      .def_prop_ro("parameters", [](const Model& model) { return model.parameters; })
      .def("parameter_count", &Model::parameter_count)
      .def("text", [](const Model& model) { return model.graph.text(); });
}
