#include "cli/top_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/job_processes.h"

namespace tutti::cli {
namespace {

using Kind = Key::Kind;

constexpr size_t kLongestFilter = 64;

bool holds(const TopRow& row, const std::string& filter) {
  return std::ranges::any_of(row.cells, [&](const Cell& cell) {
    const auto same = [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) ==
             std::tolower(static_cast<unsigned char>(b));
    };
    return !std::ranges::search(cell.text, filter, same).empty();
  });
}

bool before(const Cell& a, const Cell& b) {
  if (a.number && b.number) return *a.number < *b.number;
  return a.text < b.text;
}

}  // namespace

TopModel::TopModel(uint64_t job) {
  if (job == 0) return;
  level_ = Level::roles;
  job_ = job;
  frames_.push_back({fmt::format("{}", job), ""});
}

void TopModel::take(Look look) {
  look_ = std::move(look);
  looked_ = true;
  rebuild();
}

void TopModel::set_height(size_t rows) {
  height_ = std::max<size_t>(1, rows);
  move(0);
}

Wish TopModel::wish() const {
  Wish wish{.ended_jobs = ended_jobs_, .job = job_, .hosts = {}};
  if (level_ == Level::processes) wish.hosts = RangeSet(host_);
  if (level_ != Level::hosts) return wish;
  wish.hosts = RangeSet();
  for (size_t i = first_; i < table_.rows.size() && i < first_ + height_; ++i)
    wish.hosts->add(table_.rows[i].host);
  return wish;
}

std::vector<std::string> TopModel::trail() const {
  std::vector<std::string> trail = {ended_jobs_ ? "all jobs" : "jobs"};
  if (level_ >= Level::roles)
    trail.push_back(look_.job && look_.job->job() == job_
                        ? fmt::format("{} {}", job_, look_.job->name())
                        : fmt::format("{}", job_));
  if (level_ >= Level::hosts) trail.push_back(role_);
  if (level_ >= Level::processes) trail.push_back(host_name(look_, host_));
  if (!only_.empty()) trail.push_back(fmt::format("{} of them", only_.size()));
  return trail;
}

std::optional<std::string> TopModel::question() const {
  if (!asked_) return {};
  if (asked_->kind == TopAction::Kind::kill_job)
    return fmt::format("end job {}, with its grace? y/n", asked_->job);
  std::string who = fmt::format("{} processes", asked_->processes.size());
  if (asked_->processes.size() == 1 && look_.job)
    who = process_name(asked_->processes.front(), *look_.job);
  return fmt::format("send SIGTERM to {} of job {}? y/n", who, asked_->job);
}

void TopModel::rebuild() {
  const ProcessesShown shown{
      .role = role_, .host = host_, .folded = folded_ && only_.empty(), .only = only_};
  switch (level_) {
    case Level::jobs: table_ = jobs_table(look_); break;
    case Level::roles: table_ = roles_table(look_); break;
    case Level::hosts: table_ = hosts_table(look_, role_); break;
    case Level::processes: table_ = processes_table(look_, shown); break;
  }
  if (!filter_.empty())
    std::erase_if(table_.rows, [&](const TopRow& r) { return !holds(r, filter_); });
  const Sort sort = sorts_[static_cast<size_t>(level_)];
  std::ranges::stable_sort(table_.rows, [&](const TopRow& a, const TopRow& b) {
    return sort.descending ? before(b.cells[sort.column], a.cells[sort.column])
                           : before(a.cells[sort.column], b.cells[sort.column]);
  });
  const auto same = std::ranges::find(table_.rows, key_, &TopRow::key);
  if (same != table_.rows.end()) selected_ = static_cast<size_t>(same - table_.rows.begin());
  move(0);
}

void TopModel::move(int64_t by) {
  const auto last = static_cast<int64_t>(table_.rows.size()) - 1;
  const int64_t wanted = static_cast<int64_t>(selected_) + by;
  selected_ = static_cast<size_t>(std::clamp<int64_t>(wanted, 0, std::max<int64_t>(0, last)));
  if (row() != nullptr && (by != 0 || key_.empty())) key_ = row()->key;
  const size_t most = table_.rows.size() - std::min(table_.rows.size(), height_);
  first_ = std::min({first_, selected_, most});
  if (selected_ >= first_ + height_) first_ = selected_ - height_ + 1;
}

void TopModel::choose_column(int by) {
  Sort& sort = sorts_[static_cast<size_t>(level_)];
  const size_t columns = table_.columns.size();
  if (columns == 0) return;
  sort.column = (sort.column + (by < 0 ? columns - 1 : 1)) % columns;
  rebuild();
}

TopAction TopModel::enter() {
  const TopRow* chosen = row();
  if (chosen == nullptr) return {};
  if (level_ == Level::processes && (!only_.empty() || chosen->processes.size() == 1)) return {};
  frames_.push_back({chosen->key, filter_});
  switch (level_) {
    case Level::jobs:
      job_ = chosen->job;
      level_ = Level::roles;
      break;
    case Level::roles:
      role_ = chosen->role;
      level_ = Level::hosts;
      break;
    case Level::hosts:
      host_ = chosen->host;
      level_ = Level::processes;
      break;
    case Level::processes: only_ = chosen->processes; break;
  }
  filter_ = key_ = "";
  selected_ = first_ = 0;
  rebuild();
  return {.kind = TopAction::Kind::look};
}

TopAction TopModel::leave() {
  if (!filter_.empty()) {
    filter_ = "";
    rebuild();
    return {};
  }
  if (level_ == Level::jobs) return {};
  if (!only_.empty()) {
    only_ = {};
  } else {
    level_ = static_cast<Level>(static_cast<int>(level_) - 1);
  }
  if (level_ == Level::jobs) {
    job_ = 0;
    look_.job.reset();
  }
  key_ = frames_.back().selected;
  filter_ = frames_.back().filter;
  frames_.pop_back();
  selected_ = first_ = 0;
  rebuild();
  return {.kind = TopAction::Kind::look};
}

void TopModel::ask_to_end() {
  if (level_ == Level::processes) {
    if (row() != nullptr)
      asked_ = TopAction{TopAction::Kind::end_processes, job_, row()->processes};
    return;
  }
  const uint64_t job = level_ == Level::jobs && row() != nullptr ? row()->job : job_;
  if (job != 0) asked_ = TopAction{TopAction::Kind::kill_job, job, {}};
}

TopAction TopModel::press_in_filter(const Key& key) {
  if (key.kind == Kind::enter) filtering_ = false;
  if (key.kind == Kind::escape) {
    filtering_ = false;
    filter_ = "";
  }
  if (key.kind == Kind::backspace && !filter_.empty()) {
    while ((filter_.back() & 0xc0) == 0x80 && filter_.size() > 1) filter_.pop_back();
    filter_.pop_back();
  }
  if (key.kind == Kind::text && filter_.size() < kLongestFilter) filter_ += key.text;
  rebuild();
  return {};
}

TopAction TopModel::press_letter(const std::string& letter) {
  Sort& sort = sorts_[static_cast<size_t>(level_)];
  if (letter == "q") return {.kind = TopAction::Kind::quit};
  if (letter == "?" || letter == "h") help_ = true;
  if (letter == "/") filtering_ = true;
  if (letter == "k") ask_to_end();
  if (letter == "<") choose_column(-1);
  if (letter == ">") choose_column(1);
  if (letter == "r") sort.descending = !sort.descending;
  if (letter == "f") folded_ = !folded_;
  if (letter == "a") ended_jobs_ = !ended_jobs_;
  if (letter == "p" || letter == " ") paused_ = !paused_;
  rebuild();
  if (letter == "a" || letter == "p" || letter == " ")
    return {.kind = paused_ && letter != "a" ? TopAction::Kind::none : TopAction::Kind::look};
  return {};
}

TopAction TopModel::press(const Key& key) {
  if (key.kind == Kind::control && key.text == "c") return {.kind = TopAction::Kind::quit};
  if (key.kind == Kind::control && key.text == "z") return {.kind = TopAction::Kind::suspend};
  if (asked_) {
    const TopAction action = *std::exchange(asked_, {});
    return key.is("y") || key.is("Y") ? action : TopAction();
  }
  if (help_) {
    help_ = false;
    return {};
  }
  if (filtering_) return press_in_filter(key);
  const auto page = static_cast<int64_t>(height_);
  switch (key.kind) {
    case Kind::up: move(-1); break;
    case Kind::down: move(1); break;
    case Kind::page_up: move(-page); break;
    case Kind::page_down: move(page); break;
    case Kind::home: move(-static_cast<int64_t>(table_.rows.size())); break;
    case Kind::end: move(static_cast<int64_t>(table_.rows.size())); break;
    case Kind::left: choose_column(-1); break;
    case Kind::right: choose_column(1); break;
    case Kind::enter: return enter();
    case Kind::escape:
    case Kind::backspace: return leave();
    case Kind::text: return press_letter(key.text);
    case Kind::control: break;
  }
  return {};
}

}  // namespace tutti::cli
