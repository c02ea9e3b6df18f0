#include "base/toml.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// toml++ 3.3 asserts what its next lines handle with an error: "[\n" would abort us. What the fuzz
// target feeds it shows that the assertions guard nothing else.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <set>

#include "base/suggest.h"

namespace tutti {
namespace {

// A file with more mistakes than this is another file.
constexpr size_t kMaxMistakes = 20;

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::none: return "nothing";
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "a boolean";
    case toml::node_type::date: return "a date";
    case toml::node_type::time: return "a time";
    case toml::node_type::date_time: return "a date and time";
  }
  return "nothing";
}

struct Mistake {
  toml::source_index line;  // 0 when it is about no line
  std::string text;
};

}  // namespace

// A table somebody reads, and which of its keys were asked for.
struct TomlReader::Table {
  const toml::table* node;  // null: absent, so nothing is in it
  std::string path;         // "tls", "hosts[2]"; empty at the root
  std::set<std::string, std::less<>> asked;

  std::string path_of(std::string_view key) const {
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  }
  const toml::node* ask(std::string_view key) {
    asked.emplace(key);
    return node == nullptr ? nullptr : node->get(key);
  }
};

struct TomlReader::Document {
  std::string file_name;
  toml::table root;
  std::deque<Table> tables;  // a deque keeps its elements where they are
  std::vector<Mistake> mistakes;

  Table* open(const toml::table* node, std::string path) {
    return &tables.emplace_back(Table{node, std::move(path), {}});
  }

  void complain(const toml::node* at, std::string text) {
    mistakes.push_back({at == nullptr ? 0 : at->source().begin.line, std::move(text)});
  }

  void complain_type(const toml::node& node, std::string_view path, std::string_view wanted) {
    complain(&node, fmt::format("'{}' must be {}, not {}", path, wanted, type_name(node)));
  }

  // Keys nobody asked for, in tables somebody reads.
  void find_unknown(const Table& table, std::vector<Mistake>& found) const {
    if (table.node == nullptr) return;
    const std::vector<std::string_view> known(table.asked.begin(), table.asked.end());
    for (const auto& [key, node] : *table.node) {
      const std::string_view name = key.str();
      if (table.asked.contains(name)) continue;
      std::string text = fmt::format("unknown key '{}'", table.path_of(name));
      if (const auto meant = suggest(name, known)) {
        text += fmt::format("; did you mean '{}'?", *meant);
      }
      found.push_back({key.source().begin.line, std::move(text)});
    }
  }
};

TomlReader::TomlReader(std::shared_ptr<Document> document, Table* table)
    : document_(std::move(document)), table_(table) {}

Result<TomlReader> TomlReader::parse(std::string_view text, std::string_view file_name) {
  toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return fail(Code::invalid, "{}:{}:{}: {}", file_name, error.source().begin.line,
                error.source().begin.column, error.description());
  }
  auto document = std::make_shared<Document>();
  document->file_name = file_name;
  document->root = std::move(parsed).table();
  Table* root = document->open(&document->root, "");
  return TomlReader(std::move(document), root);
}

bool TomlReader::has(std::string_view key) const {
  return table_->node != nullptr && table_->node->contains(key);
}

bool TomlReader::has_string(std::string_view key) const {
  return has(key) && table_->node->get(key)->is_string();
}

bool TomlReader::has_array(std::string_view key) const {
  return has(key) && table_->node->get(key)->is_array();
}

bool TomlReader::has_table(std::string_view key) const {
  return has(key) && table_->node->get(key)->is_table();
}

TomlReader::Place TomlReader::place(std::string_view key) const {
  if (!has(key)) return {};
  const toml::source_position begin = table_->node->find(key)->first.source().begin;
  return {begin.line, begin.column};
}

std::vector<std::string> TomlReader::keys() const {
  std::vector<std::string> names;
  if (table_->node == nullptr) return names;
  for (const auto& [key, node] : *table_->node) names.emplace_back(key.str());
  std::ranges::sort(names);
  return names;
}

bool TomlReader::read(std::string_view key, bool& value) {
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return false;
  if (!node->is_boolean()) {
    document_->complain_type(*node, table_->path_of(key), "true or false");
    return false;
  }
  value = node->as_boolean()->get();
  return true;
}

bool TomlReader::read(std::string_view key, double& value) {
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return false;
  if (!node->is_number()) {
    document_->complain_type(*node, table_->path_of(key), "a number");
    return false;
  }
  value = node->is_integer() ? static_cast<double>(node->as_integer()->get())
                             : node->as_floating_point()->get();
  return true;
}

bool TomlReader::read(std::string_view key, std::string& value) {
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return false;
  if (!node->is_string()) {
    document_->complain_type(*node, table_->path_of(key), "a string");
    return false;
  }
  value = node->as_string()->get();
  return true;
}

bool TomlReader::read(std::string_view key, Duration& value) {
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return false;
  if (!node->is_string() && !node->is_number()) {
    document_->complain_type(*node, table_->path_of(key),
                             "a duration such as \"250ms\" or a number of seconds");
    return false;
  }
  const std::string text = node->is_string() ? node->as_string()->get()
                           : node->is_integer()
                               ? fmt::format("{}", node->as_integer()->get())
                               : fmt::format("{:f}", node->as_floating_point()->get());
  const auto duration = parse_duration(text);
  if (duration) {
    value = *duration;
  } else {
    document_->complain(node,
                        fmt::format("'{}': {}", table_->path_of(key), duration.error().text()));
  }
  return duration.has_value();
}

bool TomlReader::read(std::string_view key, std::vector<std::string>& value) {
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return false;
  const std::string path = table_->path_of(key);
  if (!node->is_array()) {
    document_->complain_type(*node, path, "an array of strings");
    return false;
  }
  std::vector<std::string> strings;
  for (const toml::node& element : *node->as_array()) {
    if (!element.is_string()) {
      document_->complain_type(element, fmt::format("{}[{}]", path, strings.size()), "a string");
      return false;
    }
    strings.push_back(element.as_string()->get());
  }
  value = std::move(strings);
  return true;
}

bool TomlReader::read_bytes(std::string_view key, uint64_t& value) {
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return false;
  const std::string path = table_->path_of(key);
  if (!node->is_string() && !node->is_integer()) {
    document_->complain_type(*node, path, "a size such as \"64KiB\" or a number of bytes");
    return false;
  }
  const auto bytes = parse_bytes(node->is_string() ? node->as_string()->get()
                                                   : fmt::format("{}", node->as_integer()->get()));
  if (bytes) {
    value = *bytes;
  } else {
    document_->complain(node, fmt::format("'{}': {}", path, bytes.error().text()));
  }
  return bytes.has_value();
}

bool TomlReader::read_choice(std::string_view key, std::span<const std::string_view> names,
                             size_t& index) {
  std::string chosen;
  if (!read(key, chosen)) return false;
  const auto found = std::ranges::find(names, chosen);
  if (found == names.end()) {
    const auto meant = suggest(chosen, names);
    complain(key, fmt::format("must be one of {}, not '{}'{}", fmt::join(names, ", "), chosen,
                              meant ? fmt::format("; did you mean '{}'?", *meant) : ""));
    return false;
  }
  index = static_cast<size_t>(found - names.begin());
  return true;
}

TomlReader::Whole TomlReader::read_whole(std::string_view key, int64_t least, int64_t most) {
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return {false, 0};
  if (!node->is_integer()) {
    document_->complain_type(*node, table_->path_of(key), "a whole number");
    return {false, 0};
  }
  const int64_t value = node->as_integer()->get();
  if (value < least || value > most) {
    complain(key, fmt::format("must be from {} to {}, not {}", least, most, value));
    return {false, 0};
  }
  return {true, value};
}

TomlReader TomlReader::table(std::string_view key) {
  const toml::node* node = table_->ask(key);
  if (node != nullptr && !node->is_table()) {
    document_->complain_type(*node, table_->path_of(key), "a table");
    node = nullptr;
  }
  const toml::table* child = node == nullptr ? nullptr : node->as_table();
  return TomlReader(document_, document_->open(child, table_->path_of(key)));
}

std::vector<TomlReader> TomlReader::tables(std::string_view key) {
  std::vector<TomlReader> readers;
  const toml::node* node = table_->ask(key);
  if (node == nullptr) return readers;
  const std::string path = table_->path_of(key);
  if (!node->is_array_of_tables()) {
    const bool empty = node->is_array() && node->as_array()->empty();
    if (!empty) document_->complain_type(*node, path, "an array of tables");
    return readers;
  }
  for (const toml::node& element : *node->as_array()) {
    Table* child = document_->open(element.as_table(), fmt::format("{}[{}]", path, readers.size()));
    readers.push_back(TomlReader(document_, child));
  }
  return readers;
}

void TomlReader::complain(std::string_view key, std::string_view what) {
  table_->asked.emplace(key);
  const toml::node* at = has(key) ? table_->node->get(key) : table_->node;
  document_->complain(at, fmt::format("'{}' {}", table_->path_of(key), what));
}

Result<void> TomlReader::finish() const {
  std::vector<Mistake> mistakes = document_->mistakes;
  for (const Table& table : document_->tables) document_->find_unknown(table, mistakes);
  if (mistakes.empty()) return {};
  std::ranges::stable_sort(mistakes, {}, &Mistake::line);

  std::string text;
  for (size_t i = 0; i < std::min(mistakes.size(), kMaxMistakes); ++i) {
    const auto& [line, what] = mistakes[i];
    if (i > 0) text += '\n';
    text += line == 0 ? fmt::format("{}: {}", document_->file_name, what)
                      : fmt::format("{}:{}: {}", document_->file_name, line, what);
  }
  if (mistakes.size() > kMaxMistakes) {
    text += fmt::format("\n{}: and {} more", document_->file_name, mistakes.size() - kMaxMistakes);
  }
  return fail(Error(Code::invalid, std::move(text)));
}

}  // namespace tutti
