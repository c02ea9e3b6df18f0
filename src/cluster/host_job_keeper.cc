// What a job on a host makes of its keeper's answers.
#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "cluster/host_job.h"
#include "cluster/keeper_messages.h"
#include "cluster/rank_starter.h"
#include "cluster/supervision.h"

namespace tutti {
namespace {

// A keeper knows its ranks by their numbers; people know them by their roles, if there are several.
Error named_by_role(const Error& why, const RangeSet& processes, const job::Spec& spec) {
  if (spec.roles_size() == 1 && spec.roles(0).kind() == job::Role::GANG) return why;
  const JobNumbers numbers(spec);
  Error named(why.code(), why.message());
  for (std::string doing : why.contexts()) {
    for (const ProcessId process : processes.members()) {
      if (doing != "start " + RankName{false, process}.text()) continue;
      const auto role = static_cast<int>(numbers.role_of(process));
      doing = fmt::format("start {} {}", spec.roles(role).name(), numbers.index_of(process));
      break;
    }
    named = named.context(doing);
  }
  return named;
}

}  // namespace

void HostJob::on_keeper_frame(KeeperFrame frame) {
  switch (frame.kind) {
    case KeeperMessage::spawned: on_spawned(std::move(frame)); break;
    case KeeperMessage::exited: on_exited(frame); break;
    case KeeperMessage::arenas: on_arenas(std::move(frame)); break;
    case KeeperMessage::failure: on_failure(frame); break;
    case KeeperMessage::done: on_done(); break;
    default: break;
  }
  alarm_.ring();
}

KeeperOwes HostJob::keeper_owes() const {
  const auto leaves = [](const auto& entry) {
    return entry.second.stopping && entry.second.phase != Phase::exited;
  };
  if (end_ || resetting_) return KeeperOwes::end;
  if (std::ranges::any_of(processes_, leaves)) return KeeperOwes::stop;
  return adopting_ || !asked_.empty() ? KeeperOwes::answer : KeeperOwes::nothing;
}

// Its ranks are well for all we know: whatever is asked of it waits.
void HostJob::on_keeper_silent() {
  TUTTI_LOG(warn, "a keeper does not answer for 30 s, and is waited for; does a file system hang?",
            {{"job", job_}, {"keeper", keeper_->path()}, {"pid", keeper_->pid()}});
}

// What the keeper answers now.
HostJob::Asked HostJob::take_asked() {
  Asked asked = std::move(asked_.front());
  asked_.erase(asked_.begin());
  if (asked_.empty()) asked_.shrink_to_fit();
  return asked;
}

void HostJob::on_done() {
  if (asked_.empty()) {
    if (resetting_) reset_answer_ = std::make_unique<std::string>();
    return;
  }
  const Asked asked = take_asked();
  if (asked.what == Asked::What::assign) on_assigned(asked);
}

void HostJob::on_spawned(KeeperFrame frame) {
  keeper::Spawned spawned;
  if (!frame.parse(spawned)) return;
  size_t next = 0;
  for (const keeper::Spawned::Rank& rank : spawned.ranks()) {
    const size_t handles = std::min<size_t>(rank.handles(), frame.handles.size() - next);
    if (rank.spare()) {
      std::vector<Handle> outputs;
      for (size_t i = 0; i < handles; ++i) outputs.push_back(std::move(frame.handles[next + i]));
      on_spare_spawned(rank, std::move(outputs));
      next += handles;
      continue;
    }
    if (is_check(rank.rank())) {
      // Of an agent before us, which knew what it was for.
      if (adopting_) kill_check(rank.rank() - kFirstCheck);
      continue;
    }
    if (adopting_) processes_[rank.rank()].epoch = rank.epoch();
    const auto known = processes_.find(rank.rank());
    if (known != processes_.end()) {
      Local& local = known->second;
      local.pid = static_cast<pid_t>(rank.pid());
      if (local.phase == Phase::starting && !rank.ended()) {
        local.phase = Phase::running;
        begins(rank.rank(), local);
      }
      cluster::ProcessEvent started;
      started.set_process(rank.rank());
      started.set_pid(rank.pid());
      started.set_epoch(local.epoch);
      output_->note(std::move(started));
      if (rank.has_control_offset()) take_slot(local, rank.control_offset() / kControlPageBytes);
      for (size_t i = 0; i < handles; ++i) {
        const auto stream = static_cast<uint8_t>(i + 1);
        (void)output_->read_from(rank.rank(), stream, std::move(frame.handles[next + i]));
      }
    }
    next += handles;
  }
  TUTTI_LOG(debug, "spawned",
            {{"job", job_}, {"count", spawned.ranks_size()}, {"last", spawned.last()}});
  if (!spawned.last()) return;
  report_due_ = true;
  if (!adopting_ && !asked_.empty()) take_asked();
}

// The keeper has told all that it has.
void HostJob::finish_adopting() {
  adopting_ = false;
  pages_unsure_ = true;
  report_due_ = true;
  take_gone_from_record();
  keep_looks_of_ended();
  if (!end_) settle();
}

void HostJob::take_slot(Local& local, uint64_t slot) {
  local.slot = static_cast<uint32_t>(slot);
  if (slots_.size() <= slot) slots_.resize(slot + 1);
  slots_[slot] = true;
}

void HostJob::on_arenas(KeeperFrame frame) {
  keeper::Arenas arenas;
  if (!frame.parse(arenas)) return;
  const size_t count = std::min<size_t>(arenas.arenas_size(), frame.handles.size());
  bool answers = true;
  for (size_t i = 0; i < count; ++i) {
    const keeper::Arenas::Arena& arena = arenas.arenas(static_cast<int>(i));
    if (arena.name() == kHeapArena) {
      take_heap(std::move(frame.handles[i]));
      answers = adopting_;  // else it comes with a Spawned
    } else {
      take_pages(frame.handles[i], arena.size_bytes());
    }
  }
  if (adopting_ && arenas.last()) {
    finish_adopting();
  } else if (answers && !asked_.empty() && asked_.front().what == Asked::What::arena) {
    take_asked();
  }
}

void HostJob::take_pages(const Handle& arena, uint64_t bytes) {
  auto pages = ControlPages::open(world_, arena);
  if (!pages) {
    TUTTI_LOG(warn, "no control pages", {{"job", job_}, {"why", pages.error().text()}});
    return;
  }
  pages_ = std::move(*pages);
  pages_capacity_ = static_cast<uint32_t>(bytes / kControlPageBytes);
}

void HostJob::on_failure(const KeeperFrame& frame) {
  keeper::Failure failure;
  if (!frame.parse(failure)) return;
  const Error error = to_error(failure);
  TUTTI_LOG(debug, "keeper failure", {{"job", job_}, {"why", error.text()}});
  if (asked_.empty() && resetting_) {
    reset_answer_ = std::make_unique<std::string>(error.text());
    return;
  }
  const bool unasked = asked_.empty();
  const Asked asked = unasked ? Asked{.what = Asked::What::arena} : take_asked();
  if (asked.what == Asked::What::assign) return on_not_assigned(asked, error);
  if (asked.what == Asked::What::spares) forget_unstarted_spares();
  if (asked.what != Asked::What::ranks) {
    TUTTI_LOG(warn, "the keeper refuses", {{"job", job_}, {"why", error.text()}});
    return;
  }
  if (is_check(asked.processes.front())) return on_check_refused(asked.processes.front(), error);
  const Error told = named_by_role(error, asked.processes, directive().spec());
  for (const ProcessId process : asked.processes.members()) {
    Local& local = processes_[process];
    end_without_keeper(local);
    local.row().set_what(cluster::Row::NOT_STARTED);
    local.row().set_message(told.text());
    local.row().set_count(static_cast<uint64_t>(told.code()));
    local.row().mutable_exit()->set_error(job::NOT_STARTED);
  }
  report_due_ = true;
}

void HostJob::on_exited(const KeeperFrame& frame) {
  keeper::Exited exited;
  if (!frame.parse(exited)) return;
  TUTTI_LOG(debug, "exited", {{"job", job_}, {"count", exited.ranks_size()}});
  for (const uint32_t process : exited.failing()) {
    const auto known = processes_.find(process);
    if (known != processes_.end() && known->second.phase == Phase::running)
      known->second.failing = !known->second.stopping && !noticed_;
  }
  for (const keeper::Exited::Rank& rank : exited.ranks()) {
    if (rank.spare()) {
      on_spare_exited(rank);
    } else if (is_check(rank.rank())) {
      on_check_exited(rank);
    } else {
      note_exit(rank.rank(), rank);
    }
  }
  report_due_ = true;
}

void HostJob::acknowledge(uint64_t sequence) {
  keeper::Acknowledge message;
  message.add_sequences(sequence);
  keeper_->send(KeeperMessage::acknowledge, message);
}

// Who sent what ended it; shells return 128 + signal for what they ran.
std::string HostJob::signalled_by(ProcessId process, uint64_t epoch, const Exit& exit) const {
  constexpr int kShellSignalBase = 128;
  const auto found = signalled_.get().find(process);
  if (found == signalled_.get().end() || found->second.epoch != epoch) return "";
  const int number = found->second.number;
  if (exit.signal != number && exit.code != kShellSignalBase + number) return "";
  return found->second.by.empty() ? "somebody" : found->second.by;
}

void HostJob::note_exit(ProcessId process, const keeper::Exited::Rank& rank) {
  // Those of before we came are told before anything else.
  if (adopting_) processes_[process].epoch = rank.epoch();
  const auto known = processes_.find(process);
  if (known == processes_.end()) return;
  // Keepers of version 1 know no epochs. One of before that was given up holds its number until
  // now.
  if (rank.epoch() != 0 && known->second.epoch != rank.epoch()) {
    cluster::Exit late;
    late.set_code(rank.code());
    late.set_signal(rank.signal());
    host_.noted(job_, rank.epoch(), process, late);
    return acknowledge(rank.sequence());
  }
  Local& local = known->second;
  sequences_.emplace_back(rank.sequence(), process);
  const Exit exit = to_exit(rank);
  local.phase = Phase::exited;
  if (health_ != nullptr) health_->forget(process);
  local.row().clear_message();
  local.row().set_what(cluster::Row::EXITED);
  cluster::Exit& told = *local.row().mutable_exit();
  told.set_code(exit.code);
  told.set_signal(exit.signal);
  const bool by_us = local.stopping || noticed_;
  told.set_by_us(by_us);
  told.set_error(classify_exit(exit, by_us, exit.out_of_memory));
  const std::string by = by_us ? std::string() : signalled_by(process, local.epoch, exit);
  if (!by.empty()) local.row().set_message(fmt::format("by {}, with `tutti signal`", by));
  host_.noted(job_, local.epoch, process, told);
  // Times and memory differ between processes that otherwise ended alike: they would not fold.
  cluster::ProcessEvent event;
  event.set_process(process);
  event.set_pid(rank.pid());
  event.set_epoch(local.epoch);
  // One that somebody asked us to send was not sent to end it for the job's sake.
  if (by_us) event.set_signal_sent(rank.last_signal_sent());
  if (by_us) event.set_outlived_grace(rank.outlived_grace());
  event.set_signalled_by(by);
  event.set_core_dumped(rank.core_dumped());
  *event.mutable_exit() = told;
  event.mutable_exit()->set_user_time_ns(rank.user_time_ns());
  event.mutable_exit()->set_system_time_ns(rank.system_time_ns());
  event.mutable_exit()->set_peak_memory_bytes(rank.peak_memory_bytes());
  event.mutable_exit()->set_lived_ns(rank.lived_ns());
  output_->note(std::move(event));
  keep_end_of(process, local);
  local.stopping = false;
  if (exchange_ != nullptr) exchange_->look_again();
}

void HostJob::on_keeper_gone(const Error& why) {
  if (keeper_ != nullptr) lost_keeper_.change() = keeper_->path();
  keeper_ = nullptr;
  keeper_error_ = why;
  // The next keeper has nothing of what this one had.
  pages_.reset();
  if (looks_ != nullptr) looks_->forget_heap();
  pages_capacity_ = 0;
  slots_.clear();
  asked_.clear();
  spares_.clear();
  sequences_.clear();
  if (std::exchange(adopting_, false)) take_from_record();
  RangeSet never_began;
  for (auto& [process, local] : processes_) {
    local.slot = kNoSlot;
    if (local.phase == Phase::exited) continue;
    // Of another version: it took nothing of what we said.
    if (local.phase == Phase::starting && why.code() == Code::unsupported) {
      never_began.add(process);
      continue;
    }
    if (health_ != nullptr) health_->forget(process);
    end_without_keeper(local);
    local.row().set_what(cluster::Row::EXITED);
    local.row().set_message(fmt::format("its keeper ended: {}", why.message()));
    local.row().mutable_exit()->set_signal(SIGKILL);
    local.row().mutable_exit()->set_error(job::KILLED);
  }
  if (!never_began.empty()) refuse(never_began, why.context("speak with its keeper"));
  if (exchange_ != nullptr) exchange_->look_again();
  report_due_ = true;
  alarm_.ring();
}

}  // namespace tutti
