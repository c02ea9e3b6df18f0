// The agent of a host: its node of the tree, the jobs that are here, the coordinators it was
// appointed to be, and the keepers it keeps warm. One per host; it may die and come back without
// touching what it supervises.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/coordinator.h"
#include "cluster/event_log.h"
#include "cluster/exchange_server.h"
#include "cluster/exit_watch.h"
#include "cluster/host_job.h"
#include "cluster/tree_node.h"

namespace tutti {

// Where in the tree.
struct AgentPlace {
  TreeOptions tree;
  Address listen;   // a port of 0 is chosen by the kernel
  std::string api;  // where users ask it, for the head to tell them
};

// A million agents in one simulation share one.
struct AgentOptions {
  std::string folder;  // its log, sockets and what jobs print
  uint32_t slots = 1;
  std::string only_for;           // the user whose jobs alone run here; empty: everybody's
  StartKeeperOptions keeper;      // group and linger are the agent's to choose
  bool use_groups = true;         // of the kernel, for its keepers
  size_t warm_keepers = 1;        // started before a job wants them
  bool announce = true;           // the head does not know this host beforehand
  int rank_nice = 0;              // what ranks add to the niceness of their keeper
  std::function<void()> started;  // jobs of before were found again
  std::function<std::string(NodeId)> address_of;  // of other nodes, where they are known
  // As JobHost::run_as(); without, everything runs as the agent's own user.
  std::function<Result<std::optional<RunAs>>(const std::string& user)> run_as;
  // Processes that were started with "KEY=value", where that can be known.
  std::function<Result<std::vector<pid_t>>(const std::string& setting)> find_by_environment;
  bool reserve_log = false;    // EventLogOptions::reserve
  bool keepers_linger = true;  // or all that runs ends with the agent
  ExitWatch* exits = nullptr;
  std::unique_ptr<AlikePool> alike = std::make_unique<AlikePool>();
};

class Agent final : public TreeUser, public JobHost, private EventLogReader {
 public:
  Agent(World& world, wire::Seals& seals, std::shared_ptr<const AgentOptions> options,
        AgentPlace place);
  ~Agent() override;

  // Until cancelled. What runs goes on.
  Task<Result<void>> run();

  // Tells the cluster that this agent ends and comes back, and that what runs here runs on. Waits
  // until the root has heard of it, or is not there.
  Task<void> announce_leave();

  TreeNode& tree() { return *tree_; }
  bool in_tree() const { return strands_ != nullptr; }
  HostJob* find_job(uint64_t job);
  // What runs here, of one job or (0) of all; with what it uses, if that is wanted.
  cluster::HostInfos processes(uint64_t job, bool usage);
  // Of a job that is here, or was here lately; else null.
  std::shared_ptr<OutputSpool> output_of(uint64_t job) const;
  // It was told to end here, whether it had come or not.
  bool has_ended(uint64_t job) const { return ended_.contains(job) && !jobs_.contains(job); }
  // For who waits for a job to come here; rung when one does.
  void watch_jobs(Alarm& alarm) { job_watchers_.push_back(&alarm); }
  void unwatch_jobs(Alarm& alarm) { std::erase(job_watchers_, &alarm); }
  std::string job_folder(uint64_t job) const override;
  const std::map<uint64_t, std::unique_ptr<HostJob>>& jobs() const { return jobs_; }
  size_t coordinators() const { return coordinators_.size(); }
  const Coordinator* find_coordinator(uint64_t job) const;
  size_t idle_keepers() const { return idle_keepers_.size(); }

 private:
  // Of an agent before us.
  struct Found {
    AgentPlace place;
    std::vector<std::string> keepers;  // names of their sockets
    std::map<uint64_t, cluster::HostRecord> jobs;
    std::map<uint64_t, std::vector<cluster::ExchangeRecord>> exchanges;
    std::map<uint64_t, cluster::CoordinatorRecord> coordinators;
  };
  struct Hosted {
    explicit Hosted(Coordinator coordinator) : coordinator(std::move(coordinator)) {}
    Coordinator coordinator;
    std::vector<CoordinatorOrders> orders;  // behind one that waits for the log
    uint64_t serial = 0;                    // another one for each appointment
    bool waiting = false;
    bool carrying = false;
  };

  Task<Result<void>> begin();
  Task<Result<void>> find_keepers();
  std::vector<pid_t> started_by(const std::string& keeper) const;
  Task<void> end_unowned(std::string keeper);
  Task<void> let_go();

  // TreeUser (agent.cc).
  void on_parcel(NodeId from, Bytes body) override;
  void on_report(uint64_t key, Bytes body) override;
  std::string fold(uint64_t key, std::string bodies) override;
  void on_lost(const RangeSet& nodes) override;
  void on_away(const RangeSet& nodes, bool away) override;
  void on_attached() override;
  void on_child(const Child& child) override;
  void on_twin(const Child& child) override;
  Result<NodeId> admit(const tree::Attach& attach, const wire::Peer& peer) override;
  std::string address_of(NodeId node) override;
  void on_directive(NodeId from, const cluster::Directive& directive);
  void on_end(NodeId from, const cluster::End& end);
  void on_vacated(const cluster::Message& message);
  void remember_end(uint64_t job, uint64_t epoch);
  void answer_query(NodeId from, const cluster::Query& query);
  cluster::Hanging hanging(const Child& child) const;
  void send_to_head(const cluster::Message& message);
  void remember_node();

  // JobHost (agent_jobs.cc).
  World& world() override { return world_; }
  AlikePool& alike() override { return *options_->alike; }
  NodeId node() const override { return tree_->node(); }
  void report(NodeId coordinator, const cluster::JobReport& report) override;
  void report_to_head(const cluster::JobReport& report) override;
  Task<Result<void>> log(const cluster::HostRecord& record) override;
  Task<Result<void>> append_to_log(const std::string& bytes);
  Task<Result<void>> too_long_for_log(size_t bytes);
  Task<Result<void>> appended(uint64_t sequence);
  void log_soon(const cluster::HostRecord& record) override;
  uint64_t log_exchange(const cluster::ExchangeRecord& record) override;
  Task<Result<void>> logged(uint64_t sequence) override;
  Task<Result<KeeperSession*>> take_keeper() override;
  void give_keeper_back(KeeperSession& keeper) override;
  Task<Result<void>> end_orphans(std::string keeper) override;
  std::string agent_socket() const override { return options_->folder + "/agent.sock"; }
  std::string address() const override;
  std::string exchange_socket(bool of_others) const override;
  Result<std::optional<RunAs>> run_as(const std::string& user) override;
  int rank_nice() const override { return options_->rank_nice; }
  void noted(uint64_t job, uint64_t epoch, ProcessId process, const cluster::Exit& exit) override {
    if (options_->exits != nullptr) options_->exits->noted(node(), job, epoch, process, exit);
  }
  HostJob& add_job(uint64_t job);
  Task<void> run_job(HostJob& job);
  Task<void> remove_old_output();
  Result<KeeperSession*> start_keeper_here();
  void keep_warm();
  Task<void> adopt_all();
  Task<std::unique_ptr<KeeperSession>> connect_keeper(std::string path);
  void reap_keepers();

  // Coordinators (agent_coordinators.cc).
  void appoint(cluster::CoordinatorRecord record);
  Hosted* coordinating(uint64_t job);
  void carry_out(Hosted& hosted);
  Task<void> carry_out_durably(uint64_t job, uint64_t serial);
  void post(const CoordinatorOrders& orders);
  void tell_watch(const Coordinator& coordinator, const CoordinatorOrders& orders) const;
  void forget_coordinator(uint64_t job);
  void remember_term(uint64_t job, uint32_t term);
  void ignore_old(const cluster::Appointment& appointment);
  Task<void> write_log();
  void log_failed(const Error& why);
  cluster::AgentRecord record_of(const Hosted& hosted) const;
  void ring_time();
  Task<Result<void>> keep_time();

  // EventLogReader.
  Result<void> on_snapshot(uint64_t sequence, std::string_view state) override;
  Result<void> on_record(uint64_t sequence, std::string_view record) override;
  Result<void> replay(const cluster::AgentRecord& record);
  Task<void> snapshot_when_large();

  World& world_;
  wire::Seals& seals_;
  std::shared_ptr<const AgentOptions> options_;
  std::unique_ptr<Found> beginning_;  // until we run
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<TreeNode> tree_;
  std::unique_ptr<EventLog> log_;
  std::map<uint64_t, std::unique_ptr<HostJob>> jobs_;
  std::map<uint64_t, uint64_t> ended_;  // the last epoch of jobs that were here
  std::map<uint64_t, std::unique_ptr<Hosted>> coordinators_;
  using Terms = std::map<uint64_t, uint32_t>;  // by job
  OnDemand<Terms> past_terms_;                 // the last in which we coordinated jobs, until then
  OnDemand<Terms> logged_terms_;  // of old appointments, the last that we complained of
  std::vector<std::unique_ptr<KeeperSession>> keepers_;
  std::vector<KeeperSession*> idle_keepers_;
  uint64_t next_serial_ = 1;
  std::vector<std::pair<uint64_t, std::shared_ptr<OutputSpool>>> past_;  // of jobs that left
  std::vector<Alarm*> job_watchers_;
  std::unique_ptr<ExchangeServer> exchange_server_;  // from the first job on
  NodeId logged_node_ = kHead;                       // our number, as the log has it
  Alarm time_;
  Scope* strands_ = nullptr;
  bool keeping_time_ = false;
  bool snapshotting_ = false;
  bool writing_ = false;
};

}  // namespace tutti
