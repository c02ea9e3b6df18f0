#include "compile/parse.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>

#include "base/suggest.h"

namespace tutti {
namespace {

// Bodies in bodies: parsing recurses.
constexpr int kMaxDepth = 32;

bool is_word(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '_' || letter == '.' || letter == '/' ||
         letter == '*';
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<Graph> whole() {
    TRY_DO(expect("graph"));
    TRY(std::string name, word("the name of the graph"));
    TRY(Graph graph, rest(0));
    graph.name = std::move(name);
    skip_space();
    if (at_ != text_.size()) return wrong("something follows the graph");
    return graph;
  }

 private:
  using Names_ = std::map<std::string, ValueId, std::less<>>;

  template <class... Args>
  std::unexpected<Error> wrong(fmt::format_string<Args...> format, Args&&... args) const {
    size_t line = 1;
    size_t column = 1;
    for (const char letter : text_.substr(0, at_)) {
      column = letter == '\n' ? 1 : column + 1;
      if (letter == '\n') ++line;
    }
    return fail(Code::invalid, "{}:{}:{}: {}", name_, line, column,
                fmt::format(format, std::forward<Args>(args)...));
  }

  void skip_space() {
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '#')
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else if (letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r')
        ++at_;
      else
        return;
    }
  }
  bool see(std::string_view mark) {
    skip_space();
    return text_.substr(at_).starts_with(mark);
  }
  bool take(std::string_view mark) {
    if (!see(mark)) return false;
    at_ += mark.size();
    return true;
  }
  Result<void> expect(std::string_view mark) {
    if (!take(mark)) return wrong("expected `{}`", mark);
    return {};
  }
  Result<std::string> word(std::string_view what) {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == start) return wrong("expected {}", what);
    return std::string(text_.substr(start, at_ - start));
  }
  Result<std::string> string() {
    TRY_DO(expect("\""));
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char letter = text_[at_++];
      if (letter == '\\' && at_ < text_.size()) {
        letter = text_[at_++];
        if (letter == 'n') letter = '\n';
      }
      out += letter;
    }
    if (at_ == text_.size()) return wrong("the string has no end");
    ++at_;
    return out;
  }
  Result<Attribute> number() {
    skip_space();
    size_t end = at_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '-' || text_[end] == '+'))
      ++end;
    const std::string_view digits = text_.substr(at_, end - at_);
    const bool whole = digits.find_first_not_of("-0123456789") == std::string_view::npos;
    int64_t integer = 0;
    double real = 0;
    const auto [stop, error] =
        whole ? std::from_chars(digits.data(), digits.data() + digits.size(), integer)
              : std::from_chars(digits.data(), digits.data() + digits.size(), real);
    if (error != std::errc() || stop != digits.data() + digits.size())
      return wrong("`{}` is not a number", digits);
    at_ = end;
    return whole ? Attribute(integer) : Attribute(real);
  }
  Result<int64_t> integer() {
    TRY(const Attribute value, number());
    const auto* found = std::get_if<int64_t>(&value);
    if (found == nullptr) return wrong("expected a whole number");
    return *found;
  }

  Result<Type> type() {
    TRY(const std::string kind, word("a type"));
    const auto dtype = dtype_named(kind);
    if (!dtype || !is_in_graphs(*dtype)) return wrong("`{}` is not a kind of number", kind);
    Type out{*dtype, {}};
    TRY_DO(expect("["));
    while (!take("]")) {
      if (!out.dims.empty()) TRY_DO(expect(","));
      TRY(std::string dim, word("the name of a dimension"));
      TRY_DO(expect("="));
      TRY(const int64_t size, integer());
      out.dims.push_back({std::move(dim), size});
    }
    if (auto checked = check_type(out); !checked) return wrong("{}", checked.error().text());
    return out;
  }

  Result<Attribute> attribute() {
    if (take("true")) return Attribute(true);
    if (take("false")) return Attribute(false);
    if (see("\"")) {
      TRY(std::string value, string());
      return Attribute(std::move(value));
    }
    if (!take("[")) return number();
    Names strings;
    std::vector<int64_t> integers;
    while (!take("]")) {
      if (!strings.empty() || !integers.empty()) TRY_DO(expect(","));
      if (see("\"")) {
        TRY(std::string value, string());
        strings.push_back(std::move(value));
      } else {
        TRY(const int64_t value, integer());
        integers.push_back(value);
      }
      if (!strings.empty() && !integers.empty()) return wrong("a list has values of one kind");
    }
    return integers.empty() ? Attribute(std::move(strings)) : Attribute(std::move(integers));
  }
  Result<Attributes> attributes() {
    Attributes out;
    if (!take("{")) return out;
    while (!take("}")) {
      if (!out.entries().empty()) TRY_DO(expect(","));
      TRY(const std::string key, word("the name of an attribute"));
      TRY_DO(expect("="));
      TRY(Attribute value, attribute());
      if (out.find(key) != nullptr) return wrong("{} is given twice", key);
      out.set(key, std::move(value));
    }
    return out;
  }

  Result<ValueId> value(const Names_& values) {
    TRY_DO(expect("%"));
    TRY(const std::string name, word("the name of a value"));
    const auto found = values.find(name);
    if (found == values.end()) return wrong("%{} is not made before it is used", name);
    return found->second;
  }

  // From the list of inputs on.
  Result<Graph> rest(int depth) {
    if (depth > kMaxDepth) return wrong("bodies in bodies, more than {} deep", kMaxDepth);
    Graph graph;
    Names_ values;
    TRY_DO(expect("("));
    while (!take(")")) {
      if (!graph.inputs.empty()) TRY_DO(expect(","));
      TRY_DO(expect("%"));
      TRY(std::string name, word("the name of an input"));
      TRY_DO(expect(":"));
      TRY(Type its, type());
      const InputRole role = take("state") ? InputRole::state : InputRole::data;
      if (!values.emplace(name, graph.types.size()).second)
        return wrong("%{} is given twice", name);
      graph.add_input(std::move(name), std::move(its), role);
    }
    TRY_DO(expect("{"));
    while (!take("return")) TRY_DO(op(graph, values, depth));
    while (!see("}")) {
      if (!graph.outputs.empty()) TRY_DO(expect(","));
      TRY(const ValueId output, value(values));
      TRY_DO(expect("as"));
      TRY(std::string name, string());
      graph.add_output(std::move(name), output);
    }
    TRY_DO(expect("}"));
    return graph;
  }

  Result<void> op(Graph& graph, Names_& values, int depth) {
    std::vector<std::string> results;
    do {
      TRY_DO(expect("%"));
      TRY(std::string name, word("the name of a value"));
      results.push_back(std::move(name));
    } while (take(","));
    TRY_DO(expect("="));
    TRY(Node made, head(values));
    std::vector<Type> given;
    if (take(":")) {
      do {
        TRY(Type its, type());
        given.push_back(std::move(its));
      } while (take(","));
    }
    if (take("@")) {
      TRY(made.at, string());
    }
    if (take("body")) {
      TRY(Graph body, rest(depth + 1));
      body.name = "body";
      made.body = std::make_shared<const Graph>(std::move(body));
    }
    auto added = graph.add(std::move(made), given.empty() ? nullptr : given.data());
    if (!added) return wrong("{}", added.error().text());
    if (added->size() != results.size())
      return wrong("{} results have {} names", added->size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (i < given.size() && given[i] != graph.type((*added)[i]))
        return wrong("%{} is {}, not {}", results[i], graph.type((*added)[i]).text(),
                     given[i].text());
      if (!values.emplace(results[i], (*added)[i]).second)
        return wrong("%{} is made twice", results[i]);
    }
    return {};
  }

  // name(operands) {attributes}
  Result<Node> head(const Names_& values) {
    TRY(const std::string name, word("the name of an operation"));
    const auto kind = op_named(name);
    if (!kind) {
      std::vector<std::string_view> known;
      for (size_t i = 0; i < kOpKinds; ++i) known.push_back(op_info(static_cast<OpKind>(i)).name);
      const auto meant = suggest(name, known);
      return wrong("there is no operation {}{}", name,
                   meant ? fmt::format("; did you mean {}?", *meant) : "");
    }
    Node made{.kind = *kind};
    TRY_DO(expect("("));
    while (!take(")")) {
      if (!made.operands.empty()) TRY_DO(expect(","));
      TRY(const ValueId operand, value(values));
      made.operands.push_back(operand);
    }
    TRY(made.attributes, attributes());
    return made;
  }

  std::string_view text_;
  std::string_view name_;
  size_t at_ = 0;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, std::string_view name) {
  return Parser(text, name).whole();
}

}  // namespace tutti
