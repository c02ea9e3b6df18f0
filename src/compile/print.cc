// The text of a graph, which parse.h reads back:
//
//   graph step(%x: f32[batch=16, embed=384], %w: f32[embed=384, hidden=1536] state) {
//     %0 = matmul(%x, %w) {over=["embed"]} : f32[batch=16, hidden=1536] @"gpt.py:41"
//     return %0 as "y"
//   }
//
// Values are numbered in the order in which they are made, so that equal graphs have equal texts.
#include <fmt/format.h>

#include "compile/graph.h"

namespace tutti {
namespace {

constexpr size_t kLineLength = 100;

class GraphPrinter {
 public:
  GraphPrinter(const Graph& graph, std::string& out, size_t depth)
      : graph_(graph), out_(out), indent_(2 * depth, ' '), depth_(depth) {}

  void print(std::string_view heading) {
    name_values();
    out_ += heading;
    out_ += '(';
    for (const Input& input : graph_.inputs) {
      if (&input != graph_.inputs.data()) out_ += ", ";
      out_ += fmt::format("{}: {}{}", names_[input.value], graph_.type(input.value).text(),
                          input.role == InputRole::state ? " state" : "");
    }
    out_ += ") {\n";
    for (const Node& op : graph_.ops) print_op(op);
    out_ += fmt::format("{}  return", indent_);
    for (const Output& output : graph_.outputs)
      out_ += fmt::format("{} {} as {}", &output == graph_.outputs.data() ? "" : ",",
                          names_[output.value], quoted(output.name));
    out_ += fmt::format("\n{}}}", indent_);
  }

 private:
  void name_values() {
    names_.resize(graph_.types.size());
    for (const Input& input : graph_.inputs) names_[input.value] = "%" + input.name;
    size_t next = 0;
    for (const Node& op : graph_.ops)
      for (const ValueId result : op.results) names_[result] = fmt::format("%{}", next++);
  }

  std::string head(const Node& op) const {
    std::string text = indent_ + "  ";
    for (const ValueId result : op.results)
      text += fmt::format("{}{}", result == op.results.front() ? "" : ", ", names_[result]);
    text += fmt::format(" = {}(", op_info(op.kind).name);
    for (size_t i = 0; i < op.operands.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ", ", names_[op.operands[i]]);
    text += ')';
    if (!op.attributes.entries().empty()) text += " " + op.attributes.text();
    return text;
  }

  void print_op(const Node& op) {
    const std::string what = head(op);
    std::string types;
    for (const ValueId result : op.results)
      types += fmt::format("{}{}", types.empty() ? ": " : ", ", graph_.type(result).text());
    if (!op.at.empty()) types += " @" + quoted(op.at);
    const bool fits = what.size() + types.size() < kLineLength;
    out_ += fmt::format("{}{}{}", what, fits ? " " : fmt::format("\n{}      ", indent_), types);
    if (op.body != nullptr) {
      out_ += fmt::format("\n{}  ", indent_);
      GraphPrinter(*op.body, out_, depth_ + 1).print("body");
    }
    out_ += '\n';
  }

  const Graph& graph_;
  std::string& out_;
  std::string indent_;
  size_t depth_;
  std::vector<std::string> names_;
};

}  // namespace

std::string Graph::text() const {
  std::string out;
  GraphPrinter(*this, out, 0).print("graph " + name);
  return out + '\n';
}

}  // namespace tutti
