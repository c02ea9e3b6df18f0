#include "cli/job_report.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace tutti::cli {
namespace {

class Told final : public GangListener {
 public:
  void on_started(uint32_t rank, pid_t pid, bool) override { started.emplace_back(rank, pid); }
  Task<Result<void>> on_output(uint32_t, RankStream, Bytes) override { co_return {}; }
  void on_exit(uint32_t rank, const RankReport& report) override {
    exited.emplace_back(rank, report.pid);
  }
  void on_ending(const GangReport&) override {}

  using List = std::vector<std::pair<uint32_t, pid_t>>;
  List started;
  List exited;
};

cluster::ProcessEvent event_of(uint32_t process, pid_t pid, uint64_t epoch, bool exits) {
  cluster::ProcessEvent event;
  event.set_process(process);
  event.set_pid(pid);
  event.set_epoch(epoch);
  if (exits) event.mutable_exit()->set_code(0);
  return event;
}

TEST_CASE("a host that comes back does not have the past happen again") {
  Told told;
  JobTeller teller(told, 2);
  teller.on_event(event_of(1, 100, 5, false));
  teller.on_event(event_of(1, 200, 6, false));  // elsewhere
  teller.on_event(event_of(1, 100, 5, true));
  teller.on_event(event_of(1, 200, 6, false));
  teller.on_event(event_of(1, 200, 6, true));
  CHECK(told.started == Told::List{{1, 100}, {1, 200}});
  CHECK(told.exited == Told::List{{1, 200}});
}

}  // namespace
}  // namespace tutti::cli
