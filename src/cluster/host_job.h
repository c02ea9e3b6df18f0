// The part of one job that is on this host: does what the coordinator's directives say through a
// keeper, and reports what became of it until the coordinator knows.
//
// A directive is logged before it is obeyed, so that an agent that dies finds the job again: the
// keeper has the processes, the log says which job and epoch they are of.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/on_demand.h"
#include "cluster/control_pages.h"
#include "cluster/event_log.h"
#include "cluster/health_checks.h"
#include "cluster/host_exchange.h"
#include "cluster/host_log.pb.h"
#include "cluster/job_layout.h"
#include "cluster/job_looks.h"
#include "cluster/keeper_session.h"
#include "cluster/kept_directive.h"
#include "cluster/output_spool.h"
#include "cluster/progress_watch.h"
#include "world/alarm.h"

namespace tutti {

inline uint64_t progress_of(const tutti_control_page& page) {
  return __atomic_load_n(&page.progress, __ATOMIC_RELAXED);
}
inline uint64_t step_of(const tutti_control_page& page) {
  return __atomic_load_n(&page.step, __ATOMIC_RELAXED);
}

// Whom the processes of a job run as, when it is not the agent's own user.
struct RunAs {
  uint32_t user = 0;
  std::string name;
  std::string home;
  std::string shell;
};

// What a host's jobs have in common; the agent.
class JobHost {
 public:
  virtual World& world() = 0;
  // For what is much the same in many jobs, or on many hosts of a simulation.
  virtual AlikePool& alike() = 0;
  virtual NodeId node() const = 0;
  // To the coordinator of a job, as soon as possible.
  virtual void report(NodeId coordinator, const cluster::JobReport& report) = 0;
  // Nobody answers for the job: the head knows who should.
  virtual void report_to_head(const cluster::JobReport& report) = 0;
  // Durable when it returns. The record is needed only until the wait begins.
  virtual Task<Result<void>> log(const cluster::HostRecord& record) = 0;
  // With the next that is.
  virtual void log_soon(const cluster::HostRecord& record) = 0;
  virtual uint64_t log_exchange(const cluster::ExchangeRecord& record) = 0;
  // Waits until what was logged so far up to here is durable.
  virtual Task<Result<void>> logged(uint64_t sequence) = 0;
  virtual Task<Result<KeeperSession*>> take_keeper() = 0;
  // It is clean, and may be used again.
  virtual void give_keeper_back(KeeperSession& keeper) = 0;
  // Ends what a keeper that died has left behind; the error names what does not end.
  virtual Task<Result<void>> end_orphans(std::string keeper) = 0;
  virtual std::string job_folder(uint64_t job) const = 0;
  virtual std::string agent_socket() const = 0;
  // As other hosts reach it, without a port.
  virtual std::string address() const = 0;
  // Of our own user's ranks, or of others'.
  virtual std::string exchange_socket(bool of_others) const = 0;
  // Nothing for our own user; the error says why this host runs nothing of that user.
  virtual Result<std::optional<RunAs>> run_as(const std::string& user) = 0;
  // What ranks add to the niceness of their keeper.
  virtual int rank_nice() const = 0;
  // A keeper told how a process ended.
  virtual void noted(uint64_t job, uint64_t epoch, ProcessId process,
                     const cluster::Exit& exit) = 0;

 protected:
  ~JobHost() = default;
};

// By which whatever a keeper started is known, also when it descends from nobody any more.
constexpr const char* kKeeperVariable = "TUTTI_KEEPER";

// What the keeper calls the arena of the control pages.
constexpr const char* kControlArena = "control";

// Checks of services by command are ranks of the keeper too, numbered from here on: no job has as
// many processes.
constexpr uint32_t kFirstCheck = 1U << 31;
constexpr bool is_check(uint32_t rank) { return rank >= kFirstCheck; }

class HostJob final : private KeeperUser, private HealthChecks::Owner, private ExchangeJob {
 public:
  HostJob(JobHost& host, uint64_t job);
  ~HostJob();

  // Runs until all has ended and was told, or cancelled: then the keeper lingers.
  Task<void> run();
  // Of an agent that was started anew: what the log says, with the keeper when it still lives.
  void adopt(const cluster::HostRecord& record, KeeperSession* keeper);

  // The number of the user it runs as, who is our own unless it is said otherwise.
  uint32_t user(uint32_t own) const { return run_as_ ? run_as_->user : own; }

  // These only take note.
  void on_directive(const cluster::Directive& directive);
  void on_end(const cluster::End& end);
  void on_signal(const RangeSet& processes, const cluster::Signal& signal);
  void on_ack(const cluster::Ack& ack);
  void on_release(const cluster::Release& release);
  void on_bereaved(const cluster::Bereaved& bereaved);
  void on_spare_ready(uint32_t spare);
  void report_again();

  // Where its processes' calls wait; may outlive the job.
  std::shared_ptr<HostExchange> exchange();
  void restore_exchange(const std::vector<cluster::ExchangeRecord>& records);
  std::vector<cluster::ExchangeRecord> exchange_records() const;

  uint64_t job() const { return job_; }
  uint64_t epoch() const { return directive_.epoch(); }
  const cluster::Directive& directive() const { return directive_.get(); }
  // Shared with those who follow it, and may be longer there.
  const std::shared_ptr<OutputSpool>& output() const { return output_; }
  bool over() const { return over_; }
  // As the log keeps it.
  cluster::HostRecord record() const;
  // What of it could not be ended here; "" for nothing.
  const std::string& left_behind() const { return left_behind_.get(); }
  // Nothing but these runs here, or will by what was told before this epoch.
  bool has_only(const RangeSet& processes, uint64_t epoch) const;
  // In a line, for whoever looks for what it waits for.
  std::string text() const;
  // What runs, for people.
  void describe(std::vector<cluster::ProcessInfo>& into) const;
  // What its processes do, as far as can be seen from outside.
  std::vector<cluster::ProcessLook> look(bool whole) const;
  // Looks that were kept; null when there can be none.
  const std::shared_ptr<JobLooks>& looks() const { return looks_; }

 private:
  void know_readers(const job::Spec& spec);
  void refuse_old(std::string_view what, uint64_t old);
  enum class Phase : uint8_t { starting, running, exited };
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  struct Local {
    uint64_t epoch = 0;
    Phase phase = Phase::starting;
    pid_t pid = 0;
    uint32_t slot = kNoSlot;  // of its control page
    bool told = false;        // the coordinator knows of its end
    bool own_end = false;     // no keeper holds it
    bool stopping = false;
    bool failing = false;  // about to end, and not by our will
    bool from_spare = false;
    uint32_t restarts = 0;  // since we began to count
    std::unique_ptr<cluster::Row> end_row = {};
    ProgressWatch progress;
    bool well = false;     // once
    bool stalled = false;  // or ill; its row says why

    // Of its end, if there is something to say.
    cluster::Row& row() {
      if (end_row == nullptr) end_row = std::make_unique<cluster::Row>();
      return *end_row;
    }
    const cluster::Row& row() const {
      return end_row == nullptr ? cluster::Row::default_instance() : *end_row;
    }
  };

  // A process that waits for a rank.
  struct Spare {
    size_t role = 0;
    pid_t pid = 0;
    bool ready = false;
    bool leaving = false;  // given a rank, or told to end
    std::vector<Handle> outputs;
  };
  struct SparePause {
    Duration length{};
    Instant until{};
  };
  // The last that somebody sent it with `tutti signal`.
  struct Signalled {
    uint64_t epoch = 0;
    int number = 0;
    std::string by;
  };
  // What the keeper has not answered; it does so in order.
  struct Asked {
    enum class What : uint8_t { arena, ranks, spares, assign } what = What::ranks;
    RangeSet processes = {};
    uint32_t spare = 0;
  };

  // Obeying (host_job.cc).
  bool has_errand() const;
  Task<bool> next_errand();
  Task<bool> end_orphans_first();
  Task<bool> write_looks();
  Task<bool> log_own_ends();
  void do_what_is_due();
  Task<void> finish();
  Task<bool> obey();
  bool could_not_obey(const Error& why);
  bool take_next();
  bool find_user();
  Task<Result<void>> log(const cluster::HostRecord& record);
  Task<Result<void>> log_wanted();
  void say_ending(cluster::HostRecord& record) const;
  Task<Result<void>> log_ending();
  void log_gone();
  RangeSet wanted_here() const;
  // What runs here, or ended here, and is in the way of what the directive wants.
  RangeSet leaving_here() const;
  // It has ended, as nobody but us knows.
  void end_without_keeper(Local& local);
  // Of this epoch, and over before it began.
  Local& gone_at_once(ProcessId process);
  void give_notice();
  void give_up_wanted(const Error& why);
  void refuse(const RangeSet& processes, const Error& why);
  void lose_pending();
  void settle();
  void take_from_record();
  void take_gone_from_record();
  void start_pending();
  void stop(const RangeSet& processes, Duration grace, int number);
  Task<bool> end_everything();
  Task<void> end_for_good();
  Task<bool> wait_for_ends();
  Task<bool> reset_keeper();
  Task<bool> wait_for_release();
  Task<void> end_orphans();
  void report_end(bool to_head);
  void give_up_stuck();
  bool keeper_owes_word();
  Task<void> change_pages(bool newer, RangeSet started);
  Task<bool> catch_up_pages();
  Task<bool> mourn();
  RangeSet running() const;
  Instant next_due() const;

  // How those that run are doing (host_job_health.cc).
  void begins(ProcessId process, Local& local);
  void look_for_stalls();
  void stalls(Local& local, std::string why);
  void run_check(ProcessId process) override;
  void kill_check(ProcessId process) override;
  void on_health() override;
  void on_check_exited(const keeper::Exited::Rank& rank);
  void on_check_refused(uint32_t rank, const Error& why);
  bool all_tried() const;

  // Starting (host_job_spawn.cc).
  keeper::Spawn common_spawn(const job::Role& role) const;
  void send_spawn(const RangeSet& processes);
  void spawn_cold(size_t role, const RangeSet& processes);
  keeper::Spawn common_spawn(size_t role) const;
  void add_epoch_settings(size_t role, keeper::Spawn& spawn) const;
  void make_arena();
  keeper::Spawn::Rank& add_rank(ProcessId process, keeper::Spawn& spawn) const;
  uint32_t slot_for(ProcessId process);

  // Spares (host_job_spares.cc).
  bool needs_spares(size_t role) const;
  void tend_spares();
  void spawn_spares(size_t role, uint32_t count);
  void end_spares(size_t role);
  void forget_unstarted_spares();
  void pause_spares(size_t role);
  void on_spare_spawned(const keeper::Spawned::Rank& rank, std::vector<Handle> outputs);
  void on_spare_exited(const keeper::Exited::Rank& rank);
  RangeSet assign_spares(size_t role, const RangeSet& processes);
  void on_assigned(const Asked& asked);
  void on_not_assigned(const Asked& asked, const Error& why);

  // The keeper's answers (host_job_keeper.cc).
  void on_keeper_frame(KeeperFrame frame) override;
  void on_keeper_gone(const Error& why) override;
  KeeperOwes keeper_owes() const override;
  void on_keeper_silent() override;
  void on_spawned(KeeperFrame frame);
  void on_exited(const KeeperFrame& frame);
  void take_slot(Local& local, uint64_t slot);
  void take_pages(const Handle& arena, uint64_t bytes);
  void on_arenas(KeeperFrame frame);
  void on_done();
  Asked take_asked();
  void finish_adopting();
  void on_failure(const KeeperFrame& frame);
  void acknowledge(uint64_t sequence);
  void note_exit(ProcessId process, const keeper::Exited::Rank& rank);
  std::string signalled_by(ProcessId process, uint64_t epoch, const Exit& exit) const;

  // Looking (host_job_looks.cc).
  cluster::ProcessInfo info_of(ProcessId process, const Local& local) const;
  cluster::ProcessLook look_at(ProcessId process, const Local& local, bool whole) const;
  void take_heap(Handle heap);
  void keep_looks(const RangeSet& leaving);
  void keep_looks_of_ended();
  void keep_end_of(ProcessId process, const Local& local);
  void note_progress();

  // What processes exchange (host_job_exchange.cc).
  World& world() override { return world_; }
  const JobNumbers& numbers() const override { return directive_.numbers(); }
  uint64_t life_of(ProcessId process) const override;
  uint64_t gang_epoch(size_t role) const override;
  uint64_t store() const override { return directive().store(); }
  std::optional<std::string> gang_table(size_t role, uint64_t epoch) const override;
  bool finding_out() const override { return adopting_ || directive_.empty(); }
  void tell_soon() override;
  uint64_t log_exchange(cluster::ExchangeRecord record) override;
  Task<Result<void>> logged(uint64_t sequence) override;
  void tell_exchange();

  // Telling (host_job_reports.cc).
  void send_report(bool all);
  cluster::JobReport make_report(bool all) const;
  bool anything_untold() const;
  std::string health_text(ProcessId process, const Local& local) const;

  JobHost& host_;
  std::unique_ptr<RunAs> run_as_;      // of the job's user, when that is not ours
  std::optional<Error> keeper_error_;  // why the last keeper is gone
  OnDemand<std::string> lost_keeper_;  // its path, until what it left is known to be gone
  World& world_;
  uint64_t job_;
  uint64_t refused_epoch_ = 0;  // the last old one that we complained of
  KeptDirective directive_;     // obeyed
  std::unique_ptr<KeptDirective> next_;
  std::unique_ptr<cluster::End> end_;
  KeeperSession* keeper_ = nullptr;
  uint32_t pages_capacity_ = 0;
  bool adopting_ = false;      // the keeper was asked what it has
  bool pages_unsure_ = false;  // whether they have the epoch that the log has
  // As an agent before us has logged them.
  struct Recorded {
    google::protobuf::RepeatedPtrField<cluster::Row> running;
    google::protobuf::RepeatedPtrField<cluster::Row> gone;  // ends no keeper holds
  };
  OnDemand<Recorded> recorded_;
  std::unique_ptr<ControlPages> pages_;
  std::unique_ptr<ControlChange> mourned_;  // that some pages were too busy for
  std::map<ProcessId, Local> processes_;
  std::vector<std::pair<uint64_t, ProcessId>> sequences_;  // of exits the keeper still holds
  RangeSet pending_;  // to be started when what is in the way has ended
  std::vector<Asked> asked_;
  std::unique_ptr<HealthChecks> health_;  // once something runs whose health is asked for
  OnDemand<std::map<uint32_t, Spare>> spares_;
  OnDemand<std::map<size_t, SparePause>> spare_pauses_;  // by role
  Instant spares_at_ = kNever;
  OnDemand<std::map<ProcessId, Signalled>> signalled_;
  std::vector<bool> slots_;
  Instant resend_at_ = kNever;
  Instant stalls_at_ = kNever;
  int fruitless_ = 0;      // reports nobody answered
  bool confirmed_ = true;  // the present directive was reported
  bool report_due_ = false;
  bool own_ends_ = false;  // that no keeper holds, and the log does not know: not to be told yet
  bool noticed_ = false;   // whoever ends from now on does so because we asked
  bool in_log_ = false;    // the obeyed directive, for the next agent
  std::unique_ptr<std::string> reset_answer_;  // empty: clean
  OnDemand<std::string> left_behind_;          // what cannot be ended; empty: nothing
  Instant give_up_at_ = kNever;                // what was told to end and still runs is stuck then
  bool was_left_ = false;                      // the head was told that something is
  bool released_ = false;                      // the head knows that nothing is left
  bool resetting_ = false;
  bool over_ = false;
  Alarm alarm_;
  std::shared_ptr<OutputSpool> output_;
  std::shared_ptr<HostExchange> exchange_;  // when a process asks for it
  std::shared_ptr<JobLooks> looks_;         // once the keeper has told of a heap
};

}  // namespace tutti
