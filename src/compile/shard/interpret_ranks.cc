#include "compile/shard/interpret_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "compile/collective.h"

namespace tutti {
namespace {

using Arrays = std::vector<Array>;

// Whether ranks have to know of each other to run it.
bool meets(const Node& op) {
  if (is_collective(op)) return true;
  return op.kind == OpKind::repeat && std::ranges::any_of(op.body->ops, meets);
}

std::string op_text(const Node& op) {
  return fmt::format("{}{}{}", op_info(op.kind).name, op.at.empty() ? "" : " of ", op.at);
}

// One operation that a rank can do alone.
Result<Arrays> run_alone(const Node& op, const Arrays& operands, const std::vector<Type>& results,
                         Precision precision) {
  Graph graph;
  Node alone{.kind = op.kind, .attributes = op.attributes, .body = op.body, .at = op.at};
  for (const Array& operand : operands)
    alone.operands.push_back(graph.add_input(std::to_string(graph.inputs.size()), operand.type));
  for (const Type& type : results) {
    alone.results.push_back(graph.add_value(type));
    graph.add_output(std::to_string(graph.outputs.size()), alone.results.back());
  }
  graph.ops.push_back(std::move(alone));
  return interpret(graph, operands, precision);
}

Result<Array> part_of(const Array& whole, const std::string& dim, int64_t index, int64_t parts) {
  Type type = whole.type;
  int64_t& size = type.dims[*type.find(dim)].size;
  size /= parts;
  const Node slice{.kind = OpKind::slice,
                   .attributes = {{"dim", dim}, {"start", index * size}, {"size", size}}};
  TRY(Arrays made, run_alone(slice, {whole}, {type}, Precision::wide));
  return std::move(made.front());
}

Result<Array> joined(const Arrays& parts, const std::string& dim) {
  Type type = parts.front().type;
  type.dims[*type.find(dim)].size *= std::ssize(parts);
  const Node concat{.kind = OpKind::concat, .attributes = {{"dim", dim}}};
  TRY(Arrays made, run_alone(concat, parts, {type}, Precision::wide));
  return std::move(made.front());
}

// In the order of the ranks, each sum rounded as a machine would.
Array reduced(const Arrays& parts, bool to_max, Precision precision) {
  Array total = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    for (size_t j = 0; j < total.values.size(); ++j) {
      double& value = total.values[j];
      value = to_max ? std::max(value, parts[i].values[j]) : value + parts[i].values[j];
      if (precision == Precision::typed) value = rounded(value, total.type.dtype);
    }
  }
  return total;
}

// What the rank at place `own` of a group has after it met the others with these operands.
Result<Array> after_meeting(const Node& op, const Arrays& parts, int64_t own, Precision precision) {
  const auto name = [&](std::string_view key) { return op.attributes.get<std::string>(key); };
  const int64_t ranks = std::ssize(parts);
  switch (op.kind) {
    case OpKind::all_reduce: return reduced(parts, reduces_to_max(op), precision);
    case OpKind::all_gather: return joined(parts, name("dim"));
    case OpKind::reduce_scatter:
      return part_of(reduced(parts, false, precision), name("dim"), own, ranks);
    case OpKind::all_to_all: {
      Arrays mine;
      for (const Array& part : parts) {
        TRY(Array its, part_of(part, name("to"), own, ranks));
        mine.push_back(std::move(its));
      }
      return joined(mine, name("from"));
    }
    default: return part_of(parts[static_cast<size_t>(own)], name("dim"), own, ranks);
  }
}

class Gang {
 public:
  Gang(const ShardMesh& mesh, Precision precision) : mesh_(mesh), precision_(precision) {}

  Result<std::vector<Arrays>> run(const std::vector<const Graph*>& graphs,
                                  std::vector<Arrays> inputs) const {
    std::vector<Rank> ranks;
    for (size_t r = 0; r < graphs.size(); ++r) {
      ranks.push_back({.graph = graphs[r], .values = Arrays(graphs[r]->types.size())});
      if (inputs[r].size() != graphs[r]->inputs.size())
        return fail(Code::invalid, "rank {} is given {} inputs, not {}", r, inputs[r].size(),
                    graphs[r]->inputs.size());
      for (size_t i = 0; i < inputs[r].size(); ++i) {
        const Input& input = graphs[r]->inputs[i];
        if (inputs[r][i].type != graphs[r]->type(input.value))
          return fail(Code::invalid, "input {} of rank {} is {}, not {}", input.name, r,
                      graphs[r]->type(input.value).text(), inputs[r][i].type.text());
        ranks[r].values[input.value] = std::move(inputs[r][i]);
      }
    }
    while (true) {
      for (size_t r = 0; r < ranks.size(); ++r) {
        auto advanced = advance(ranks[r]);
        if (!advanced) return fail(advanced.error().context(fmt::format("rank {}", r)));
      }
      TRY_DO(check_meeting(ranks));
      if (ranks.front().at == ranks.front().graph->ops.size()) break;
      TRY_DO(meet(ranks));
    }
    std::vector<Arrays> outputs(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const Output& output : graphs[r]->outputs)
        outputs[r].push_back(ranks[r].values[output.value]);
    return outputs;
  }

 private:
  struct Rank {
    const Graph* graph;
    Arrays values;
    size_t at = 0;  // the operation that is next

    const Node& op() const { return graph->ops[at]; }
    Arrays operands() const {
      Arrays all;
      for (const ValueId operand : op().operands) all.push_back(values[operand]);
      return all;
    }
    void keep(Arrays results) {
      for (size_t i = 0; i < results.size(); ++i) values[op().results[i]] = std::move(results[i]);
      ++at;
    }
  };

  // Until it comes to where it needs others.
  Result<void> advance(Rank& rank) const {
    while (rank.at < rank.graph->ops.size() && !meets(rank.op())) {
      std::vector<Type> types;
      for (const ValueId result : rank.op().results) types.push_back(rank.graph->type(result));
      TRY(Arrays results, run_alone(rank.op(), rank.operands(), types, precision_));
      rank.keep(std::move(results));
    }
    return {};
  }

  static Result<void> check_meeting(const std::vector<Rank>& ranks) {
    const auto where = [](const Rank& rank) {
      return rank.at == rank.graph->ops.size()
                 ? std::string("its end")
                 : op_text(rank.op()) + " " + rank.op().attributes.text();
    };
    for (size_t r = 1; r < ranks.size(); ++r)
      if (where(ranks[r]) != where(ranks[0]))
        return fail(Code::invalid, "rank {} comes to {}, rank 0 to {}", r, where(ranks[r]),
                    where(ranks[0]));
    return {};
  }

  Result<void> meet(std::vector<Rank>& ranks) const {
    const Node op = ranks.front().op();
    if (op.kind == OpKind::repeat) return repeat(ranks);
    const std::string axis = collective_axis(op);
    if (mesh_.find(axis) == nullptr || mesh_.size_of(axis) != collective_ranks(op))
      return fail(Code::invalid, "{}: mesh {} has no axis {} of {} ranks", op_text(op),
                  mesh_.text(), axis, collective_ranks(op));
    std::vector<Array> met;
    for (size_t r = 0; r < ranks.size(); ++r) {
      Arrays parts;
      for (const int64_t member : mesh_.group(static_cast<int64_t>(r), axis))
        parts.push_back(ranks[static_cast<size_t>(member)].operands().front());
      TRY(Array made,
          after_meeting(op, parts, mesh_.coordinate(static_cast<int64_t>(r), axis), precision_));
      met.push_back(std::move(made));
    }
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r].keep({std::move(met[r])});
    return {};
  }

  Result<void> repeat(std::vector<Rank>& ranks) const {
    const RepeatShape shape = repeat_shape(ranks.front().op());
    std::vector<const Graph*> bodies;
    std::vector<Arrays> operands;
    std::vector<Arrays> results(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Node& op = ranks[r].op();
      bodies.push_back(op.body.get());
      operands.push_back(ranks[r].operands());
      for (const ValueId result : op.results) {
        const Type& type = ranks[r].graph->type(result);
        results[r].push_back({type, std::vector<double>(static_cast<size_t>(type.elements()))});
      }
    }
    for (size_t round = 0; round < shape.count; ++round) {
      const size_t part = shape.reversed ? shape.count - 1 - round : round;
      std::vector<Arrays> inputs(ranks.size());
      for (size_t r = 0; r < ranks.size(); ++r)
        inputs[r] = round_inputs(*bodies[r], operands[r], shape, part);
      TRY(auto outputs, run(bodies, std::move(inputs)));
      for (size_t r = 0; r < ranks.size(); ++r) {
        for (size_t i = 0; i < outputs[r].size(); ++i) {
          const std::vector<double>& made = outputs[r][i].values;
          const auto start = i < shape.carried ? 0 : made.size() * part;
          std::ranges::copy(made, results[r][i].values.begin() + static_cast<ptrdiff_t>(start));
          if (i < shape.carried) operands[r][i] = std::move(outputs[r][i]);
        }
      }
    }
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r].keep(std::move(results[r]));
    return {};
  }

  static Arrays round_inputs(const Graph& body, const Arrays& operands, const RepeatShape& shape,
                             size_t part) {
    Arrays inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool cut = i >= shape.carried && i < shape.carried + shape.sliced;
      const Type& type = body.type(body.inputs[i].value);
      const auto begin =
          operands[i].values.begin() + (cut ? type.elements() * static_cast<int64_t>(part) : 0);
      inputs.push_back({type, std::vector<double>(begin, begin + type.elements())});
    }
    return inputs;
  }

  const ShardMesh& mesh_;
  Precision precision_;
};

}  // namespace

Result<std::vector<std::vector<Array>>> interpret_ranks(std::span<const Graph* const> graphs,
                                                        const ShardMesh& mesh,
                                                        std::vector<std::vector<Array>> inputs,
                                                        Precision precision) {
  if (std::ssize(graphs) != mesh.ranks() || graphs.size() != inputs.size())
    return fail(Code::invalid, "mesh {} has {} ranks; there are {} graphs and inputs for {}",
                mesh.text(), mesh.ranks(), graphs.size(), inputs.size());
  return Gang(mesh, precision).run({graphs.begin(), graphs.end()}, std::move(inputs));
}

Result<std::vector<std::vector<Array>>> interpret_ranks(const Graph& graph, const ShardMesh& mesh,
                                                        std::vector<std::vector<Array>> inputs,
                                                        Precision precision) {
  const std::vector<const Graph*> graphs(static_cast<size_t>(mesh.ranks()), &graph);
  return interpret_ranks(graphs, mesh, std::move(inputs), precision);
}

}  // namespace tutti
