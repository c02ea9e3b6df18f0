#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/screen.h"
#include "cli/table.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kBold = "\033[1m";
constexpr std::string_view kFaint = "\033[2m";
constexpr std::string_view kReverse = "\033[7m";
constexpr std::string_view kGap = "  ";
constexpr size_t kMargin = 2;  // where the selected row is marked
// Header, sums, trail, head of the table; the last line.
constexpr size_t kOtherLines = 5;

constexpr std::string_view kHelp[] = {
    "up, down, PgUp, PgDn, Home, End   move",
    "Enter               look inside: job, role, host, folded processes",
    "Esc, Backspace      back",
    "left, right, < >    choose the column to sort by;  r  the other way",
    "/                   show rows with this text;  Esc  show all again",
    "f                   fold processes that are alike (what they use is",
    "                    the mean), or one row for each",
    "a                   jobs that ended too",
    "p, Space            pause, and go on",
    "k                   end the job, or the selected processes",
    "q, Ctrl-C           leave",
    "",
    "CPU% is of one core; memory is resident. Both are of a process",
    "and of what it started.",
};

std::string painted(std::string_view text, std::string_view code, bool colour) {
  return colour && !code.empty() ? fmt::format("{}{}\033[0m", code, text) : std::string(text);
}

std::string_view code_of(Tone tone) {
  switch (tone) {
    case Tone::good: return "\033[32m";
    case Tone::busy: return "\033[33m";
    case Tone::bad: return "\033[31m";
    case Tone::plain: return "";
  }
  return "";
}

// As many pieces as fit, the first ones first.
std::string as_fits(const std::vector<std::string>& pieces, size_t columns) {
  std::string line;
  for (const std::string& piece : pieces) {
    std::string longer = line;
    if (!line.empty()) longer += kGap;
    longer += piece;
    if (width_of(longer) > columns) break;
    line = std::move(longer);
  }
  return line;
}

std::string sums(const Look& look, size_t columns) {
  const cluster::StatusReply& status = look.status;
  uint64_t processes = 0;
  for (const cluster::JobInfo& job : look.jobs)
    if (job.state() < cluster::SUCCEEDED && job.state() != cluster::QUEUED)
      processes += job.processes();
  const uint64_t away = status.hosts_known() - std::min(status.hosts_known(), status.hosts_alive());
  return as_fits(
      {fmt::format("hosts {} up, {} away", status.hosts_alive(), away),
       fmt::format("slots {}/{}", status.slots_taken(), status.slots()),
       fmt::format("jobs {} running, {} queued", status.running_jobs(), status.queued_jobs()),
       fmt::format("processes {}", processes)},
      columns);
}

std::string title(const Look& look, size_t columns) {
  return as_fits({"tutti " + harmless(look.status.cluster()),
                  "up " + age_text(look.unix_ns, look.status.up_since_unix_ns()),
                  "version " + harmless(look.status.version())},
                 columns);
}

// Which columns are shown, and how wide.
struct Layout {
  std::vector<size_t> shown;
  std::vector<size_t> widths;  // of all
};

Layout fit(const TopTable& table, size_t columns) {
  Layout layout;
  layout.shown.resize(table.columns.size());
  std::iota(layout.shown.begin(), layout.shown.end(), size_t{0});
  // The mark of the sorted column has room in every head.
  for (const TopColumn& column : table.columns) layout.widths.push_back(width_of(column.title) + 1);
  for (const TopRow& row : table.rows)
    for (size_t i = 0; i < row.cells.size(); ++i)
      layout.widths[i] = std::max(layout.widths[i], width_of(row.cells[i].text));
  const auto total = [&] {
    size_t sum = kMargin;
    for (const size_t i : layout.shown) sum += layout.widths[i] + kGap.size();
    return sum - kGap.size();
  };
  // The last is text that may be cut, but not to nothing.
  constexpr size_t kLeastText = 12;
  while (layout.shown.size() > 1 && total() > columns) {
    const size_t last = layout.shown.back();
    const size_t excess = total() - columns;
    if (!table.columns[last].right && layout.widths[last] >= excess + kLeastText) {
      layout.widths[last] -= excess;
      break;
    }
    const auto least = std::ranges::min_element(layout.shown, {},
                                                [&](size_t i) { return table.columns[i].worth; });
    layout.shown.erase(least);
  }
  if (total() > columns) layout.widths[layout.shown.front()] = columns - std::min(columns, kMargin);
  return layout;
}

std::string head_of(const TopTable& table, const Layout& layout, std::optional<size_t> sorted,
                    bool descending) {
  std::string line(kMargin, ' ');
  for (const size_t i : layout.shown) {
    std::string words(table.columns[i].title);
    if (sorted == i) words += descending ? "▼" : "▲";
    line += padded(words, layout.widths[i], table.columns[i].right);
    line += kGap;
  }
  return line;
}

std::string line_of(const TopTable& table, const TopRow& row, const Layout& layout,
                    const TopStyle& style, bool selected) {
  std::string line = selected ? "> " : "  ";
  for (const size_t i : layout.shown) {
    const std::string words = padded(row.cells[i].text, layout.widths[i], table.columns[i].right);
    const bool state = table.columns[i].title == "STATE";
    line += painted(words, state && !selected ? code_of(row.tone) : "", style.colour);
    if (i != layout.shown.back()) line += kGap;
  }
  if (!selected) return line;
  return painted(padded(clipped(line, style.columns), style.columns), kReverse, style.colour);
}

std::string trail_line(const TopModel& model, const TopStyle& style) {
  std::string line = fmt::format("{}", fmt::join(model.trail(), " > "));
  if (!model.filter().empty() || model.filtering())
    line += fmt::format("   /{}{}", model.filter(), model.filtering() ? "_" : "");
  if (model.paused()) line += "   paused";
  return painted(clipped(line, style.columns), kBold, style.colour);
}

std::string last_line(const TopModel& model, const std::string& notice, const TopStyle& style) {
  const auto question = model.question();
  if (question) return painted(clipped(*question, style.columns), "\033[1;31m", style.colour);
  if (!notice.empty())
    return painted(clipped(harmless(notice), style.columns), "\033[33m", style.colour);
  const std::string hint = as_fits(
      {"Enter in", "Esc out", "/ filter", "</> sort", "k kill", "p pause", "? help", "q quit"},
      style.columns);
  return painted(hint, kFaint, style.colour);
}

}  // namespace

size_t table_height(const TopStyle& style) {
  return style.rows > kOtherLines ? style.rows - kOtherLines : 1;
}

std::vector<std::string> top_screen(const TopModel& model, const TopStyle& style,
                                    const std::string& notice) {
  std::vector<std::string> lines;
  lines.push_back(painted(title(model.look(), style.columns), kBold, style.colour));
  lines.push_back(sums(model.look(), style.columns));
  lines.push_back(trail_line(model, style));
  if (model.help()) {
    lines.emplace_back();
    for (const std::string_view line : kHelp) lines.push_back(clipped(line, style.columns));
  } else {
    const TopTable& table = model.table();
    const Layout layout = fit(table, style.columns);
    const std::string head = head_of(table, layout, model.sorted_by(), model.descending());
    lines.push_back(painted(clipped(head, style.columns), kFaint, style.colour));
    const size_t end = std::min(table.rows.size(), model.first() + table_height(style));
    for (size_t i = model.first(); i < end; ++i)
      lines.push_back(line_of(table, table.rows[i], layout, style, i == model.selected()));
    if (table.rows.empty() && model.looked())
      lines.emplace_back(model.filter().empty() ? "  nothing here" : "  nothing with this text");
  }
  lines.resize(std::max<size_t>(style.rows, 1) - 1);
  lines.push_back(last_line(model, notice, style));
  return lines;
}

std::string top_text(const Look& look, const TopTable& table, const TopStyle& style) {
  const Layout layout = fit(table, style.columns);
  std::string text = painted(title(look, style.columns), kBold, style.colour) + "\n" +
                     sums(look, style.columns) + "\n\n";
  std::string head = clipped(head_of(table, layout, {}, false), style.columns);
  head.resize(head.find_last_not_of(' ') + 1);
  text += painted(head, kFaint, style.colour) + "\n";
  for (const TopRow& row : table.rows) {
    std::string line = line_of(table, row, layout, style, false);
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (table.rows.empty()) text += "  nothing here\n";
  return text;
}

}  // namespace tutti::cli
