// What a coordinator tells others.
#include <algorithm>
#include <array>
#include <csignal>

#include "base/hash.h"
#include "cluster/coordinator.h"

namespace tutti {
namespace {

// Links of the tree break and heal within two seconds; asking more often would only add to it.
constexpr Duration kResendPause = 1s;
// A coordinator that was replaced while it was cut off must not go on believing for long.
constexpr Duration kUpdatePause = 10s;
// Above what services use, below what the kernel gives to connecting sockets.
constexpr uint32_t kFirstMasterPort = 20'000;
constexpr uint32_t kMasterPorts = 10'000;

}  // namespace

void Coordinator::send(const RangeSet& to, cluster::Message message) {
  if (!to.empty()) orders_.parcels.push_back({to, std::move(message)});
}

RangeSet Coordinator::unheard() const {
  return nodes().minus(lost_).minus(given_up_).minus(heard_);
}

cluster::Message Coordinator::directive() const {
  cluster::Message message;
  cluster::Directive& directive = *message.mutable_directive();
  directive.set_job(job());
  directive.set_epoch(epoch());
  directive.set_revision(revision_);
  directive.set_coordinator(self_);
  *directive.mutable_spec() = appointment_.spec();
  *directive.mutable_layout() = appointment_.layout();
  set_pairs(start_, directive.mutable_start());
  set_pairs(stop_, directive.mutable_stop());
  set_pairs(dead_, directive.mutable_dead());
  if (end_at_) {
    const int notice = appointment_.spec().notice_signal();
    directive.set_notice(notice != 0 ? notice : SIGTERM);
  }
  if (std::ranges::find(gang_epochs_, 0) == gang_epochs_.end())
    directive.mutable_gang_epochs()->Assign(gang_epochs_.begin(), gang_epochs_.end());
  directive.set_store(life());
  directive.set_members(appointment_.members());
  directive.set_master_address(appointment_.master_address());
  // Nobody can promise that a port is free on another host; each epoch tries another.
  const std::array<uint64_t, 2> seed = {job(), epoch()};
  const uint64_t draw = hash64(std::as_bytes(std::span(seed)));
  directive.set_master_port(kFirstMasterPort + static_cast<uint32_t>(draw % kMasterPorts));
  return message;
}

void Coordinator::send_directive(const RangeSet& to) {
  send(to, directive());
  directed_ = true;
  resend_at_ = now_ + kResendPause;
}

void Coordinator::send_end(const RangeSet& to) {
  cluster::Message message;
  cluster::End& end = *message.mutable_end();
  end.set_job(job());
  end.set_epoch(epoch());
  end.set_grace_ns(to_ns(end_grace_));
  end.set_signal(end_signal_);
  send(to, std::move(message));
  if (state_ == cluster::ENDING) resend_at_ = now_ + kResendPause;
}

void Coordinator::send_update() {
  cluster::Message message;
  cluster::JobUpdate& update = *message.mutable_update();
  update.set_job(job());
  update.set_term(appointment_.term());
  update.set_sequence(update_sequence_);
  update.set_epoch(epoch());
  update.set_state(state_);
  *update.mutable_layout() = appointment_.layout();
  update.set_restarts(restarts_);
  *update.mutable_taken() = taken_restarts();
  if (culprit_.has_exit()) *update.mutable_culprit() = culprit_;
  update.set_why(why_);
  *update.mutable_leftovers() = leftovers_;
  set_pairs(wanted_, update.mutable_wanted());
  update.set_end_known(end_at_ || state_ >= cluster::ENDING);
  if (state_ >= cluster::SUCCEEDED) set_pairs(touched_, update.mutable_silent());
  send(RangeSet(kHead), std::move(message));
  update_at_ = now_ + kResendPause;
}

void Coordinator::tell_head(Instant now) {
  now_ = now;
  update_acked_ = false;
  send_update();
}

void Coordinator::on_update_ack(uint64_t sequence) {
  if (sequence != update_sequence_) return;
  update_acked_ = true;
  update_at_ = now_ + kUpdatePause;
  over_ = state_ >= cluster::SUCCEEDED;
}

std::string Coordinator::text() const {
  const RangeSet all = numbers_.size() == 0 ? RangeSet() : RangeSet(0, numbers_.size() - 1);
  return fmt::format(
      "state {}, revision {}, hosts {}, unheard {}, lost {}, touched {}, idle {}, starting {}, "
      "running {}, restart {}, wanted {}{}",
      static_cast<int>(state_), revision_, nodes().text(), unheard().text(), lost_.text(),
      touched_.text(), idle_.text(), in_phase(all, Phase::starting).text(),
      in_phase(all, Phase::running).text(), restart_.text(), wanted_.text(),
      adopted_by_ ? ", adopting" : "");
}

CoordinatorOrders Coordinator::take_orders() {
  if (desk_) send_letters();
  if (!acks_.empty() && state_ != cluster::ENDING) {
    cluster::Message message;
    message.mutable_ack()->set_job(job());
    for (const auto& [since, processes] : acks_) {
      cluster::Ack::Ended& ended = *message.mutable_ack()->add_ended();
      ended.set_epoch(since);
      set_pairs(processes, ended.mutable_processes());
    }
    send(nodes().minus(lost_), std::move(message));
  }
  acks_.clear();
  return std::exchange(orders_, {});
}

}  // namespace tutti
