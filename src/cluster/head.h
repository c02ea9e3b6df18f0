// The head: takes jobs, gives them hosts, appoints their coordinators, and remembers what became of
// them. It is the root of the tree, but does nothing for hosts that are idle, and jobs go on
// without it. What it knows for certain is in its log; the rest it hears from the agents again.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/event_log.h"
#include "cluster/head_snapshot.h"
#include "cluster/head_state.h"
#include "cluster/index_feed.h"
#include "cluster/tree_node.h"
#include "cluster/twins.h"

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
  // A snapshot is taken when the records since the last have this many bytes, and are more than it.
  uint64_t log_bytes = 64_MiB;
  bool reserve_log = false;  // EventLogOptions::reserve
  std::string owner;         // the user who runs it
  // Of jobs that ended; older ones are only in the index.
  size_t most_ended = 100'000;
  JobIndex* index = nullptr;  // outlives the head; without one, what it forgets is gone
};

std::unexpected<Error> no_such_job(uint64_t job);

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
  // When it returns, the job will end whatever becomes of the head.
  Task<Result<void>> kill(cluster::KillRequest request, std::string user);
  Result<void> signal(const cluster::SignalRequest& request, const std::string& user);
  Result<cluster::JobInfo> info(uint64_t job) const;
  bool has_ended(uint64_t job) const;  // also one that nobody knows any more
  // Waits until the job has other `changes` than were seen, and until an end cannot be undone.
  Task<Result<cluster::JobInfo>> change_of(uint64_t job, uint64_t seen);
  // Newest first, `most` at most.
  std::vector<cluster::JobInfo> jobs(const cluster::JobsRequest& request) const;
  // The same, with those that were forgotten (head_history.cc).
  Task<cluster::JobsReply> all_jobs(cluster::JobsRequest request);
  Task<Result<cluster::JobInfo>> any_info(uint64_t job);
  // Briefly: without the hosts, and then without looking at each of them.
  cluster::StatusReply status(bool brief) const;
  Task<Result<cluster::PsReply>> processes(cluster::PsRequest request);
  Result<cluster::HostAbout> host(const std::string& name) const;
  // A host that has left for good. Refused while it is connected, or has something of a job.
  Task<Result<void>> forget_host(std::string name);

  // It has read its log.
  bool ready() const { return strands_ != nullptr; }
  TreeNode& tree() { return *tree_; }
  const Placement& placement() const { return state_.placement; }

 private:
  struct PendingQuery {
    cluster::PsReply reply;
    RangeSet missing;
    Alarm* waiting = nullptr;
  };

  // TreeUser (head.cc).
  void on_parcel(NodeId from, Bytes body) override;
  void on_report(uint64_t key, Bytes body) override;
  void on_lost(const RangeSet& nodes) override;
  void on_away(const RangeSet& nodes, bool away) override;
  void on_alive(const RangeSet& added, const RangeSet& removed) override;
  Result<NodeId> admit(const tree::Attach& attach, const wire::Peer& peer) override;
  std::string address_of(NodeId node) override;
  void on_child(const Child& child) override;
  void on_twin(const Child& child) override;
  void on_hanging(const cluster::Hanging& hanging);
  void on_hangs(const cluster::Hanging& older);
  void expel(const cluster::Hanging& hanging);
  void note_twin(const cluster::Hanging& refused);
  void hosts_came();
  bool is_connected(NodeId node) const;
  Result<NodeId> number_for(const cluster::HostAbout& about);
  void learn(cluster::HostAbout about);

  // Jobs (head_jobs.cc).
  void place_queued();
  bool place(HeadJob& job, Placement::Hosts hosts);
  void appoint(HeadJob& job, NodeId coordinator, bool fresh);
  void send_appointment(const HeadJob& job);
  void find_coordinators();
  void on_update(NodeId from, const cluster::JobUpdate& update);
  uint64_t take_update(HeadJob& job, const cluster::JobUpdate& update);
  void on_leftovers(HeadJob* job, const cluster::JobReport& report);
  void grant(HeadJob& job);
  Task<void> acknowledge_durably(NodeId to, cluster::JobUpdateAck ack, uint64_t sequence);
  Task<void> send_durably(RangeSet to, cluster::Message message, uint64_t sequence);
  Task<void> appoint_durably(uint64_t job, uint32_t term, uint64_t sequence);
  void send(NodeId to, const cluster::Message& message);
  void changed(HeadJob& job);
  void log_failed(const Error& why);
  cluster::JobInfo full_info_of(const HeadJob& job) const;  // with its hosts
  std::string name_of(NodeId node) const;
  // The host in its address: what others connect to.
  std::string place_of(NodeId node) const;
  // Hosts that were given up (head_given_up.cc).
  void give_up(HeadJob& job, const RangeSet& hosts);
  bool ask_given_up();
  cluster::Message ask_vacated(NodeId node, const HeadJob& job);
  void on_vacated(NodeId node, const cluster::Vacated& vacated);

  uint64_t post_placed(const HeadJob& job);
  uint64_t post_changed(const HeadJob& job);
  Task<Result<void>> keep_time();
  Task<void> write_log();
  Task<Result<void>> end_kept(uint64_t job);
  void add_away(uint64_t job, const RangeSet& silent, cluster::PsReply& reply) const;
  void forget_old();

  // EventLogReader (head_log.cc).
  Result<void> on_snapshot(uint64_t sequence, std::string_view state) override;
  Result<void> on_record(uint64_t sequence, std::string_view record) override;
  uint64_t post(uint64_t job, const cluster::HeadRecord& record);
  void snapshot_if_large();
  Task<void> take_snapshot();
  Task<void> take_jobs();

  World& world_;
  wire::Seals& seals_;
  HeadOptions options_;
  std::unique_ptr<TreeNode> tree_;
  std::unique_ptr<EventLog> log_;
  HeadState state_;
  std::optional<HeadSnapshotTaker> taker_;  // while jobs are taken for a snapshot
  uint64_t snapshot_at_ = 0;                // when that many bytes were logged since the last one
  bool snapshotting_ = false;
  std::unique_ptr<IndexFeed> feed_;  // if there is an index
  Twins twins_;
  std::unique_ptr<LogLimit> tell_twins_;  // once there were some
  std::map<uint64_t, PendingQuery> queries_;
  uint64_t next_query_ = 1;
  std::map<NodeId, uint64_t> back_;  // that were given up and are here: what their answers bear
  int64_t up_since_ns_ = 0;
  Alarm time_;
  Scope* strands_ = nullptr;
};

}  // namespace tutti
