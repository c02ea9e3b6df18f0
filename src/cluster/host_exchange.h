// What the processes of one job on this host exchange with the others: their calls wait here, are
// folded into rows for the coordinator, and answered by what it releases. docs/exchange.md is the
// manual.
//
// A call may come twice, after the agent came back: a barrier is known by its name and round, a put
// by its key and serial. What was released here, and what was put, is logged before anybody is
// told: the processes go on with it while agent and coordinator may both forget.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/exchange_wire.h"
#include "cluster/host_log.pb.h"
#include "cluster/job_layout.h"
#include "cluster/recent_rounds.h"
#include "world/alarm.h"

namespace tutti {

// What a job on a host knows, and does for those who exchange.
class ExchangeJob {
 public:
  virtual World& world() = 0;
  virtual const JobNumbers& numbers() const = 0;
  // The epoch in which the process that runs here was started; 0 when none does.
  virtual uint64_t life_of(ProcessId process) const = 0;
  // 0 when it is not known yet.
  virtual uint64_t gang_epoch(size_t role) const = 0;
  virtual uint64_t store() const = 0;
  // Who of a role is where, for its ranks; nothing before this host has heard of the epoch.
  virtual std::optional<std::string> gang_table(size_t role, uint64_t epoch) const = 0;
  // What runs here is not known yet.
  virtual bool finding_out() const = 0;
  // There is something to tell the coordinator.
  virtual void tell_soon() = 0;
  virtual uint64_t log_exchange(cluster::ExchangeRecord record) = 0;
  virtual Task<Result<void>> logged(uint64_t sequence) = 0;

 protected:
  ~ExchangeJob() = default;
};

class HostExchange {
 public:
  // The job outlives it, or closes it first.
  explicit HostExchange(ExchangeJob& job);

  // Until it is answered, whatever happens to the job.
  static Task<ExchangeAnswer> ask(std::shared_ptr<HostExchange> exchange, ExchangeRequest request);

  void on_release(const cluster::Release& release);
  // Processes began or ended, or epochs did.
  void look_again();
  // Nobody is answered any more but with what became of the job.
  void close();

  Instant due() const;
  // What the coordinator may not know yet; `all` of it when it has asked.
  void add_rows(cluster::JobReport& report, NodeId here, bool all);

  void restore(const cluster::ExchangeRecord& record);
  std::vector<cluster::ExchangeRecord> records(uint64_t job) const;

 private:
  struct Call;
  struct Barrier {
    uint64_t round = 0;
    uint64_t gang_epoch = 0;
    std::map<ProcessId, uint64_t> here;  // with the epoch in which each was started
    RangeSet told;
    std::optional<RangeSet> missing;  // as the coordinator said last
    Instant missing_at{};
    bool ask = false;
    std::string refused;
  };
  struct Value {
    ProcessId process = 0;
    uint64_t life = 0;
    uint64_t gang_epoch = 0;
    uint64_t serial = 0;
    std::string bytes;
    bool told = false;
    uint64_t kept_by = 0;  // the store that has it
    std::string refused;
    uint64_t sequence = 0;  // in the log
  };
  // Nothing while it has to wait.
  std::optional<ExchangeAnswer> answer(Call& call);
  std::optional<ExchangeAnswer> answer_barrier(Call& call);
  std::optional<ExchangeAnswer> answer_put(Call& call);
  std::optional<ExchangeAnswer> answer_get(Call& call);
  std::optional<ExchangeAnswer> refuse_stale(Call& call) const;
  ExchangeAnswer missing_text(const Call& call, const Barrier& barrier) const;
  void on_barrier(const cluster::Release& release);
  void on_value(const cluster::Release& release);
  void on_kept(const cluster::Release::Kept& kept);
  void drop_what_is_over();
  cluster::ExchangeRecord record_of(const std::string& key, const Value& value) const;
  bool anything_pending() const;
  void add_barriers(cluster::JobReport& report, NodeId here, bool again);
  void add_values(cluster::JobReport& report, NodeId here, bool again);
  void changed();
  void ring_all();

  ExchangeJob* job_;  // null when closed
  World& world_;
  std::list<Call*> calls_;
  std::map<BarrierName, Barrier> barriers_;
  RecentRounds open_;
  std::map<std::string, Value> values_;
  Instant again_at_ = kNever;  // what was not answered is told again
  bool changed_ = false;
};

}  // namespace tutti
