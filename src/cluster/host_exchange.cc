#include "cluster/host_exchange.h"

#include <algorithm>

#include "base/queue_mark.h"

namespace tutti {
namespace {

// Links of the tree heal within two seconds.
constexpr Duration kAgainPause = 1s;
// What the coordinator said of the missing is told for so long without asking again.
constexpr Duration kFresh = 500ms;
// At the end of its patience a call asks once more who is missing.
constexpr Duration kLastQuestion = 1s;
// Of one process, from its threads.
constexpr size_t kMostCalls = 64;
// Of values that another agent of this host had told: no store has this number.
constexpr uint64_t kEarlierStore = 1;

ExchangeAnswer refuse(Code code, std::string message) {
  return {.ok = false, .code = code, .gang_epoch = 0, .message = std::move(message), .value = {}};
}

std::string epoch_text(uint64_t epoch) {
  return fmt::format("{}.{}", epoch >> 32, epoch & 0xffffffff);
}

std::string seconds_text(int64_t ns) {
  return fmt::format("{:.3g} s", static_cast<double>(ns) / 1e9);
}

}  // namespace

// Stands in the list while it waits.
struct HostExchange::Call {
  Call(HostExchange& exchange, ExchangeRequest asked)
      : request(std::move(asked)), alarm(exchange.world_.clock()), calls(exchange.calls_) {
    if (request.timeout_ns >= 0)
      deadline = exchange.world_.clock().now() + Duration(request.timeout_ns);
    place = calls.insert(calls.end(), this);
  }
  ~Call() { calls.erase(place); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool late(Instant now) const { return deadline <= now; }

  ExchangeRequest request;
  Alarm alarm;
  std::list<Call*>& calls;
  std::list<Call*>::iterator place;
  Instant deadline = kNever;
  size_t role = 0;
  uint64_t gang_epoch = 0;
  bool told = false;
  std::optional<std::string> value;  // for a get
  uint64_t sequence = 0;             // in the log, before it is answered
};

HostExchange::HostExchange(ExchangeJob& job) : job_(&job), world_(job.world()) {}

Task<ExchangeAnswer> HostExchange::ask(std::shared_ptr<HostExchange> exchange,
                                       ExchangeRequest request) {
  const auto same = [&](const Call* call) { return call->request.process == request.process; };
  if (std::ranges::count_if(exchange->calls_, same) >= static_cast<ptrdiff_t>(kMostCalls))
    co_return refuse(
        Code::exhausted,
        fmt::format("{} calls of this process wait already, which is the most", kMostCalls));
  Call call(*exchange, std::move(request));
  TUTTI_QUEUE("exchange: calls of a process that wait",
              static_cast<uint64_t>(std::ranges::count_if(exchange->calls_, same)), kMostCalls);
  while (true) {
    std::optional<ExchangeAnswer> answer = exchange->answer(call);
    if (answer && answer->ok && call.sequence != 0 && exchange->job_ != nullptr) {
      Task<Result<void>> logging = exchange->job_->logged(call.sequence);
      auto logged = co_await std::move(logging);
      if (!logged) co_return refuse(Code::cancelled, "the agent ends");
    }
    if (answer) co_return std::move(*answer);
    const Instant now = exchange->world_.clock().now();
    const Instant due = call.late(now) ? call.deadline + kLastQuestion : call.deadline;
    auto woken = co_await call.alarm.until(due);
    if (!woken) co_return refuse(Code::cancelled, "the agent ends");
  }
}

std::optional<ExchangeAnswer> HostExchange::answer(Call& call) {
  if (job_ == nullptr) return refuse(Code::unavailable, "the job has ended");
  const bool late = call.late(world_.clock().now());
  if (job_->finding_out()) {
    if (!late) return {};
    return refuse(Code::deadline, "the agent was started anew and looks for its processes");
  }
  if (call.request.process >= job_->numbers().size())
    return refuse(Code::invalid, fmt::format("the job has {} processes, no number {}",
                                             job_->numbers().size(), call.request.process));
  call.role = job_->numbers().role_of(call.request.process);
  if (auto stale = refuse_stale(call)) return stale;
  if (call.gang_epoch == 0) {
    call.gang_epoch = job_->gang_epoch(call.role);
    if (!late && call.gang_epoch == 0) return {};
  }
  switch (call.request.op) {
    case ExchangeRequest::Op::barrier: return answer_barrier(call);
    case ExchangeRequest::Op::put: return answer_put(call);
    case ExchangeRequest::Op::gang: {
      auto table = job_->gang_table(call.role, call.request.round);
      if (!table) return {};
      return ExchangeAnswer{
          .gang_epoch = call.gang_epoch, .message = {}, .value = std::move(*table)};
    }
    default: return answer_get(call);
  }
}

// A process that was replaced, or one of an epoch of its gang that is over.
std::optional<ExchangeAnswer> HostExchange::refuse_stale(Call& call) const {
  const uint64_t life = job_->life_of(call.request.process);
  const uint64_t present = job_->gang_epoch(call.role);
  ExchangeAnswer over = refuse(Code::denied, "");
  over.gang_epoch = std::max<uint64_t>(present, 1);
  if (life != call.request.life) {
    over.message = fmt::format(
        "epoch {} is over for this process: rank {} {}", epoch_text(call.request.life),
        job_->numbers().index_of(call.request.process),
        life == 0 ? "was told to end" : fmt::format("was started again in {}", epoch_text(life)));
    return over;
  }
  const uint64_t believed = call.gang_epoch != 0 ? call.gang_epoch : call.request.gang_epoch;
  if (believed == 0 || present == 0 || believed == present) return {};
  over.message = fmt::format(
      "epoch {} is over: {} began when processes of this role were started again; what was put and "
      "who had arrived is forgotten, and the next call takes part in {}",
      epoch_text(believed), epoch_text(present), epoch_text(present));
  return over;
}

std::optional<ExchangeAnswer> HostExchange::answer_barrier(Call& call) {
  const ExchangeRequest& request = call.request;
  const BarrierName name{call.role, request.name};
  ExchangeAnswer done{.gang_epoch = call.gang_epoch, .message = {}, .value = {}};
  if (request.round > open_.of(name)) open_.raise(name, request.round, call.gang_epoch);
  if (request.round < open_.of(name)) {
    call.sequence = open_.entries().at(name).sequence;
    return done;
  }
  Barrier& barrier = barriers_[name];
  if (barrier.round != request.round || barrier.gang_epoch != call.gang_epoch)
    barrier = {.round = request.round, .gang_epoch = call.gang_epoch};
  if (!barrier.refused.empty()) {
    ExchangeAnswer refused = refuse(Code::unavailable, barrier.refused);
    barriers_.erase(name);
    return refused;
  }
  if (barrier.here.emplace(request.process, request.life).second) changed();
  const Instant now = world_.clock().now();
  if (!call.late(now)) return {};
  const bool fresh = barrier.missing && now - barrier.missing_at < kFresh;
  if (fresh || call.deadline + kLastQuestion <= now) return missing_text(call, barrier);
  if (!std::exchange(barrier.ask, true)) changed();
  return {};
}

ExchangeAnswer HostExchange::missing_text(const Call& call, const Barrier& barrier) const {
  std::string text = fmt::format("barrier '{}' did not open within {}; ", call.request.name,
                                 seconds_text(call.request.timeout_ns));
  if (!barrier.missing) {
    text += "the job's coordinator does not answer";
  } else {
    RangeSet ranks;
    const ProcessId first = job_->numbers().number(call.role, 0);
    for (const RangeSet::Range& range : barrier.missing->ranges())
      ranks.add(range.first - first, range.last - first);
    text += fmt::format("missing: rank{} {} of {}", ranks.size() == 1 ? "" : "s", ranks.text(),
                        job_->numbers().count(call.role));
  }
  return refuse(Code::deadline, std::move(text));
}

std::optional<ExchangeAnswer> HostExchange::answer_put(Call& call) {
  const ExchangeRequest& request = call.request;
  const auto known = values_.find(request.name);
  const bool same = known != values_.end() && known->second.process == request.process &&
                    known->second.life == request.life && known->second.serial >= request.round;
  if (!same) {
    // Of another process here that was not kept yet: the coordinator decides, one by one.
    if (known != values_.end() && known->second.kept_by == 0 && known->second.refused.empty() &&
        known->second.process != request.process)
      return call.late(world_.clock().now())
                 ? std::optional(refuse(Code::deadline, "another process here puts the same key"))
                 : std::nullopt;
    if (known != values_.end() && known->second.kept_by != 0 &&
        known->second.process != request.process)
      return refuse(Code::exists,
                    fmt::format("'{}' was put by rank {} (process {} of the job); only that one "
                                "may put it again",
                                request.name, job_->numbers().index_of(known->second.process),
                                known->second.process));
    values_[request.name] = {.process = request.process,
                             .life = request.life,
                             .gang_epoch = call.gang_epoch,
                             .serial = request.round,
                             .bytes = request.value,
                             .refused = {}};
    changed();
    return {};
  }
  if (!known->second.refused.empty()) {
    ExchangeAnswer refused = refuse(Code::exists, known->second.refused);
    values_.erase(known);
    ring_all();
    return refused;
  }
  if (known->second.kept_by != 0) {
    call.sequence = known->second.sequence;
    return ExchangeAnswer{.gang_epoch = call.gang_epoch, .message = {}, .value = {}};
  }
  if (!call.late(world_.clock().now())) return {};
  return refuse(Code::deadline,
                fmt::format("'{}' could not be put within {}; the job's coordinator "
                            "does not answer",
                            request.name, seconds_text(request.timeout_ns)));
}

std::optional<ExchangeAnswer> HostExchange::answer_get(Call& call) {
  if (call.value)
    return ExchangeAnswer{
        .gang_epoch = call.gang_epoch, .message = {}, .value = std::move(*call.value)};
  if (call.late(world_.clock().now()))
    return refuse(Code::deadline,
                  fmt::format("nobody has put '{}' in epoch {} within {}", call.request.name,
                              epoch_text(call.gang_epoch), seconds_text(call.request.timeout_ns)));
  if (!call.told) changed();
  return {};
}

void HostExchange::on_release(const cluster::Release& release) {
  if (job_ == nullptr || release.role() >= job_->numbers().roles()) return;
  if (!release.barrier().empty()) on_barrier(release);
  if (!release.key().empty()) on_value(release);
  for (const cluster::Release::Kept& kept : release.kept()) on_kept(kept);
  ring_all();
}

void HostExchange::on_barrier(const cluster::Release& release) {
  if (release.epoch() != job_->gang_epoch(release.role())) return;
  const BarrierName name{release.role(), release.barrier()};
  if (release.rounds() > open_.of(name)) {
    cluster::ExchangeRecord record;
    record.set_role(release.role());
    record.set_gang_epoch(release.epoch());
    record.set_name(release.barrier());
    record.set_rounds(release.rounds());
    const uint64_t sequence = job_->log_exchange(std::move(record));
    open_.raise(name, release.rounds(), release.epoch(), sequence);
  }
  const auto found = barriers_.find(name);
  if (found == barriers_.end()) return;
  Barrier& barrier = found->second;
  if (barrier.round < open_.of(name)) {
    barriers_.erase(found);
    return;
  }
  barrier.refused = release.refused();
  auto missing = set_from(release.missing());
  auto finished = set_from(release.finished());
  if (!missing || !finished || missing->empty() || release.rounds() != barrier.round) return;
  barrier.missing = std::move(*missing);
  barrier.missing_at = world_.clock().now();
  if (finished->empty()) return;
  const ProcessId first = job_->numbers().number(release.role(), 0);
  RangeSet ranks;
  for (const RangeSet::Range& range : finished->ranges())
    if (range.first >= first) ranks.add(range.first - first, range.last - first);
  barrier.refused = fmt::format("barrier '{}' cannot open: rank{} {} ended without coming to it",
                                release.barrier(), ranks.size() == 1 ? "" : "s", ranks.text());
}

void HostExchange::on_value(const cluster::Release& release) {
  for (Call* call : calls_) {
    if (call->request.op != ExchangeRequest::Op::get || call->request.name != release.key())
      continue;
    // One of the own role must be of the same epoch; other roles have epochs of their own.
    if (call->role == release.role() && call->gang_epoch != release.epoch()) continue;
    call->value = release.value();
  }
}

void HostExchange::on_kept(const cluster::Release::Kept& kept) {
  const auto found = values_.find(kept.key());
  if (found == values_.end() || found->second.process != kept.process() ||
      found->second.serial != kept.serial())
    return;
  Value& value = found->second;
  if (!kept.refused().empty()) {
    value.refused = kept.refused();
    return;
  }
  if (value.kept_by == 0) value.sequence = job_->log_exchange(record_of(kept.key(), value));
  value.kept_by = job_->store();
}

void HostExchange::look_again() {
  if (job_ == nullptr) return;
  drop_what_is_over();
  ring_all();
}

void HostExchange::drop_what_is_over() {
  if (job_->finding_out()) return;
  for (size_t role = 0; role < job_->numbers().roles(); ++role)
    if (job_->gang_epoch(role) != 0) open_.keep_only(role, job_->gang_epoch(role));
  std::erase_if(barriers_, [&](const auto& item) {
    return item.second.gang_epoch != job_->gang_epoch(item.first.first);
  });
  for (auto& [name, barrier] : barriers_)
    std::erase_if(barrier.here, [&](const auto& process) {
      return job_->life_of(process.first) != process.second;
    });
  std::erase_if(values_, [&](const auto& item) {
    const Value& value = item.second;
    const uint64_t life = job_->life_of(value.process);
    return (life != 0 && life != value.life) ||
           value.gang_epoch != job_->gang_epoch(job_->numbers().role_of(value.process));
  });
}

void HostExchange::close() {
  job_ = nullptr;
  ring_all();
}

void HostExchange::ring_all() {
  for (Call* call : calls_) call->alarm.ring();
}

void HostExchange::changed() {
  changed_ = true;
  job_->tell_soon();
}

bool HostExchange::anything_pending() const {
  const uint64_t store = job_->store();
  return !calls_.empty() || std::ranges::any_of(values_, [&](const auto& item) {
    return item.second.kept_by != store && item.second.refused.empty();
  });
}

Instant HostExchange::due() const { return changed_ ? Instant() : again_at_; }

void HostExchange::add_rows(cluster::JobReport& report, NodeId here, bool all) {
  const Instant now = world_.clock().now();
  const bool again = all || again_at_ <= now;
  changed_ = false;
  add_barriers(report, here, again);
  add_values(report, here, again);
  if (all) {
    for (const auto& [name, entry] : open_.entries()) {
      cluster::Row& row = *report.add_rows();
      row.set_what(cluster::Row::RELEASED);
      row.set_message(name.second);
      row.set_gang_epoch(entry.gang_epoch);
      row.set_round(entry.rounds);
      set_pairs(RangeSet(job_->numbers().number(name.first, 0)), row.mutable_processes());
    }
  }
  if (!anything_pending()) {
    again_at_ = kNever;
  } else if (again || again_at_ == kNever) {
    again_at_ = now + kAgainPause;
  }
}

void HostExchange::add_barriers(cluster::JobReport& report, NodeId here, bool again) {
  for (auto& [name, barrier] : barriers_) {
    std::map<uint64_t, RangeSet> by_life;
    for (const auto& [process, life] : barrier.here)
      if (again || barrier.ask || !barrier.told.contains(process)) by_life[life].add(process);
    for (const auto& [life, processes] : by_life) {
      cluster::Row& row = *report.add_rows();
      row.set_what(cluster::Row::ARRIVED);
      row.set_epoch(life);
      row.set_message(name.second);
      row.set_gang_epoch(barrier.gang_epoch);
      row.set_round(barrier.round);
      row.set_ask(again || barrier.ask);
      set_pairs(processes, row.mutable_processes());
      set_pairs(RangeSet(here), row.mutable_hosts());
      barrier.told.add(processes);
    }
    barrier.ask = false;
  }
}

void HostExchange::add_values(cluster::JobReport& report, NodeId here, bool again) {
  for (auto& [key, value] : values_) {
    if (value.kept_by == job_->store() || !value.refused.empty()) continue;
    if (!again && std::exchange(value.told, true)) continue;
    cluster::Row& row = *report.add_rows();
    row.set_what(cluster::Row::VALUE);
    row.set_epoch(value.life);
    row.set_message(key);
    row.set_value(value.bytes);
    row.set_gang_epoch(value.gang_epoch);
    row.set_round(value.serial);
    row.set_count(value.kept_by != 0 ? 1 : 0);
    set_pairs(RangeSet(value.process), row.mutable_processes());
    set_pairs(RangeSet(here), row.mutable_hosts());
  }
  for (Call* call : calls_) {
    const bool waits =
        call->request.op == ExchangeRequest::Op::get && call->gang_epoch != 0 && !call->value;
    if (!waits || (std::exchange(call->told, true) && !again)) continue;
    cluster::Row& row = *report.add_rows();
    row.set_what(cluster::Row::WANTED);
    row.set_message(call->request.name);
    set_pairs(RangeSet(here), row.mutable_hosts());
  }
}

cluster::ExchangeRecord HostExchange::record_of(const std::string& key, const Value& value) const {
  cluster::ExchangeRecord record;
  record.set_role(static_cast<uint32_t>(job_->numbers().role_of(value.process)));
  record.set_gang_epoch(value.gang_epoch);
  record.set_name(key);
  record.set_process(value.process);
  record.set_life(value.life);
  record.set_serial(value.serial);
  record.set_value(value.bytes);
  return record;
}

void HostExchange::restore(const cluster::ExchangeRecord& record) {
  if (record.role() >= job_->numbers().roles() || record.process() >= job_->numbers().size() ||
      record.gang_epoch() != job_->gang_epoch(record.role()))
    return;
  if (record.rounds() != 0) {
    open_.raise({record.role(), record.name()}, record.rounds(), record.gang_epoch());
    return;
  }
  values_[record.name()] = {.process = record.process(),
                            .life = record.life(),
                            .gang_epoch = record.gang_epoch(),
                            .serial = record.serial(),
                            .bytes = record.value(),
                            .kept_by = kEarlierStore,
                            .refused = {}};
}

std::vector<cluster::ExchangeRecord> HostExchange::records(uint64_t job) const {
  std::vector<cluster::ExchangeRecord> records;
  if (job_ == nullptr) return records;
  for (const auto& [name, entry] : open_.entries()) {
    cluster::ExchangeRecord& record = records.emplace_back();
    record.set_role(static_cast<uint32_t>(name.first));
    record.set_gang_epoch(entry.gang_epoch);
    record.set_name(name.second);
    record.set_rounds(entry.rounds);
  }
  for (const auto& [key, value] : values_)
    if (value.kept_by != 0) records.push_back(record_of(key, value));
  for (cluster::ExchangeRecord& record : records) record.set_job(job);
  return records;
}

}  // namespace tutti
