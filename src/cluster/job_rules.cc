#include "cluster/job_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/suggest.h"
#include "cluster/gang.h"
#include "cluster/job_limits.h"
#include "cluster/job_words.h"
#include "cluster/role_order.h"
#include "cluster/spare_command.h"

namespace tutti {
namespace {

// Enough to recognise it in a message.
constexpr size_t kMostQuotedBytes = 80;
constexpr int kHighestSignal = 64;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_letter_or_digit(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }
bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMostNameBytes && is_letter_or_digit(text.front()) &&
         std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
         });
}

// "torch.nn": words of letters, digits and underscores. Python's others are not worth the rules.
bool is_module(std::string_view text) {
  bool word_begins = true;
  for (const char c : text) {
    const bool fits =
        is_letter(c) || c == '_' || (!word_begins && (c == '.' || (c >= '0' && c <= '9')));
    if (!fits) return false;
    word_begins = c == '.';
  }
  return !word_begins;
}

// What can be sent in the first line of an HTTP request.
bool is_url_path(std::string_view text) {
  return text.starts_with('/') &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
}

// Those that are different in every process.
std::set<std::string, std::less<>> variables_set_by_us() {
  std::set<std::string, std::less<>> variables;
  for (const std::string& setting : rank_environment(0, 1))
    variables.insert(setting.substr(0, setting.find('=')));
  return variables;
}

std::string name_rule() {
  return fmt::format(
      "1 to {} letters, digits, '-', '_' or '.', of which the first is a letter or digit",
      kMostNameBytes);
}

// Adds mistakes about the job, or about one role.
class Complaints {
 public:
  Complaints(std::vector<JobMistake>& mistakes, std::optional<size_t> role)
      : mistakes_(mistakes), role_(role) {}

  template <class... Args>
  void add(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    add_in("", key, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void add_in(std::string_view section, std::string_view key, fmt::format_string<Args...> format,
              Args&&... args) {
    mistakes_.push_back({.role = role_,
                         .section = std::string(section),
                         .key = std::string(key),
                         .what = fmt::format(format, std::forward<Args>(args)...)});
  }

 private:
  std::vector<JobMistake>& mistakes_;
  std::optional<size_t> role_;
};

void check_number(Complaints& complaints, std::string_view section, std::string_view key,
                  int64_t value, JobLimits limits) {
  if (!limits.allow(value))
    complaints.add_in(section, key, "must be from {} to {}, not {}", limits.least, limits.most,
                      value);
}

void check_time(Complaints& complaints, std::string_view section, std::string_view key,
                int64_t value_ns, Duration least = 0s) {
  if (value_ns < to_ns(least) || value_ns > to_ns(kLongestJobTime))
    complaints.add_in(section, key, "must be a time {}, up to {}h",
                      least > 0s ? "longer than 0" : "that is not negative",
                      std::chrono::floor<std::chrono::hours>(kLongestJobTime).count());
}

template <class Settings>
void check_environment(Complaints& complaints, const Settings& settings) {
  const auto set_by_us = variables_set_by_us();
  std::set<std::string_view> seen;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    const std::string_view variable = std::string_view(setting).substr(0, equals);
    if (equals == 0 || equals == std::string::npos) {
      complaints.add("environment", "has {}; write a name and a value: KEY=value",
                     quote_briefly(setting));
    } else if (has_nul(setting)) {
      complaints.add_in("environment", variable,
                        "has a NUL byte, where a process would cut it off");
    } else if (set_by_us.contains(variable)) {
      complaints.add_in("environment", variable, "is different in every process and set by tutti");
    } else if (!seen.insert(variable).second) {
      complaints.add_in("environment", variable, "is set twice; leave one");
    }
  }
}

template <class Words>
void check_command(Complaints& complaints, std::string_view section, const Words& words) {
  if (words.empty() || words[0].empty()) {
    complaints.add_in(section, "command", R"(is missing; write: command = ["python", "train.py"])");
  } else if (std::ranges::any_of(words, has_nul)) {
    complaints.add_in(section, "command", "has a NUL byte, where the program would cut it off");
  }
}

class RoleRules {
 public:
  RoleRules(const job::Spec& spec, size_t index, const std::map<std::string_view, size_t>& by_name,
            std::vector<JobMistake>& mistakes)
      : spec_(spec),
        role_(spec.roles(static_cast<int>(index))),
        index_(index),
        by_name_(by_name),
        complaints_(mistakes, index) {}

  void check() {
    if (!job::Role::Kind_IsValid(role_.kind())) {
      complaints_.add("", "is of kind {}, which this version does not know", int{role_.kind()});
      return;
    }
    check_name();
    check_sizes();
    check_command(complaints_, "", role_.command());
    check_environment(complaints_, role_.environment());
    if (has_nul(role_.folder())) complaints_.add("folder", "has a NUL byte; write a path");
    check_beside();
    check_needs();
    if (!job::Strategy_IsValid(role_.strategy()))
      complaints_.add("strategy", "must be one of {}", fmt::join(kStrategyWords, ", "));
    check_budgets();
    check_escalation();
    check_health();
    check_spares();
    check_time(complaints_, "", "hang_after", role_.hang_after_ns());
    if (role_.hang_after_ns() != 0 && !is_work())
      complaints_.add("hang_after", "is for gangs and tasks; a service is watched with 'health'");
  }

 private:
  bool is(job::Role::Kind kind) const { return role_.kind() == kind; }
  // It has an end of its own.
  bool is_work() const { return is(job::Role::GANG) || is(job::Role::TASK); }
  std::string_view kind_word() const { return kKindWords[role_.kind()]; }

  void check_name() {
    if (!is_name(role_.name())) {
      complaints_.add("", "needs another name: {}", name_rule());
    } else if (by_name_.at(role_.name()) != index_) {
      complaints_.add("", "has the name of another role; give each its own");
    }
  }

  void check_sizes() {
    check_number(complaints_, "", "per_host", role_.per_host(), kPerHostLimits);
    check_number(complaints_, "", "slots", role_.slots(),
                 {is_work() ? 1 : kSlotsLimits.least, kSlotsLimits.most});
    if (!is(job::Role::SIDECAR)) {
      check_number(complaints_, "", "count", role_.count(), kCountLimits);
      return;
    }
    for (const auto& [key, value] :
         {std::pair("count", role_.count()), std::pair("per_host", role_.per_host())}) {
      if (value != 0)
        complaints_.add(key, "is not for sidecars: there is one beside each process of its role");
    }
    if (role_.slots() != 0)
      complaints_.add("slots",
                      "is not for sidecars: they take no slots of their own; let the processes of "
                      "their role take as many more");
  }

  void check_beside() {
    if (!is(job::Role::SIDECAR)) {
      if (!role_.beside().empty())
        complaints_.add("beside", "is for sidecars; write [sidecar.{}] instead", role_.name());
    } else if (role_.beside().empty()) {
      complaints_.add("beside", "is missing; write the role that this is beside");
    } else if (const job::Role* host = find_role("beside", role_.beside());
               host != nullptr && host->kind() == job::Role::SIDECAR) {
      complaints_.add("beside", "names a sidecar; write the role that '{}' is beside",
                      host->name());
    }
  }

  void check_needs() {
    if (is(job::Role::SIDECAR) && !role_.needs().empty()) {
      complaints_.add("needs", "is not for sidecars: they start with their role; write it there");
      return;
    }
    for (const std::string& name : role_.needs()) {
      const job::Role* need = find_role("needs", name);
      if (need != nullptr && need->kind() == job::Role::SIDECAR)
        complaints_.add("needs", "names a sidecar; write the role that '{}' is beside",
                        need->name());
    }
  }

  // Complains when there is none.
  const job::Role* find_role(std::string_view key, std::string_view name) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return &spec_.roles(static_cast<int>(found->second));
    std::vector<std::string_view> names;
    for (const auto& [known, index] : by_name_)
      if (index != index_) names.push_back(known);
    const auto meant = is_name(name) ? suggest(name, names) : std::nullopt;
    complaints_.add(key, "names {}, but no role has that name{}", quote_briefly(name),
                    meant ? fmt::format("; did you mean '{}'?", *meant) : "");
    return nullptr;
  }

  void check_budgets() {
    std::set<job::ErrorClass> seen;
    for (const job::Budget& budget : role_.budgets()) {
      if (!job::ErrorClass_IsValid(budget.error())) {
        complaints_.add("restarts", "has error class {}, which this version does not know",
                        int{budget.error()});
        continue;
      }
      const std::string_view word = kErrorWords[budget.error()];
      if (!seen.insert(budget.error()).second)
        complaints_.add_in("restarts", word, "is there twice; leave one");
      if (budget.restarts() != kAlwaysRestart)
        check_number(complaints_, "restarts", word, budget.restarts(), kRestartsLimits);
      if (budget.error() == job::NONE && is_work())
        complaints_.add_in("restarts", word,
                           "is for services and sidecars; a {} that finished is done", kind_word());
    }
    // A file has these once for all.
    if (!role_.budgets().empty()) check_pace(role_.budgets(0));
    for (const job::Budget& budget : role_.budgets()) {
      if (&budget != &role_.budgets(0) && !same_pace(budget, role_.budgets(0))) check_pace(budget);
    }
  }

  void check_escalation() {
    std::set<job::Scope> seen;
    for (const job::Escalation& escalation : role_.escalate()) {
      if (!job::Scope_IsValid(escalation.scope()) || escalation.scope() == job::PROCESS) {
        complaints_.add("escalate", "has scope {}, which this version does not know",
                        int{escalation.scope()});
        continue;
      }
      const std::string_view word = kScopeWords[escalation.scope()];
      if (!seen.insert(escalation.scope()).second)
        complaints_.add_in("escalate", word, "is there twice; leave one");
      check_number(complaints_, "escalate", word, escalation.restarts(), kRestartsLimits);
    }
    if (!seen.empty() && role_.budgets().empty())
      complaints_.add("escalate",
                      "comes after 'restarts', and nothing of this role is restarted; allow that "
                      "there");
  }

  static bool same_pace(const job::Budget& one, const job::Budget& other) {
    return one.period_ns() == other.period_ns() && one.delay_ns() == other.delay_ns() &&
           one.longest_delay_ns() == other.longest_delay_ns();
  }

  void check_pace(const job::Budget& budget) {
    check_time(complaints_, "restarts", "period", budget.period_ns());
    check_time(complaints_, "restarts", "delay", budget.delay_ns());
    check_time(complaints_, "restarts", "longest_delay", budget.longest_delay_ns());
    if (budget.longest_delay_ns() < budget.delay_ns())
      complaints_.add_in("restarts", "longest_delay", "must not be shorter than 'delay'");
  }

  void check_health() {
    if (!role_.has_health()) return;
    const job::Health& health = role_.health();
    if (!is(job::Role::SERVICE)) {
      complaints_.add("health", "is for services{}",
                      is_work() ? "; watch a gang or task with 'hang_after'" : "");
      return;
    }
    if ((health.port() != 0) == !health.command().empty())
      complaints_.add("health", "needs either a port or a command");
    if (health.port() != 0) check_number(complaints_, "health", "port", health.port(), kPortLimits);
    if (!health.command().empty()) check_command(complaints_, "health", health.command());
    if (!health.path().empty() && health.port() == 0)
      complaints_.add_in("health", "path", "needs a port to ask at");
    if (!health.path().empty() && !is_url_path(health.path()))
      complaints_.add_in("health", "path",
                         "must begin with '/' and have no spaces, as in \"/health\"");
    check_time(complaints_, "health", "every", health.every_ns(), 1ns);
    check_time(complaints_, "health", "timeout", health.timeout_ns(), 1ns);
    check_time(complaints_, "health", "start", health.start_ns());
    check_number(complaints_, "health", "failures", health.failures(), kHealthFailuresLimits);
  }

  void check_spares() {
    check_number(complaints_, "", "spares", role_.spares(), kSparesLimits);
    if (role_.spares() != 0 && !is(job::Role::GANG))
      complaints_.add("spares", "is for gangs; a {} starts afresh", kind_word());
    if (!role_.preload().empty() && role_.spares() == 0)
      complaints_.add("preload", "is what spares import, and there are none; add: spares = 1");
    if (role_.spares() != 0 && is(job::Role::GANG) && !role_.command().empty())
      if (auto parked = spare_command(role_); !parked)
        complaints_.add("spares", "{}", parked.error().message());
    for (const std::string& module : role_.preload()) {
      if (!is_module(module))
        complaints_.add("preload", "has {}, which is no name of a Python module",
                        quote_briefly(module));
    }
  }

  const job::Spec& spec_;
  const job::Role& role_;
  size_t index_;
  const std::map<std::string_view, size_t>& by_name_;
  Complaints complaints_;
};

void check_notice(Complaints& complaints, const job::Spec& spec) {
  check_time(complaints, "", "notice", spec.notice_ns());
  const int signal = spec.notice_signal();
  if (signal < 0 || signal > kHighestSignal || signal == SIGKILL || signal == SIGSTOP)
    complaints.add("notice_signal", "must be a signal that a process can hear, as SIGUSR1, not {}",
                   signal);
}

void check_whole(Complaints& complaints, const job::Spec& spec) {
  if (!is_name(spec.name())) complaints.add("name", "must be {}", name_rule());
  if (!job::Strategy_IsValid(spec.strategy()))
    complaints.add("strategy", "must be one of {}", fmt::join(kStrategyWords, ", "));
  check_environment(complaints, spec.environment());
  if (has_nul(spec.folder()) || !(spec.folder().empty() || spec.folder().starts_with('/')))
    complaints.add("folder", "must begin with '/'; left out, it is where the job is submitted");
  check_time(complaints, "", "grace", spec.grace_ns());
  check_time(complaints, "", "timeout", spec.timeout_ns());
  check_notice(complaints, spec);
  check_number(complaints, "", "open_files",
               static_cast<int64_t>(std::min<uint64_t>(spec.open_files(), INT64_MAX)),
               kOpenFilesLimits);
}

// What can be said of the roles together once each is well.
void check_together(std::vector<JobMistake>& mistakes, const job::Spec& spec) {
  const auto name_of = [&](size_t role) { return spec.roles(static_cast<int>(role)).name(); };
  if (const auto cycle = needs_cycle(spec); !cycle.empty()) {
    std::string ring;
    for (const size_t role : cycle) ring += name_of(role) + " → ";
    Complaints(mistakes, cycle.front())
        .add("needs", "go round, so that none could start: {}{}; take out one of them", ring,
             name_of(cycle.front()));
  }
  uint64_t processes = 0;
  for (size_t role = 0; role < static_cast<size_t>(spec.roles_size()); ++role)
    processes += process_count(spec, role);
  if (processes > static_cast<uint64_t>(kCountLimits.most))
    Complaints(mistakes, std::nullopt)
        .add("", "has {} processes; {} is the most", processes, kCountLimits.most);
}

}  // namespace

std::string quote_briefly(std::string_view text) {
  const bool whole = text.size() <= kMostQuotedBytes;
  return fmt::format("{:?}{}", text.substr(0, kMostQuotedBytes), whole ? "" : "…");
}

std::vector<JobMistake> find_job_mistakes(const job::Spec& spec) {
  std::vector<JobMistake> mistakes;
  Complaints of_job(mistakes, std::nullopt);
  if (spec.ByteSizeLong() > kMostJobBytes) {
    of_job.add("", "takes {}; {} is the most: keep large values in files",
               format_bytes(spec.ByteSizeLong()), format_bytes(kMostJobBytes));
    return mistakes;
  }
  check_whole(of_job, spec);
  const auto roles = static_cast<size_t>(spec.roles_size());
  if (roles == 0) of_job.add("", "has no role; add one, as [gang.worker] with a command");
  if (roles > kMostRoles) {
    of_job.add("", "has {} roles; {} is the most: one role may have many processes", roles,
               kMostRoles);
    return mistakes;
  }
  std::map<std::string_view, size_t> by_name;
  for (size_t role = 0; role < roles; ++role)
    by_name.emplace(spec.roles(static_cast<int>(role)).name(), role);
  for (size_t role = 0; role < roles; ++role) RoleRules(spec, role, by_name, mistakes).check();
  if (mistakes.empty()) check_together(mistakes, spec);
  return mistakes;
}

}  // namespace tutti
