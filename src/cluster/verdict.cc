#include "cluster/verdict.h"

#include <csignal>
#include <cstring>
#include <map>

#include "cluster/rank_list.h"

namespace tutti {
namespace {

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

// Standard error is where programs say why they die; some only ever print.
struct Tail {
  const LastLines* lines;
  std::string_view stream;
};
Tail telling_tail(const RankTail& tail) {
  if (!tail.error.lines().empty()) return {&tail.error, "stderr"};
  return {&tail.output, "stdout"};
}

bool within(char byte, char first, char last) { return first <= byte && byte <= last; }

// Bytes of the terminal sequence that the text begins with; one that was cut goes to its end.
size_t sequence_size(std::string_view text) {
  constexpr std::string_view kStringBegins = "]PX^_";  // OSC, DCS, SOS, PM, APC
  size_t at = 1;
  if (at < text.size() && kStringBegins.contains(text[at])) {
    const size_t end = text.find_first_of("\a\033", at);
    if (end == std::string_view::npos) return text.size();
    const bool ends_with_two = text[end] == '\033' && text.substr(end + 1).starts_with('\\');
    return text[end] == '\a' ? end + 1 : ends_with_two ? end + 2 : end;
  }
  const bool control = at < text.size() && text[at] == '[';
  if (control) ++at;
  while (at < text.size() && within(text[at], ' ', control ? '?' : '/')) ++at;
  if (at < text.size() && within(text[at], control ? '@' : '0', '~')) ++at;
  return at;
}

// Colours and titles of a rank are not to spread over the verdict.
std::string without_sequences(std::string_view line) {
  std::string text;
  while (true) {
    const size_t escape = line.find('\033');
    text += line.substr(0, escape);
    if (escape == std::string_view::npos) return text;
    line.remove_prefix(escape);
    line.remove_prefix(sequence_size(line));
  }
}

class Text {
 public:
  explicit Text(const VerdictOptions& options) : options_(options) {}

  void headline(std::string_view subject, std::string_view rest) {
    text_ += options_.colour ? fmt::format("\033[0;1;31mtutti: {}\033[0m{}\n", subject, rest)
                             : fmt::format("tutti: {}{}\n", subject, rest);
  }
  void detail(std::string_view label, std::string_view rest) {
    text_ += options_.colour ? fmt::format("  \033[2m{}\033[0m {}\n", label, rest)
                             : fmt::format("  {} {}\n", label, rest);
  }
  void quote(const LastLines& lines) {
    for (const std::string& line : lines.lines())
      text_ += fmt::format("    | {}\n", without_sequences(line));
  }
  std::string take() { return std::move(text_); }

 private:
  const VerdictOptions& options_;
  std::string text_;
};

void tell_culprit(const GangReport& report, std::span<const RankTail> tails,
                  std::span<const std::string> labels, Text& text) {
  const RankReport& rank = report.ranks[*report.culprit];
  const std::string who = format_ranks({*report.culprit}, labels);
  text.headline(fmt::format("{} failed first: {}", who, rank.exit->text()),
                fmt::format(", after {}", format_duration(rank.lived)));
  const Tail tail = telling_tail(tails[*report.culprit]);
  if (!tail.lines->lines().empty()) {
    text.detail("its last lines", fmt::format("({}):", tail.stream));
    text.quote(*tail.lines);
  } else {
    text.detail("its last lines:", "none, it printed nothing");
  }
  if (!rank.signalled_by.empty()) {
    text.detail("who killed it:", fmt::format("{}, with `tutti signal`", rank.signalled_by));
  } else if (rank.exit->out_of_memory) {
    text.detail("who killed it:",
                "the kernel, which was short of memory, killed it or what it had started");
  } else if (rank.exit->signal == SIGKILL) {
    text.detail("who killed it:",
                "not tutti; a person, or the kernel when short of memory (see: dmesg)");
  }
}

// Those that ended badly before we asked them to.
void tell_others(const GangReport& report, const VerdictOptions& options, Text& text) {
  std::map<std::string, std::vector<uint32_t>> failed;
  std::vector<uint32_t> finished;
  for (uint32_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankReport& other = report.ranks[rank];
    if (!other.exit || other.last_signal_sent != 0 || rank == report.culprit) continue;
    if (other.exit->ok()) finished.push_back(rank);
    if (!other.exit->ok()) failed[other.exit->text()].push_back(rank);
  }
  for (const auto& [how, ranks] : failed)
    text.detail("failed next:", fmt::format("{}: {}", format_ranks(ranks, options.labels), how));
  if (!finished.empty()) text.detail("had finished:", format_ranks(finished, options.labels));
}

void tell_ended(const GangReport& report, std::string_view label, const VerdictOptions& options,
                Text& text) {
  std::map<std::pair<int, bool>, std::vector<uint32_t>> by_signal;
  std::vector<uint32_t> unknown;
  for (const uint32_t rank : report.running) {
    const RankReport& ended = report.ranks[rank];
    if (rank == report.culprit) continue;  // nobody ends because of itself
    if (!ended.exit) unknown.push_back(rank);
    if (ended.exit && ended.last_signal_sent != 0)
      by_signal[{ended.last_signal_sent, ended.outlived_grace}].push_back(rank);
  }
  for (const auto& [how, ranks] : by_signal) {
    const auto [signal, outlived_grace] = how;
    std::string after;
    if (signal == SIGKILL && report.hurried) {
      after = ", when a second signal came";
    } else if (outlived_grace && options.grace > 0s) {
      after =
          fmt::format(", still there {} after being asked to end", format_duration(options.grace));
    }
    text.detail(label, fmt::format("{} ({}{})", format_ranks(ranks, options.labels),
                                   signal_name(signal), after));
  }
  if (!unknown.empty())
    text.detail(label, fmt::format("{} (SIGKILL)", format_ranks(unknown, options.labels)));
}

void tell_left(const GangReport& report, Text& text) {
  if (report.not_ended) text.detail("still alive:", report.not_ended->text());
}

std::string still_running(const GangReport& report, const VerdictOptions& options) {
  if (report.running.empty()) return "; no rank was running";
  return fmt::format("; {} still ran", format_ranks(report.running, options.labels));
}

std::string timeout_text(const VerdictOptions& options) {
  if (!options.timeout) return "its time is up";
  return fmt::format("the time of {} is up", format_duration(*options.timeout));
}

// "preempted by ann, with `tutti kill --notice`, which gave it 30 s"
std::string preemption_text(const GangReport& report) {
  std::string text = "preempted";
  if (!report.ended_by.empty()) text += " by " + report.ended_by;
  text += ", with `tutti kill --notice`";
  if (report.notice > 0s) text += ", which gave it " + format_duration(report.notice);
  return text;
}

std::string_view end_name(GangEnd end) {
  switch (end) {
    case GangEnd::finished: return "finished";
    case GangEnd::rank_failed: return "rank_failed";
    case GangEnd::timed_out: return "timed_out";
    case GangEnd::interrupted: return "interrupted";
    case GangEnd::output_lost: return "output_lost";
    case GangEnd::not_started: return "not_started";
    case GangEnd::keeper_lost: return "keeper_lost";
    case GangEnd::killed: return "killed";
    case GangEnd::preempted: return "preempted";
  }
  return "unknown";
}

Json ranks_json(const GangReport& report, std::span<const std::string> labels) {
  Json ranks = Json::array();
  for (uint32_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankReport& one = report.ranks[rank];
    if (one.pid == 0) continue;
    Json entry = rank_json(rank, labels);
    entry.update({{"pid", one.pid}, {"signal_sent", one.last_signal_sent}});
    if (one.exit) {
      entry["code"] = one.exit->code;
      entry["signal"] = one.exit->signal;
      entry["order"] = one.sequence;
      entry["how"] = one.exit->text();
    }
    ranks.push_back(std::move(entry));
  }
  return ranks;
}

}  // namespace

Json rank_json(uint32_t process, std::span<const std::string> labels) {
  if (labels.empty()) return {{"rank", process}};
  const RankLabel label = split_label(labels[process]);
  return {
      {"role", label.role}, {"rank", label.rank}, {"name", labels[process]}, {"process", process}};
}

double rounded_seconds(Duration duration) {
  return static_cast<double>(std::chrono::round<std::chrono::milliseconds>(duration).count()) / 1e3;
}

std::string verdict_text(const GangReport& report, std::span<const RankTail> tails,
                         const VerdictOptions& options) {
  Text text(options);
  std::string_view ended = "ended:";
  switch (report.end) {
    case GangEnd::finished:
      if (!report.not_ended) return "";
      text.headline("every rank finished", ", but not all that they started");
      break;
    case GangEnd::not_started:
      text.headline(report.error->text(), "");
      tell_left(report, text);
      return text.take();
    case GangEnd::rank_failed:
      tell_culprit(report, tails, options.labels, text);
      ended = "ended because of it:";
      break;
    case GangEnd::timed_out:
      text.headline(timeout_text(options), still_running(report, options));
      break;
    case GangEnd::interrupted:
      text.headline(fmt::format("interrupted by {}", signal_name(report.signal)),
                    still_running(report, options));
      break;
    case GangEnd::killed:
      text.headline(fmt::format("killed by {}, with `tutti kill`",
                                report.ended_by.empty() ? "somebody else" : report.ended_by),
                    still_running(report, options));
      break;
    case GangEnd::preempted:
      text.headline(preemption_text(report), still_running(report, options));
      break;
    case GangEnd::output_lost:
    case GangEnd::keeper_lost:
      text.headline(report.error->text(), still_running(report, options));
      break;
  }
  tell_others(report, options, text);
  tell_ended(report, ended, options, text);
  const bool in_headline = report.end == GangEnd::output_lost || report.end == GangEnd::keeper_lost;
  if (report.error && !in_headline) text.detail("trouble:", report.error->text());
  if (report.output == OutputEnd::held)
    text.detail("output:", "not all of it: somebody outside of the gang holds on to it");
  if (report.output == OutputEnd::not_taken)
    text.detail("output:", "not all of it: whoever reads ours was too slow");
  tell_left(report, text);
  text.detail("elapsed:",
              fmt::format("{}; exit code {}", format_duration(report.elapsed), report.exit_code()));
  return text.take();
}

Json verdict_json(const GangReport& report, std::span<const RankTail> tails,
                  std::span<const std::string> labels) {
  Json json = {{"event", "verdict"},
               {"end", end_name(report.end)},
               {"exit_code", report.exit_code()},
               {"elapsed_s", rounded_seconds(report.elapsed)},
               {"ranks", ranks_json(report, labels)}};
  if (report.culprit) {
    const Tail tail = telling_tail(tails[*report.culprit]);
    const Json culprit = rank_json(*report.culprit, labels);
    json["culprit"] = culprit["rank"];
    if (!labels.empty())
      json.update({{"culprit_role", culprit["role"]},
                   {"culprit_name", culprit["name"]},
                   {"culprit_process", *report.culprit}});
    json["how"] = report.ranks[*report.culprit].exit->text();
    json["last_lines"] = tail.lines->lines();
    json["last_lines_of"] = tail.stream;
    const std::string& by = report.ranks[*report.culprit].signalled_by;
    if (!by.empty()) json["signalled_by"] = by;
  }
  if (!report.running.empty())
    json[labels.empty() ? "ended_ranks" : "ended_processes"] = report.running;
  if (report.signal != 0) json["signal"] = report.signal;
  if (!report.ended_by.empty()) json["ended_by"] = report.ended_by;
  if (report.notice > 0s) json["notice_s"] = rounded_seconds(report.notice);
  if (report.error) json["error"] = report.error->text();
  if (report.not_ended) json["still_alive"] = report.not_ended->text();
  return json;
}

}  // namespace tutti
