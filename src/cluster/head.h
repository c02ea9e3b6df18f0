// The head: takes jobs, gives them hosts, appoints their coordinators, and remembers what became of
// them. It is the root of the tree, but does nothing for hosts that are idle, and jobs go on
// without it. What it knows for certain is in its log; the rest it hears from the agents again.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/event_log.h"
#include "cluster/head.pb.h"
#include "cluster/placement.h"
#include "cluster/tree_node.h"

namespace tutti {

struct HeadOptions {
  TreeOptions tree;
  Address listen;
  std::string folder;
  // Hosts that are known beforehand, as nodes 1 to this; each has that many slots.
  uint32_t roster = 0;
  uint32_t roster_slots = 1;
  std::function<std::string(NodeId)> address_of;  // of the roster
  std::function<void()> started;                  // it has read its log, and listens
};

// Told when the state of a job is not what it was; of its end, when that is durable. Calls must not
// wait.
class JobWatcher {
 public:
  virtual void on_job_changed(uint64_t job) = 0;

 protected:
  ~JobWatcher() = default;
};

class Head final : public TreeUser, private EventLogReader {
 public:
  Head(World& world, wire::Seals& seals, HeadOptions options);
  ~Head() override;

  // Until cancelled.
  Task<Result<void>> run();

  // What clients ask for (head_clients.cc). Durable when it returns.
  Task<Result<uint64_t>> submit(cluster::SubmitRequest request, std::string user);
  // For many at once: taken at once, and kept when durable() says so of what is posted by then.
  Result<uint64_t> take(cluster::SubmitRequest request, std::string user);
  uint64_t posted() const { return log_->last_sequence(); }
  Task<Result<void>> durable(uint64_t posted);
  // Watchers of a job that is there; they outlive their watching.
  void watch(uint64_t job, JobWatcher& watcher);
  void unwatch(uint64_t job, JobWatcher& watcher);
  Result<void> kill(const cluster::KillRequest& request);
  Result<void> signal(const cluster::SignalRequest& request);
  Result<cluster::JobInfo> info(uint64_t job) const;
  bool has_ended(uint64_t job) const;  // also one that nobody knows any more
  // Waits until the job is not as `seen` any more.
  Task<Result<cluster::JobInfo>> change_of(uint64_t job, cluster::JobState seen);
  std::vector<cluster::JobInfo> jobs(bool all, size_t most) const;
  // Briefly: without the hosts, and then without looking at each of them.
  cluster::StatusReply status(bool brief) const;
  Task<Result<cluster::PsReply>> processes(cluster::PsRequest request);

  // It has read its log.
  bool ready() const { return strands_ != nullptr; }
  TreeNode& tree() { return *tree_; }
  const Placement& placement() const { return placement_; }

 private:
  struct Job {
    uint64_t id = 0;
    job::Spec spec;
    std::string user;
    std::string key;
    cluster::JobState state = cluster::QUEUED;
    std::string why;
    uint32_t term = 0;
    NodeId coordinator = 0;
    Segments layout;
    bool fresh = true;
    bool heard = false;  // of this term's coordinator
    bool placed = false;
    uint64_t epoch = 0;
    uint32_t restarts = 0;
    cluster::Row culprit;
    google::protobuf::RepeatedPtrField<cluster::Row> leftovers;
    RangeSet wanted;
    std::optional<cluster::EndRequest> end;  // what a client asked for, until it is over
    int64_t submitted_ns = 0;
    int64_t started_ns = 0;
    int64_t ended_ns = 0;
    std::vector<JobWatcher*> watchers;
  };
  struct Host {
    cluster::HostAbout about;
  };
  struct PendingQuery {
    cluster::PsReply reply;
    RangeSet missing;
    Alarm* waiting = nullptr;
  };

  // TreeUser (head.cc).
  void on_parcel(NodeId from, Bytes body) override;
  void on_report(uint64_t key, Bytes body) override;
  void on_lost(const RangeSet& nodes) override;
  void on_alive(const RangeSet& added, const RangeSet& removed) override;
  Result<NodeId> admit(const tree::Attach& attach, const wire::Peer& peer) override;
  std::string address_of(NodeId node) override;
  Result<NodeId> number_for(const cluster::HostAbout& about);
  void learn(const cluster::HostAbout& about);

  // Jobs (head_jobs.cc).
  void place_queued();
  bool place(Job& job);
  void appoint(Job& job, NodeId coordinator, bool fresh);
  void send_appointment(const Job& job);
  void find_coordinators();
  void on_update(NodeId from, const cluster::JobUpdate& update);
  void on_final(Job& job);
  // Hosts whose room the job has: all of its own, then those where something of it is left.
  RangeSet held_by(const Job& job) const;
  void settle_room(Job& job, const RangeSet& before);
  void on_leftovers(Job* job, const cluster::JobReport& report);
  void grant(Job& job);
  Task<void> acknowledge_durably(NodeId to, cluster::JobUpdateAck ack, uint64_t sequence);
  Task<void> change_durably(uint64_t job, uint64_t sequence);
  Task<void> send_durably(uint64_t job, uint32_t term, uint64_t sequence);
  void send(NodeId to, const cluster::Message& message);
  void changed(Job& job);
  void log_failed(const Error& why);
  Job* find(uint64_t job);
  const Job* find(uint64_t job) const;
  cluster::JobInfo info_of(const Job& job) const;
  cluster::JobInfo full_info_of(const Job& job) const;  // with its hosts
  std::string name_of(NodeId node) const;
  // The host in its address: what others connect to.
  std::string place_of(NodeId node) const;
  uint64_t post(const cluster::HeadRecord& record);
  cluster::HeadRecord placed_record(const Job& job) const;
  cluster::HeadRecord changed_record(const Job& job) const;
  Task<Result<void>> keep_time();
  Task<void> write_log();
  void forget_old();

  // EventLogReader (head_log.cc).
  Result<void> on_snapshot(uint64_t sequence, std::string_view state) override;
  Result<void> on_record(uint64_t sequence, std::string_view record) override;
  void replay(const cluster::HeadRecord& record);
  Task<void> snapshot_when_large();

  World& world_;
  wire::Seals& seals_;
  HeadOptions options_;
  std::unique_ptr<TreeNode> tree_;
  std::unique_ptr<EventLog> log_;
  Placement placement_;
  std::vector<Host> hosts_;  // by number; of a roster none
  std::map<std::string, NodeId> numbers_;
  std::map<uint64_t, std::unique_ptr<Job>> jobs_;
  std::map<std::string, uint64_t> keys_;
  std::deque<uint64_t> queue_;
  std::deque<uint64_t> over_;  // jobs that ended, oldest first
  uint64_t next_job_ = 1;
  std::map<uint64_t, PendingQuery> queries_;
  uint64_t next_query_ = 1;
  int64_t up_since_ns_ = 0;
  Alarm time_;
  Scope* strands_ = nullptr;
  bool snapshotting_ = false;
};

}  // namespace tutti
