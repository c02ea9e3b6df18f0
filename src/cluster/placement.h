// Which hosts have room, and where a job's processes go: all of them, or none.
//
// A process takes slots of its host; hosts have as many as they say. First fit, lowest numbers
// first, so that neighbours share a job and its layout has few segments. Pure bookkeeping.
#pragma once

#include <map>

#include "cluster/job_layout.h"

namespace tutti {

class Placement {
 public:
  // A host has come, or has another number of slots. One that is gone has no room until it is back.
  // With a user it takes only that user's jobs.
  void set_host(NodeId node, uint32_t slots, const std::string& only_for = {});
  void set_alive(NodeId node, bool alive);
  bool is_alive(NodeId node) const;
  // One that may have more than we know gets nothing new, alive or not, until it is open again.
  void set_open(NodeId node, bool open);

  // Takes room for all processes of the spec. Code::exhausted when there is not enough now.
  enum class Hosts : uint8_t { all, of_user_alone };
  Result<Segments> place(const job::Spec& spec, Hosts hosts = Hosts::all);
  bool has_hosts_of_users() const { return !owners_.empty(); }
  // Moves these processes to hosts that live: a whole layout again.
  Result<Segments> replace(const job::Spec& spec, const Segments& layout,
                           const RangeSet& processes);
  // Room of these hosts that is taken, after a restart of the head, and given back.
  void take(const job::Spec& spec, const Segments& layout, const RangeSet& nodes);
  void give_back(const job::Spec& spec, const Segments& layout, const RangeSet& nodes);

  // Whether the hosts we know that run the user's jobs, alive or not, could hold it if they had
  // nothing else. The error says what to change.
  Result<void> could_hold(const job::Spec& spec) const;

  uint32_t slots(NodeId node) const;
  uint32_t free(NodeId node) const;
  const RangeSet& alive() const { return alive_; }
  // Of all hosts that live together; kept, not counted.
  uint64_t all_slots() const { return all_slots_; }
  uint64_t all_taken() const { return all_taken_; }

 private:
  struct Host {
    uint32_t slots = 0;
    uint32_t taken = 0;
  };
  struct Piece {
    uint32_t first;
    uint32_t count;
  };
  // What of a host counts: what is free of those that live, or all of any that is known.
  enum class Room : uint8_t { now, ever };
  // Beside those of the role that stay where they are, and the slots that are used so far.
  Result<void> place_role(const job::Spec& spec, size_t role, Room room, const RangeSet& candidates,
                          std::vector<Piece> pieces, const std::map<NodeId, uint32_t>& staying,
                          std::map<NodeId, uint32_t>& used, Segments& into) const;
  Result<Segments> place_all(const job::Spec& spec, Room room, const RangeSet* only) const;
  // As much of the role as hosts could hold that have nothing else.
  Result<void> could_hold_alone(const job::Spec& spec, const job::Role& role) const;
  bool is_known(NodeId node) const { return slots(node) != 0 || alive_.contains(node); }
  bool runs_jobs_of(NodeId node, const std::string& user) const;
  RangeSet hosts_of(const std::string& user) const;  // that run nobody else's jobs
  // A host is taken out of the sums before it changes, and put back afterwards.
  enum class Count : bool { out, in };
  void count(NodeId node, Count way);
  void know_room(NodeId node);
  void change(const job::Spec& spec, const Segments& layout, const RangeSet& nodes, bool taking);

  std::vector<Host> hosts_;               // by number
  std::map<NodeId, std::string> owners_;  // of hosts that run one user's jobs alone
  uint64_t all_slots_ = 0;
  uint64_t all_taken_ = 0;
  RangeSet alive_;
  RangeSet closed_;
  RangeSet roomy_;  // alive and open, with a free slot
};

}  // namespace tutti
