// The coordinator of one job: decides what shall run in which epoch, and what to do when something
// ends. It alone advances the epoch. Pure logic: it is told what happened and says what to do; the
// agent that hosts it sends, logs and keeps time.
//
//   appointed → starting → running ⇄ restarting, waiting for hosts → ending → done
//
// Whatever it was told or tells may be lost or come twice: directives and updates are repeated
// until confirmed, reports are known by process and epoch. docs/cluster.md has the protocol.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cluster/exchange_desk.h"
#include "cluster/host_log.pb.h"
#include "cluster/job_layout.h"
#include "cluster/supervision.h"

namespace tutti {

// Why a job ended that had a notice, or was to have one.
constexpr const char* kPreempted = "preempted";

constexpr uint64_t epoch_of(uint32_t term, uint32_t counter) {
  return uint64_t{term} << 32 | counter;
}

// What the agent shall do, in this order.
struct CoordinatorOrders {
  // Keep the coordinator's record; before anything below goes out, if `durably`.
  bool log = false;
  bool durably = false;
  struct Parcel {
    RangeSet to;
    cluster::Message message;
  };
  std::vector<Parcel> parcels;
  // Nothing to do: ends that it has heard of, each once.
  struct Ends {
    RangeSet processes;
    cluster::Row row;
  };
  std::vector<Ends> heard;
};

class Coordinator {
 public:
  // Newly appointed: the record has nothing but the appointment. Else it was read from the log.
  Coordinator(cluster::CoordinatorRecord record, NodeId self, Instant now);
  // What the log keeps of it.
  cluster::CoordinatorRecord record() const;

  void on_report(const cluster::JobReport& report, Instant now);
  // Hosts that are gone, as the tree says; those of other jobs are ignored.
  void on_lost(const RangeSet& nodes, Instant now);
  // Hosts whose agents said that they come back: these and no others.
  void set_away(RangeSet nodes) { away_ = std::move(nodes); }
  void on_grant(const cluster::Grant& grant, Instant now);
  void on_end_request(const cluster::EndRequest& request, Instant now);
  void on_update_ack(uint64_t sequence);
  // Tells the head again how it is: it may have appointed another, or been away.
  void tell_head(Instant now);
  // To be called at due(), or later.
  void on_time(Instant now);

  Instant due() const;
  CoordinatorOrders take_orders();
  // The head knows its end: it may be forgotten.
  bool over() const { return over_; }

  uint64_t job() const { return appointment_.job(); }
  uint64_t epoch() const { return epoch_of(appointment_.term(), counter_); }
  // Another number each time that it is appointed, or read from the log.
  uint64_t life() const { return epoch_of(appointment_.term(), lives_); }
  cluster::JobState state() const { return state_; }
  const cluster::Appointment& appointment() const { return appointment_; }
  // In a line, for whoever looks for what it waits for.
  std::string text() const;
  RangeSet nodes() const { return nodes_of(appointment_.layout()); }

 private:
  enum class Phase : uint8_t { idle, starting, running, done };
  struct Process {
    uint64_t epoch = 0;  // in which it was started, as far as we know
    Phase phase = Phase::idle;
    bool well = false;
    bool exited = false;  // in that epoch
  };
  struct RoleCount {
    uint32_t running = 0;
    uint32_t done = 0;
    uint32_t well = 0;
  };

  // Hearing (coordinator_reports.cc).
  void on_row(const cluster::Row& row);
  void on_started(const cluster::Row& row, const RangeSet& processes);
  void on_exited(const cluster::Row& row, const RangeSet& processes);
  void on_stalled(const cluster::Row& row, const RangeSet& processes);
  void on_failing(const cluster::Row& row, const RangeSet& processes);
  void on_ended(const RangeSet& hosts);
  void note_leftovers(const cluster::Row& row, const RangeSet& hosts);
  void end_strangers(const RangeSet& hosts);
  void adopted();
  void forget_earlier_lives();
  // Whether what a host says of a process that we know nothing of tells how it is.
  bool may_adopt(ProcessId process) const { return adopted_by_ && !restart_.contains(process); }

  // What processes exchange (coordinator_exchange.cc).
  void learn_gang_epoch(const cluster::Row& row, const RangeSet& processes);
  void settle_gang_epochs();
  void begin_gangs_of(const RangeSet& processes);
  void on_exchange(const cluster::Row& row);
  void send_letters();

  // Deciding (coordinator.cc).
  void failed(const RangeSet& processes, const cluster::Row& row);
  RangeSet affected_by(const RangeSet& processes) const;
  RangeSet widened(const RangeSet& processes, job::Scope scope) const;
  std::string restart_remark(const RangeSet& processes, const cluster::Row& row,
                             const Restart& restart);
  std::string failure_text(size_t role, const cluster::Row& row) const;
  google::protobuf::RepeatedPtrField<cluster::TakenRestarts> taken_restarts() const;
  void plan_restart(const RangeSet& processes, Duration delay);
  void restart();
  bool may_restart() const { return restart_at_ && wanted_.empty() && !adopted_by_ && !end_at_; }
  void want_hosts();
  void start_ready();
  bool ready(size_t role) const;
  bool is_sidecar(size_t role) const { return numbers_.place_role(role) != role; }
  RangeSet beside(size_t sidecar, const RangeSet& processes) const;
  void look_for_end();
  void begin_notice(Duration grace);
  void look_for_end_of_notice();
  void begin_end(cluster::JobState state, std::string why, Duration grace, int signal);
  void set_state(cluster::JobState state, std::string why);
  void next_epoch();
  void go_on_from(const cluster::CoordinatorRecord& record);
  void set_phase(const RangeSet& processes, Phase phase);
  RangeSet in_phase(const RangeSet& processes, Phase phase) const;
  const job::Role& role(size_t index) const {
    return appointment_.spec().roles(static_cast<int>(index));
  }

  // Telling (coordinator_orders.cc).
  void send_directive(const RangeSet& to);
  void send_end(const RangeSet& to);
  void send_update();
  void send(const RangeSet& to, cluster::Message message);
  cluster::Message directive() const;
  RangeSet unheard() const;

  cluster::Appointment appointment_;
  JobNumbers numbers_;
  NodeId self_;
  uint32_t counter_;
  Instant now_;  // of what it was told last
  uint32_t revision_ = 0;
  uint64_t bereaved_ = 0;  // the last epoch of which hosts were told that it is over
  bool directed_ = false;  // this epoch was told to somebody
  cluster::JobState state_ = cluster::STARTING;
  std::string why_;
  std::string remark_;  // of the last restart: why it runs again, if that is worth knowing
  cluster::JobState final_state_ = cluster::SUCCEEDED;
  std::vector<Process> processes_;
  std::vector<RoleCount> counts_;        // by role
  std::vector<uint32_t> returned_;       // by role: services that returned 0
  std::vector<RestartBudgets> budgets_;  // by role
  RangeSet idle_;

  RangeSet begun_;  // processes that were ever started
  RangeSet start_;  // of the present epoch
  RangeSet stop_;
  RangeSet dead_;
  RangeSet heard_;  // hosts that confirmed the present epoch and revision
  RangeSet lost_;   // hosts of the layout that are gone
  RangeSet away_;   // hosts, of any job, whose agents come back
  std::vector<std::pair<RangeSet, cluster::Row>> deferred_;  // failures heard while adopting
  RangeSet given_up_;                  // hosts that were gone when we were appointed
  RangeSet touched_;                   // hosts that may have something of the job
  RangeSet restart_;                   // processes that wait to be started again
  RangeSet wanted_;                    // of these, those that need another host
  std::map<uint64_t, RangeSet> acks_;  // exits to be confirmed, by epoch of their start
  std::optional<Instant> restart_at_;
  std::optional<Instant> adopted_by_;  // hosts that said nothing of what they run by then are lost
  std::optional<Instant> timeout_at_;
  std::optional<Instant> end_at_;  // its processes had their notice; nothing is started any more
  Duration end_grace_{};
  int end_signal_ = 0;
  Instant resend_at_ = kNever;
  Instant update_at_ = kNever;
  uint64_t update_sequence_ = 0;
  bool update_acked_ = true;
  uint32_t restarts_ = 0;
  cluster::Row culprit_;
  google::protobuf::RepeatedPtrField<cluster::Row> leftovers_;
  // By role, the epoch of which what its processes exchange is; 0 while we do not know.
  std::vector<uint64_t> gang_epochs_;
  std::vector<uint64_t> told_epochs_;  // the newest that hosts told, while we do not know
  bool told_differ_ = false;
  uint32_t lives_;
  std::optional<ExchangeDesk> desk_;  // when somebody comes
  bool over_ = false;
  CoordinatorOrders orders_;
};

}  // namespace tutti
