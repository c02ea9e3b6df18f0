// A whole cluster in simulation: the head on host 0, an agent on each other host, keepers and
// workers as processes below them, and a client that submits jobs until the head has taken them.
//
// The ledger is outside of all hosts and sees everything: what it compares must hold at any time.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/agent.h"
#include "cluster/head.h"
#include "sims/exit_ledger.h"
#include "sims/roster.h"
#include "world/sim/process.h"

namespace tutti::sims {

// From the last fault on (docs/tree.md).
constexpr Duration kTreeHeals = 8s;

struct SubmittedJob {
  std::string key;
  job::Spec spec;
  uint64_t id = 0;
  std::optional<cluster::JobState> final_state;
  int64_t submitted_at_ns = 0;
  int64_t running_at_ns = 0;
  int64_t over_at_ns = 0;
};

struct StageOptions {
  uint32_t fan_out = kUsualFanOut;
  uint32_t slots = 8;
  // Agents as processes that are started again when they die; else they live with their host.
  bool agents_restart = true;
  size_t warm_keepers = 0;
  uint64_t head_log_bytes = 64_MiB;  // then the head takes a snapshot
};

// Hosts are its guests to the end of the simulation, so the simulator holds on to it too.
class ClusterStage : public std::enable_shared_from_this<ClusterStage> {
 public:
  ClusterStage(Simulator& sim, StageOptions options);

  // What jobs name as their command; its lives and ends stand in the ledger.
  using Program = std::function<Task<int>(SimProcess&)>;
  void set_worker(std::string name, Program program);
  void start();
  // The same, one host after the other.
  Task<Result<void>> start_over(Duration time);
  // From now on the client submits it, and asks what became of it.
  SubmittedJob& submit(job::Spec spec);
  // Asks the head, on its host. False when it died meanwhile, or refused.
  Task<bool> kill(cluster::KillRequest request);
  // After the last fault: until every host hangs in the tree and the head knows all of them, within
  // kTreeHeals.
  Task<Result<void>> whole_again();
  // Until every job is over.
  Task<Result<void>> all_over(Duration patience);
  // What must hold at the end: nothing runs, all is known, the tree is whole.
  void check_end();
  // A head that is started anew says of every job what it said before.
  Task<Result<void>> check_head_remembers();
  std::string describe(const SubmittedJob& job);

  void kill_agent(uint32_t host);
  // The agent says that it will be back, ends, and is started again so much later.
  Task<Result<void>> leave(uint32_t host, Duration time);
  Head* head() { return head_; }
  Agent* agent(uint32_t host) { return agents_[host]; }
  size_t workers() const { return alive_.size(); }
  uint64_t lives() const { return lives_; }
  uint64_t submitted_processes() const;  // of all jobs
  size_t processes() const { return processes_.size(); }
  // Workers, and the spares of gangs whose command is "python worker". These return when all that
  // live are in one epoch by their control pages, and it is not over.
  void kill_some_process(SimRandom& random);
  Simulator& sim() { return sim_; }

 private:
  class Worker;
  class Listed;
  struct Joins {
    uint64_t epoch;
    bool over;
  };
  void set_programs();
  Task<Result<void>> run_head(SimHost& host);
  Task<Result<void>> keep_head(SimHost& host);
  Task<Result<void>> run_agent(World& world, SimHost& host);
  std::unique_ptr<Agent> make_agent(World& world, uint32_t host, wire::Seals& seals);
  Task<Result<void>> run_init(SimHost& host);
  Task<int> agent_program(SimProcess& process);
  static Result<Task<Result<void>>> start_keeping(SimProcess& process);
  static Task<int> keeper_program(SimProcess& process);
  Task<int> python_program(SimProcess& process);
  Task<int> work_and_join(SimProcess& process, Life life, std::string page_offset);
  bool all_join(const Life& life) const;
  // The program must outlive the process.
  Task<int> live(SimProcess& process, Life life, const Program& program);
  static Task<int> work(SimProcess& process);
  Task<int> live_and_work(SimProcess& process);
  std::string describe(const Life& life) const;
  bool is_whole() const;
  void check_exits();
  Task<Result<void>> client(SimHost& host, Head& head);
  static Task<void> ask_to_kill(Head& head, cluster::KillRequest request,
                                std::shared_ptr<bool> taken);
  Task<void> follow(SimHost& host, Head& head, SubmittedJob& job);

  Simulator& sim_;
  StageOptions options_;
  Roster roster_;
  std::shared_ptr<const AgentOptions> agent_options_;
  std::vector<std::unique_ptr<SubmittedJob>> jobs_;
  Head* head_ = nullptr;
  Scope* head_strands_ = nullptr;  // while there is a head
  std::vector<Agent*> agents_;
  std::vector<pid_t> agent_pids_;
  std::vector<uint32_t> workers_;  // of each host, that live; each takes a slot
  std::map<uint32_t, Instant> away_until_;
  std::multiset<Life> alive_;
  std::map<Life, Joins> joining_;                             // those of them whose work is done
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> newest_;  // epochs of jobs' processes
  ExitLedger exits_;
  std::set<std::pair<uint32_t, pid_t>> processes_;  // of workers and spares: host and number
  uint64_t lives_ = 0;
  bool keep_lives_;
};

// A gang of so many workers that work for a while.
job::Spec gang_job(uint32_t count, Duration work);

}  // namespace tutti::sims
