#include "cli/gang_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "cluster/rank_list.h"

namespace tutti::cli {
namespace {

// Cyan first; red is for verdicts.
constexpr std::array kColours = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};

std::string_view stream_name(RankStream stream) {
  return stream == RankStream::output ? "stdout" : "stderr";
}

}  // namespace

std::string missing_output_text(const std::string& host, const RangeSet& processes,
                                std::span<const std::string> labels, const Error& why) {
  const std::string who = processes.empty() ? "ranks" : format_ranks(processes.members(), labels);
  return fmt::format(
      "some of what {} printed on host {} may be missing here: {}; when its agent is up again, "
      "Job.output() of Python reads what it kept",
      who, host, why.text());
}

GangPrinter::GangPrinter(uint32_t ranks, PrintStyle style, OutputSink& output, OutputSink& error,
                         std::vector<std::string> labels)
    : style_(style),
      output_(output),
      error_(error),
      states_(2 * ranks),
      tails_(ranks),
      held_exits_(ranks),
      labels_(std::move(labels)) {
  size_t width = fmt::format("[{}]", ranks - 1).size();
  for (const std::string& name : labels_) width = std::max(width, name.size() + 2);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string name = labels_.empty() ? fmt::format("{}", rank) : labels_[rank];
    std::string label = fmt::format("{:<{}} ", fmt::format("[{}]", name), width);
    // 0: what the line before left switched on, another rank's bold say, ends here.
    colour_prefixes_.push_back(
        fmt::format("\033[0;{}m{}\033[0m", kColours[rank % kColours.size()], label));
    plain_prefixes_.push_back(std::move(label));
  }
}

void GangPrinter::print_event(const Json& event) {
  output_.text() += dump_json(event);
  output_.text() += '\n';
  output_.added();
}

Json GangPrinter::event_of(uint32_t rank, std::string_view what) const {
  Json event = rank_json(rank, labels_);
  event["event"] = what;
  return event;
}

void GangPrinter::print_notice(std::string_view text) {
  if (style_ == PrintStyle::json) return;
  end_live_line();
  error_.text() += fmt::format("tutti: {}\n", text);
  error_.added();
}

void GangPrinter::end_live_line() {
  if (!std::exchange(live_line_, false)) return;
  output_.text() += '\n';
  output_.added();
}

void GangPrinter::on_started(uint32_t rank, pid_t pid, bool was_spare) {
  states_[2 * rank].ended = states_[2 * rank + 1].ended = false;
  if (style_ != PrintStyle::json) return;
  Json event = event_of(rank, "start");
  event["pid"] = pid;
  if (was_spare) event["was_spare"] = true;
  print_event(event);
}

// Exits and output reach us on different ways; a rank's exit is told after the last of its output.
void GangPrinter::on_exit(uint32_t rank, const RankReport& report) {
  if (style_ != PrintStyle::json) return;
  Json& held = held_exits_[rank];
  held = event_of(rank, "exit");
  held.update({{"code", report.exit->code},
               {"signal", report.exit->signal},
               {"how", report.exit->text()},
               {"order", report.sequence},
               {"signal_sent", report.last_signal_sent},
               {"lived_s", rounded_seconds(report.lived)},
               {"user_s", rounded_seconds(report.exit->user_time)},
               {"system_s", rounded_seconds(report.exit->system_time)},
               {"peak_memory_bytes", report.exit->peak_memory_bytes}});
  if (all_output_ended(rank)) print_held_exit(rank);
}

void GangPrinter::print_held_exit(uint32_t rank) {
  if (!held_exits_[rank].is_null()) print_event(std::exchange(held_exits_[rank], Json()));
}

void GangPrinter::print_held_exits() {
  for (uint32_t rank = 0; rank < held_exits_.size(); ++rank) print_held_exit(rank);
}

// Somebody pressed Ctrl-C and waits: say what happens and how to make it quicker.
void GangPrinter::on_ending(const GangReport& so_far) {
  if (so_far.end != GangEnd::interrupted || !error_.colour() || so_far.running.empty()) return;
  error_.text() += fmt::format("\033[0m\ntutti: ending {}; again to kill at once\n",
                               format_ranks(so_far.running, labels_));
  error_.added();
}

// The terminal shows ^C where the cursor stood; what follows begins on a line of its own.
void GangPrinter::on_hurried() {
  if (!error_.colour()) return;
  error_.text() += '\n';
  error_.added();
}

void GangPrinter::on_output_missing(const std::string& host, const RangeSet& processes,
                                    const Error& why) {
  if (style_ != PrintStyle::json)
    return print_notice(missing_output_text(host, processes, labels_, why));
  print_event({{"event", "output_missing"},
               {"host", host},
               {labels_.empty() ? "ranks" : "processes", processes.members()},
               {"why", why.text()}});
}

Task<Result<void>> GangPrinter::on_output(uint32_t rank, RankStream stream, Bytes bytes) {
  OutputSink& sink = sink_of(stream);
  CO_TRY_DO(co_await sink.room());
  RankOutput& state = state_of(rank, stream);
  if (std::exchange(state.life_over, bytes.empty())) tail_of(rank, stream) = LastLines();
  if (style_ == PrintStyle::raw) print_raw(state, sink, as_text(bytes));
  const auto print = [&](std::string_view text, LineEnd end) {
    tail_of(rank, stream).add(text, end);
    if (style_ != PrintStyle::raw) print_line(rank, stream, text, end);
  };
  if (bytes.empty()) {
    state.splitter.finish(print);
    state.ended = true;
    if (all_output_ended(rank)) print_held_exit(rank);
  } else {
    state.splitter.feed(as_text(bytes), print);
  }
  sink.added();
  co_return {};
}

void GangPrinter::print_line(uint32_t rank, RankStream stream, std::string_view text, LineEnd end) {
  if (style_ == PrintStyle::json) {
    Json event = event_of(rank, "output");
    event["stream"] = stream_name(stream);
    event["text"] = text;
    if (end == LineEnd::continued) event["continued"] = true;
    return print_event(event);
  }
  RankOutput& state = state_of(rank, stream);
  OutputSink& sink = sink_of(stream);
  std::string& to = sink.text();
  to += sink.colour() ? colour_prefixes_[rank] : plain_prefixes_[rank];
  if (state.within_line) to += "… ";
  to += text;
  state.within_line = end == LineEnd::continued;
  to += state.within_line ? " …\n" : "\n";
}

void GangPrinter::print_raw(RankOutput& state, OutputSink& sink, std::string_view bytes) {
  const size_t last_end = bytes.find_last_of("\r\n");
  const bool at_end = bytes.empty();
  if (last_end != std::string_view::npos) {
    sink.text() += state.raw;
    state.raw.clear();
    sink.text() += bytes.substr(0, last_end + 1);
    live_line_ = &sink == &output_ && sink.colour() && bytes[last_end] == '\r';
    bytes.remove_prefix(last_end + 1);
  }
  state.raw += bytes;
  if (!at_end && state.raw.size() <= kLongestLine) return;
  sink.text() += state.raw;
  state.raw.clear();
}

}  // namespace tutti::cli
