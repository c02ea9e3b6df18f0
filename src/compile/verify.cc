#include "compile/verify.h"

#include <fmt/format.h>

#include <set>

#include "compile/infer.h"

namespace tutti {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), made_(graph.types.size()) {}

  Result<void> run() {
    std::set<std::string_view> names;
    for (const Input& input : graph_.inputs) {
      TRY_DO(make(input.value));
      TRY_DO(check_type(graph_.type(input.value)));
      if (!names.insert(input.name).second)
        return fail(Code::internal, "two inputs are named {}", input.name);
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Node& op = graph_.ops[i];
      auto checked = check(op);
      if (!checked)
        return fail(checked.error().context(fmt::format(
            "operation {}, {}{}{}", i, op_info(op.kind).name, op.at.empty() ? "" : " of ", op.at)));
    }
    names.clear();
    for (const Output& output : graph_.outputs) {
      TRY_DO(use(output.value));
      if (!names.insert(output.name).second)
        return fail(Code::internal, "two outputs are named {}", output.name);
    }
    return check_states();
  }

 private:
  Result<void> make(ValueId value) {
    if (value >= made_.size()) return fail(Code::internal, "value {} has no type", value);
    if (made_[value]) return fail(Code::internal, "value {} is made twice", value);
    made_[value] = true;
    return {};
  }
  Result<void> use(ValueId value) const {
    if (value >= made_.size() || !made_[value])
      return fail(Code::internal, "value {} is used before it is made", value);
    return {};
  }

  Result<void> check(const Node& op) {
    std::vector<Type> operands;
    for (const ValueId operand : op.operands) {
      TRY_DO(use(operand));
      operands.push_back(graph_.type(operand));
    }
    if (op.body != nullptr) TRY_DO(verify(*op.body));
    for (const ValueId result : op.results) TRY_DO(make(result));
    const Type* given = op.results.empty() ? nullptr : &graph_.type(op.results.front());
    TRY(const auto types, infer(op.kind, operands, op.attributes, op.body.get(), given));
    if (types.size() != op.results.size())
      return fail(Code::internal, "it has {} results, not {}", types.size(), op.results.size());
    for (size_t i = 0; i < types.size(); ++i)
      if (types[i] != graph_.type(op.results[i]))
        return fail(Code::internal, "result {} is {}, not {}", i, types[i].text(),
                    graph_.type(op.results[i]).text());
    return {};
  }

  Result<void> check_states() const {
    for (const Input& input : graph_.inputs) {
      const Output* next = input.role == InputRole::state ? graph_.output(input.name) : nullptr;
      if (next != nullptr && graph_.type(next->value) != graph_.type(input.value))
        return fail(Code::internal, "state {} is {} and becomes {}", input.name,
                    graph_.type(input.value).text(), graph_.type(next->value).text());
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> made_;
};

}  // namespace

Result<void> verify(const Graph& graph) {
  auto checked = Verifier(graph).run();
  if (!checked) return fail(checked.error().context(fmt::format("graph {}", graph.name)));
  return {};
}

}  // namespace tutti
