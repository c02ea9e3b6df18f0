#include "compile/shard/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/suggest.h"

namespace tutti {
namespace {

std::vector<std::string_view> words(std::string_view text, char between) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(between, at), text.size());
    all.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

Result<void> check_axis(std::string_view axis, const ShardRule& rule, const ShardMesh& mesh) {
  if (std::ranges::find(rule.axes, axis) != rule.axes.end())
    return fail(Code::invalid, "rule {}: axis {} is named twice", rule.dim, axis);
  if (mesh.find(axis) != nullptr) return {};
  std::vector<std::string_view> known;
  for (const ShardAxis& each : mesh.axes()) known.push_back(each.name);
  const auto meant = suggest(axis, known);
  return fail(Code::invalid, "rule {}: mesh {} has no axis `{}`{}", rule.dim, mesh.text(), axis,
              meant ? fmt::format("; did you mean {}?", *meant) : "");
}

void collect_dims(const Graph& graph, std::set<std::string>& names) {
  for (const Type& type : graph.types)
    for (const Dim& dim : type.dims) names.insert(dim.name);
  for (const Node& op : graph.ops)
    if (op.body != nullptr) collect_dims(*op.body, names);
}

}  // namespace

Result<ShardRules> parse_rules(std::string_view text, const ShardMesh& mesh) {
  ShardRules rules;
  if (text.empty()) return rules;
  for (const std::string_view word : words(text, ',')) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return fail(Code::invalid, "`{}` is no rule; write it as hidden=tp, or batch=dp+fsdp", word);
    ShardRule rule{.dim = std::string(word.substr(0, equals)), .axes = {}};
    if (std::ranges::find(rules, rule.dim, &ShardRule::dim) != rules.end())
      return fail(Code::invalid, "there are two rules for {}; keep one", rule.dim);
    if (equals + 1 < word.size()) {
      for (const std::string_view axis : words(word.substr(equals + 1), '+')) {
        TRY_DO(check_axis(axis, rule, mesh));
        rule.axes.emplace_back(axis);
      }
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::string rules_text(const ShardRules& rules) {
  std::string text;
  for (const ShardRule& rule : rules)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", rule.dim, fmt::join(rule.axes, "+"));
  return text;
}

Result<void> check_rules(const ShardRules& rules, const Graph& graph) {
  std::set<std::string> names;
  collect_dims(graph, names);
  for (const ShardRule& rule : rules) {
    if (names.contains(rule.dim)) continue;
    const std::vector<std::string_view> known(names.begin(), names.end());
    const auto meant = suggest(rule.dim, known);
    return fail(Code::invalid, "rule {}={}: no tensor has a dimension {}; {}", rule.dim,
                fmt::join(rule.axes, "+"), rule.dim,
                meant ? fmt::format("did you mean {}?", *meant)
                      : fmt::format("there are {}", fmt::join(known, ", ")));
  }
  return {};
}

ShardRules preset_rules(const ShardMesh& mesh) {
  const ShardRules known = {{"batch", {"dp", "fsdp"}},
                            {"heads", {"tp"}},
                            {"hidden", {"tp"}},
                            {"time", {"tp"}},
                            {"embed", {"fsdp"}}};
  ShardRules rules;
  for (ShardRule rule : known) {
    std::erase_if(rule.axes, [&](const std::string& axis) { return mesh.find(axis) == nullptr; });
    if (!rule.axes.empty()) rules.push_back(std::move(rule));
  }
  return rules;
}

ShardRules joined_rules(ShardRules users, const ShardRules& presets) {
  for (const ShardRule& rule : presets)
    if (std::ranges::find(users, rule.dim, &ShardRule::dim) == users.end()) users.push_back(rule);
  return users;
}

}  // namespace tutti
