#include "cluster/job_file.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/toml.h"
#include "cluster/job_defaults.h"
#include "cluster/job_limits.h"
#include "cluster/job_rules.h"
#include "cluster/job_words.h"

namespace tutti {
namespace {

// A job with more mistakes than this is something else.
constexpr size_t kMostMistakesTold = 20;

struct NoticeSignal {
  std::string_view word;
  int number;
};
constexpr NoticeSignal kNoticeSignals[] = {
    {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT},   {"SIGHUP", SIGHUP},
    {"SIGQUIT", SIGQUIT}, {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2},
};
constexpr std::string_view kAlwaysWords[] = {"always"};

// A table of the file and those within it, by name; mistakes are told at their lines.
struct Section {
  TomlReader toml;
  std::map<std::string, TomlReader, std::less<>> inner;

  explicit Section(TomlReader table) : toml(std::move(table)) {}

  TomlReader& open(std::string_view key) {
    return inner.emplace(key, toml.table(key)).first->second;
  }
  void complain(const JobMistake& mistake) {
    TomlReader& table = mistake.section.empty() ? toml : inner.at(mistake.section);
    table.complain(mistake.key, mistake.what);
  }
};

struct WrittenRole {
  TomlReader::Place place;
  job::Role::Kind kind;
  std::string name;
};

// A number of seconds, or text with a unit; `keep` takes nanoseconds.
template <class Keep>
void read_time(TomlReader& toml, std::string_view key, Keep keep) {
  Duration duration{};
  if (toml.read(key, duration)) keep(to_ns(duration));
}

template <class Keep>
void read_number(TomlReader& toml, std::string_view key, JobLimits limits, Keep keep) {
  uint64_t number = 0;
  if (toml.read(key, number, limits.least, limits.most)) keep(number);
}

template <class Message>
void read_strategy(TomlReader& toml, Message& message) {
  size_t choice = 0;
  if (toml.read_choice("strategy", kStrategyWords, choice))
    message.set_strategy(static_cast<job::Strategy>(choice));
}

template <class Message>
void read_folder(TomlReader& toml, Message& message) {
  std::string folder;
  if (toml.read("folder", folder)) message.set_folder(std::move(folder));
}

// An array of words, or text for a shell.
template <class Message>
void read_command(TomlReader& toml, Message& message) {
  std::vector<std::string> words;
  std::string text;
  if (toml.has_string("command") && toml.read("command", text)) {
    if (!text.empty()) words = {"sh", "-c", std::move(text)};
  } else if (toml.has("command") && !toml.has_array("command")) {
    toml.complain("command", "must be text for a shell or an array of strings");
  } else {
    toml.read("command", words);
  }
  for (std::string& word : words) message.add_command(std::move(word));
}

template <class Message>
void read_environment(Section& section, Message& message) {
  TomlReader& toml = section.open("environment");
  for (const std::string& variable : toml.keys()) {
    std::string value;
    if (!toml.read(variable, value)) continue;
    if (variable.find('=') != std::string::npos) {
      toml.complain(variable, "has a '=' in its name, which the environment cannot hold");
    } else {
      message.add_environment(fmt::format("{}={}", variable, value));
    }
  }
}

void read_health(Section& section, job::Role& role) {
  if (!section.toml.has("health")) return;
  TomlReader& toml = section.open("health");
  job::Health& health = *role.mutable_health();
  health = default_health();
  read_number(toml, "port", kPortLimits, [&](uint64_t port) { health.set_port(port); });
  std::string path;
  if (toml.read("path", path)) health.set_path(std::move(path));
  read_command(toml, health);
  read_time(toml, "every", [&](int64_t ns) { health.set_every_ns(ns); });
  read_time(toml, "timeout", [&](int64_t ns) { health.set_timeout_ns(ns); });
  read_number(toml, "failures", kHealthFailuresLimits,
              [&](uint64_t failures) { health.set_failures(failures); });
  read_time(toml, "start", [&](int64_t ns) { health.set_start_ns(ns); });
}

// What the table says of a class replaces its default, and the pace holds for all of them.
void read_restarts(Section& section, job::Role& role) {
  TomlReader& toml = section.open("restarts");
  job::Budget pace = role.budgets(0);
  read_time(toml, "period", [&](int64_t ns) { pace.set_period_ns(ns); });
  read_time(toml, "delay", [&](int64_t ns) { pace.set_delay_ns(ns); });
  pace.set_longest_delay_ns(std::max(pace.longest_delay_ns(), pace.delay_ns()));
  read_time(toml, "longest_delay", [&](int64_t ns) { pace.set_longest_delay_ns(ns); });

  std::map<job::ErrorClass, uint32_t> restarts;
  for (const job::Budget& budget : role.budgets()) restarts[budget.error()] = budget.restarts();
  for (size_t i = 0; i < std::size(kErrorWords); ++i) {
    const auto error = static_cast<job::ErrorClass>(i);
    size_t always = 0;
    if (toml.has_string(kErrorWords[i])) {
      if (toml.read_choice(kErrorWords[i], kAlwaysWords, always)) restarts[error] = kAlwaysRestart;
    } else {
      read_number(toml, kErrorWords[i], kRestartsLimits,
                  [&](uint64_t number) { restarts[error] = number; });
    }
  }
  role.clear_budgets();
  for (const auto& [error, number] : restarts) {
    if (number == 0) continue;
    job::Budget& budget = *role.add_budgets();
    budget = pace;
    budget.set_error(error);
    budget.set_restarts(number);
  }
}

// Those that are not there, or 0, are passed over.
void read_escalation(Section& section, job::Role& role) {
  TomlReader& toml = section.open("escalate");
  for (size_t i = job::HOST; i < std::size(kScopeWords); ++i) {
    read_number(toml, kScopeWords[i], kRestartsLimits, [&](uint64_t restarts) {
      if (restarts == 0) return;
      job::Escalation& escalation = *role.add_escalate();
      escalation.set_scope(static_cast<job::Scope>(i));
      escalation.set_restarts(static_cast<uint32_t>(restarts));
    });
  }
}

void read_role(Section& section, job::Role& role) {
  TomlReader& toml = section.toml;
  read_number(toml, "count", kCountLimits, [&](uint64_t count) { role.set_count(count); });
  read_number(toml, "per_host", kPerHostLimits, [&](uint64_t most) { role.set_per_host(most); });
  read_number(toml, "slots", kSlotsLimits, [&](uint64_t slots) { role.set_slots(slots); });
  read_command(toml, role);
  read_environment(section, role);
  read_folder(toml, role);
  std::string beside;
  if (toml.read("beside", beside)) role.set_beside(std::move(beside));
  std::vector<std::string> names;
  toml.read("needs", names);
  for (std::string& name : names) role.add_needs(std::move(name));
  read_strategy(toml, role);
  read_restarts(section, role);
  read_escalation(section, role);
  read_health(section, role);
  read_number(toml, "spares", kSparesLimits, [&](uint64_t spares) { role.set_spares(spares); });
  std::vector<std::string> modules;
  toml.read("preload", modules);
  for (std::string& module : modules) role.add_preload(std::move(module));
  read_time(toml, "hang_after", [&](int64_t ns) { role.set_hang_after_ns(ns); });
}

class JobFile {
 public:
  JobFile(TomlReader toml, std::string_view file_name)
      : whole_(std::move(toml)), file_name_(file_name), spec_(default_job()) {}

  Result<job::Spec> read() {
    read_whole();
    for (const WrittenRole& written : roles_as_written()) {
      job::Role& role = *spec_.add_roles();
      role = default_role(written.kind);
      role.set_name(written.name);
      roles_.emplace_back(kinds_[written.kind].table(written.name));
      read_role(roles_.back(), role);
    }
    // Rules about values that could not be read would only repeat that.
    TRY_DO(whole_.toml.finish());
    for (const JobMistake& mistake : find_job_mistakes(spec_)) TRY_DO(complain(mistake));
    TRY_DO(whole_.toml.finish());
    return std::move(spec_);
  }

 private:
  void read_whole() {
    TomlReader& toml = whole_.toml;
    std::string name;
    if (toml.require("name", name)) spec_.set_name(std::move(name));
    read_folder(toml, spec_);
    read_environment(whole_, spec_);
    read_strategy(toml, spec_);
    read_time(toml, "grace", [&](int64_t ns) { spec_.set_grace_ns(ns); });
    read_time(toml, "timeout", [&](int64_t ns) { spec_.set_timeout_ns(ns); });
    read_time(toml, "notice", [&](int64_t ns) { spec_.set_notice_ns(ns); });
    std::vector<std::string_view> signals;
    for (const NoticeSignal& signal : kNoticeSignals) signals.push_back(signal.word);
    size_t choice = 0;
    if (toml.read_choice("notice_signal", signals, choice))
      spec_.set_notice_signal(kNoticeSignals[choice].number);
    read_number(toml, "open_files", kOpenFilesLimits,
                [&](uint64_t files) { spec_.set_open_files(files); });
  }

  std::vector<WrittenRole> roles_as_written() {
    std::vector<WrittenRole> roles;
    for (size_t i = 0; i < std::size(kKindWords); ++i) {
      TomlReader& kind = kinds_.emplace_back(whole_.toml.table(kKindWords[i]));
      for (const std::string& name : kind.keys()) {
        if (kind.has_table(name)) {
          roles.push_back({kind.place(name), static_cast<job::Role::Kind>(i), name});
        } else {
          kind.complain(name,
                        fmt::format("must be the name of one role, with its keys below [{}.NAME]",
                                    kKindWords[i]));
        }
      }
    }
    std::ranges::sort(roles, {}, &WrittenRole::place);
    return roles;
  }

  // Fails with what has no line.
  Result<void> complain(const JobMistake& mistake) {
    if (mistake.role && mistake.key.empty()) {
      const job::Role& role = spec_.roles(static_cast<int>(*mistake.role));
      kinds_[role.kind()].complain(role.name(), mistake.what);
    } else if (mistake.role) {
      roles_[*mistake.role].complain(mistake);
    } else if (!mistake.key.empty()) {
      whole_.complain(mistake);
    } else {
      return fail(Code::invalid, "{}: the job {}", file_name_, mistake.what);
    }
    return {};
  }

  Section whole_;
  std::string_view file_name_;
  job::Spec spec_;
  std::vector<TomlReader> kinds_;  // by job::Role::Kind
  std::vector<Section> roles_;     // as in spec_
};

std::string mistake_text(const job::Spec& spec, const JobMistake& mistake) {
  std::string text;
  if (mistake.role) {
    text =
        fmt::format("role {}", quote_briefly(spec.roles(static_cast<int>(*mistake.role)).name()));
  } else if (mistake.key.empty()) {
    text = "the job";
  }
  if (!mistake.key.empty()) {
    if (mistake.role) text += ": ";
    text += mistake.section.empty()
                ? fmt::format("'{}'", mistake.key)
                : fmt::format("{} in '{}'", quote_briefly(mistake.key), mistake.section);
  }
  return text + ' ' + mistake.what;
}

}  // namespace

Result<job::Spec> parse_job_file(std::string_view text, std::string_view file_name) {
  if (text.size() > kMostJobBytes)
    return fail(Code::invalid, "{}: has {}; a job file has {} at most: keep large values elsewhere",
                file_name, format_bytes(text.size()), format_bytes(kMostJobBytes));
  TRY(TomlReader toml, TomlReader::parse(text, file_name));
  return JobFile(std::move(toml), file_name).read();
}

Result<void> check_job(const job::Spec& spec) {
  const std::vector<JobMistake> mistakes = find_job_mistakes(spec);
  if (mistakes.empty()) return {};
  std::string text;
  for (size_t i = 0; i < std::min(mistakes.size(), kMostMistakesTold); ++i) {
    if (i > 0) text += '\n';
    text += mistake_text(spec, mistakes[i]);
  }
  if (mistakes.size() > kMostMistakesTold)
    text += fmt::format("\nand {} more", mistakes.size() - kMostMistakesTold);
  return fail(Error(Code::invalid, std::move(text)));
}

}  // namespace tutti
