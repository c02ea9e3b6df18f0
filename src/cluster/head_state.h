// What the head knows for certain: hosts, jobs, who waits and who has ended. It follows from the
// records of the head's log and from nothing else, so that a head that is started anew knows the
// same. Pure bookkeeping; the head alone writes to it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/head.pb.h"
#include "cluster/job_queue.h"
#include "cluster/placement.h"

namespace tutti {

// Told when the state of a job is not what it was; of its end, when that is durable. Calls must not
// wait.
class JobWatcher {
 public:
  virtual void on_job_changed(uint64_t job) = 0;

 protected:
  ~JobWatcher() = default;
};

struct HeadJob {
  uint64_t id = 0;
  job::Spec spec;  // of one that is over without its environments
  std::string user;
  std::string key;
  cluster::JobState state = cluster::QUEUED;
  std::string why;
  uint32_t term = 0;
  NodeId coordinator = 0;
  Segments layout;
  bool fresh = true;
  bool placed = false;
  uint64_t epoch = 0;
  uint32_t restarts = 0;
  google::protobuf::RepeatedPtrField<cluster::TakenRestarts> taken;
  cluster::Row culprit;
  google::protobuf::RepeatedPtrField<cluster::Row> leftovers;
  RangeSet
      given_up;  // hosts that were lost with something of it, and have not said that it is gone
  std::optional<cluster::EndRequest> end;  // what a client asked for
  int64_t submitted_ns = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  uint64_t sequence = 0;  // of its last record

  // Heard and asked since the head began; in no record.
  bool heard = false;  // of this term's coordinator
  RangeSet astray;     // where it has processes that we have elsewhere, or may have
  RangeSet wanted;
  uint64_t changes = 1;
  std::vector<JobWatcher*> watchers;
};

inline bool is_over(cluster::JobState state) { return state >= cluster::SUCCEEDED; }

struct HeadState {
  Placement placement;
  std::vector<cluster::HostAbout> hosts;  // by number; of a roster none
  std::map<std::string, NodeId> numbers;
  std::map<uint64_t, std::unique_ptr<HeadJob>> jobs;
  std::map<std::string, uint64_t> keys;
  std::map<NodeId, std::set<uint64_t>> given_up;  // hosts, with the jobs that gave them up
  JobQueue queue;                                 // some of them may have ended meanwhile
  std::deque<uint64_t> over;                      // jobs that ended, oldest first
  uint64_t next_job = 1;

  HeadJob* find(uint64_t job);
  const HeadJob* find(uint64_t job) const;

  // Does again what was done when the record was posted. Jobs that it forgets are told first.
  using Forgetting = std::function<void(const HeadJob&)>;
  void replay(uint64_t sequence, const cluster::HeadRecord& record, const Forgetting& forgetting);

  // What both the head and a replay do.
  void know_host(const cluster::HostAbout& about);
  void forget_host(const std::string& name);
  void add(std::unique_ptr<HeadJob> job);
  void end(HeadJob& job, int64_t at_ns);
  void forget(uint64_t job);
  // Hosts whose room the job has: all of its own, then those where something of it is left.
  static RangeSet held_by(const HeadJob& job);
  // Gives back, or takes again, the room of hosts that it held before and does now.
  void settle_room(const HeadJob& job, const RangeSet& before);
  // Hosts that are given up take nothing new.
  void set_given_up(HeadJob& job, RangeSet hosts);
};

cluster::JobSubmitted submitted_of(const HeadJob& job);
cluster::JobPlaced placed_of(const HeadJob& job);
cluster::JobChanged changed_of(const HeadJob& job);

std::unique_ptr<HeadJob> job_from(const cluster::JobSubmitted& submitted);
void set_placed(HeadJob& job, const cluster::JobPlaced& placed);
void set_changed(HeadJob& job, const cluster::JobChanged& changed);

// What clients are told of it, without its roles and hosts.
cluster::JobInfo brief_info(const HeadJob& job);
void add_roles(const HeadJob& job, cluster::JobInfo& info);

}  // namespace tutti
