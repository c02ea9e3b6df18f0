// What the processes of a job exchange, as far as it is their coordinator's to decide: whose word
// counts, and in which epoch of their role. docs/exchange.md has the rules.
#include "cluster/coordinator.h"

namespace tutti {

// Whoever took over from another knows by this what hosts believe.
void Coordinator::learn_gang_epoch(const cluster::Row& row, const RangeSet& processes) {
  if (!adopted_by_ || row.gang_epoch() == 0 || processes.empty()) return;
  told_epochs_.resize(numbers_.roles());
  uint64_t& told = told_epochs_[numbers_.role_of(processes.front())];
  told_differ_ = told_differ_ || (told != 0 && told != row.gang_epoch());
  told = std::max(told, row.gang_epoch());
}

// All hosts have said what they believe; the newest is true.
void Coordinator::settle_gang_epochs() {
  told_epochs_.resize(numbers_.roles());
  for (size_t role = 0; role < gang_epochs_.size(); ++role) {
    uint64_t& known = gang_epochs_[role];
    if (known == 0) known = told_epochs_[role] != 0 ? told_epochs_[role] : epoch();
    if (desk_) desk_->keep_only(role, known);
  }
  told_epochs_.clear();
  if (!std::exchange(told_differ_, false)) return;
  ++revision_;
  orders_.log = orders_.durably = true;
  heard_ = RangeSet();
  send_directive(nodes().minus(lost_));
}

// Some of a role are started again: what was exchanged before is over for all of it.
void Coordinator::begin_gangs_of(const RangeSet& processes) {
  for (size_t role = 0; role < gang_epochs_.size(); ++role) {
    if (!processes.meets(numbers_.of_role(role))) continue;
    gang_epochs_[role] = epoch();
    if (desk_) desk_->keep_only(role, epoch());
  }
}

void Coordinator::on_exchange(const cluster::Row& row) {
  const cluster::Row::What what = row.what();
  if (what != cluster::Row::ARRIVED && what != cluster::Row::VALUE &&
      what != cluster::Row::WANTED && what != cluster::Row::RELEASED)
    return;
  // Until all hosts have told what was open and put before us, nothing new is decided.
  const bool told_again = what == cluster::Row::RELEASED || row.count() != 0;
  if (adopted_by_ && !told_again) return;
  auto processes = set_from(row.processes());
  auto hosts = set_from(row.hosts());
  if (!processes || !hosts || row.message().empty()) return;
  if (!processes->empty() && processes->back() >= numbers_.size()) return;
  if (!desk_) desk_.emplace(numbers_);
  if (what == cluster::Row::WANTED) return desk_->wanted(row, *hosts);
  if (processes->empty()) return;
  const size_t role = numbers_.role_of(processes->front());
  if (!adopted_by_ && row.gang_epoch() != gang_epochs_[role]) return;
  if (what == cluster::Row::RELEASED) return desk_->opened(role, row);
  // Only those who run in this very life of theirs, as far as we know: what an earlier one said is
  // over, and what we have not heard of yet they say again.
  RangeSet present;
  for (const ProcessId process : processes->common(numbers_.of_role(role)).members()) {
    const Phase phase = processes_[process].phase;
    const bool runs = phase == Phase::running || phase == Phase::done;
    if (runs && processes_[process].epoch == row.epoch()) present.add(process);
  }
  if (present.empty()) return;
  if (what == cluster::Row::VALUE) return desk_->put(present.front(), row, *hosts);
  RangeSet done;
  if (row.ask()) done = in_phase(numbers_.of_role(role), Phase::done);
  desk_->arrived(present, row, *hosts, done);
}

void Coordinator::send_letters() {
  for (ExchangeDesk::Letter& letter : desk_->take_letters()) {
    cluster::Message message;
    *message.mutable_release() = std::move(letter.release);
    message.mutable_release()->set_job(job());
    RangeSet to = std::move(letter.to);
    if (to.empty()) to = nodes();
    send(to.minus(lost_), std::move(message));
  }
}

}  // namespace tutti
