// Where the processes of a job meet: its barriers and values, with its coordinator. Pure logic; the
// coordinator lets nobody in who is not of the gang's present epoch. docs/exchange.md is the
// manual.
//
// It may forget everything, with the agent it lives in: hosts tell again who waits, what is open
// and what was put.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/job_layout.h"
#include "cluster/recent_rounds.h"

namespace tutti {

constexpr size_t kMaxExchangeKeys = 65'536;     // of a job: some for each of thousands of ranks
constexpr size_t kMaxExchangeBytes = 16 << 20;  // keys and values of a job
constexpr size_t kMaxOpenBarriers = 4'096;      // of a job, at which somebody waits

class ExchangeDesk {
 public:
  explicit ExchangeDesk(JobNumbers numbers) : numbers_(std::move(numbers)) {}

  // Of one role; `done` are those of the job that have ended well.
  void arrived(const RangeSet& processes, const cluster::Row& row, const RangeSet& hosts,
               const RangeSet& done);
  void opened(size_t role, const cluster::Row& row);
  void put(ProcessId process, const cluster::Row& row, const RangeSet& hosts);
  void wanted(const cluster::Row& row, const RangeSet& hosts);
  // What is of another epoch of this role is over.
  void keep_only(size_t role, uint64_t gang_epoch);

  // To hosts; an empty set is all that have processes of the role.
  struct Letter {
    RangeSet to;
    cluster::Release release;
  };
  std::vector<Letter> take_letters();

 private:
  struct Value {
    size_t role = 0;
    ProcessId process = 0;
    uint64_t gang_epoch = 0;
    uint64_t serial = 0;
    std::string bytes;
  };
  std::string refusal(ProcessId process, const std::string& key, size_t more) const;
  cluster::Release release_of(size_t role, const cluster::Row& row) const;
  void send_value(const std::string& key, const Value& value, const RangeSet& hosts);

  JobNumbers numbers_;
  std::map<BarrierName, RangeSet> waiting_;  // at the first barrier of the name that is not open
  RecentRounds open_;
  std::map<std::string, Value> values_;
  std::map<std::string, RangeSet> wanting_;  // hosts, by key
  size_t bytes_ = 0;
  cluster::Release kept_;  // answers to puts, for all of these hosts
  RangeSet kept_for_;
  std::vector<Letter> letters_;
};

}  // namespace tutti
