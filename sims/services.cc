// A service that falls ill, and a gang that needs it: the gang starts when the service is well, and
// the service is started again when it is not.
#include "cluster/job_defaults.h"
#include "sims/cluster_stage.h"
#include "sims/scenarios.h"
#include "world/sim/process.h"

namespace tutti::sims {
namespace {

constexpr Duration kBoot = 2s;
constexpr Duration kSettling = 30s;
constexpr Duration kPatience = 10min;
constexpr uint16_t kPort = 8080;
// The service takes its time to begin, and its first life does not stay well.
constexpr Duration kLoading = 700ms;
constexpr Duration kWell = 2s;
constexpr Duration kWork = 10s;

struct Seen {
  Simulator* sim;
  int lives = 0;
  bool well = false;
};

Task<void> take_calls(Listener& listener) {
  while (true) {
    auto accepted = co_await listener.accept();
    if (!accepted) co_return;
  }
}

Task<int> serve(SimProcess& process, std::shared_ptr<Seen> seen) {
  const bool falls_ill = seen->lives++ == 0;
  auto slept = co_await process.clock().sleep(kLoading);
  Address address = Address::tcp("0.0.0.0", kPort);
  auto listener = co_await process.network().listen(std::move(address));
  if (!slept || !listener) co_return 1;
  seen->well = true;
  Scope calls;
  calls.spawn(take_calls(**listener));
  slept = co_await process.clock().sleep(falls_ill ? kWell : 1000h);
  calls.cancel();
  (void)co_await calls.join();
  listener->reset();
  (void)co_await process.clock().sleep(1000h);
  co_return 1;
}

Task<int> work(SimProcess& process, std::shared_ptr<Seen> seen) {
  seen->sim->check(seen->well, "a worker started before its service was well");
  auto slept = co_await process.clock().sleep(kWork);
  co_return slept ? 0 : 1;
}

job::Spec served_job() {
  job::Spec spec = default_job();
  spec.set_name("served");
  spec.set_folder("/");
  job::Role service = default_role(job::Role::SERVICE);
  service.set_name("data");
  service.add_command("service");
  *service.mutable_health() = default_health();
  service.mutable_health()->set_port(kPort);
  service.mutable_health()->set_every_ns(to_ns(300ms));
  *spec.add_roles() = std::move(service);
  job::Role gang = default_role(job::Role::GANG);
  gang.set_name("worker");
  gang.set_count(4);
  gang.add_needs("data");
  gang.add_command("served-worker");
  *spec.add_roles() = std::move(gang);
  return spec;
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  const auto stage = std::make_shared<ClusterStage>(sim, StageOptions{});
  const auto seen = std::make_shared<Seen>(Seen{.sim = &sim});
  stage->set_worker("service", [seen](SimProcess& process) { return serve(process, seen); });
  stage->set_worker("served-worker", [seen](SimProcess& process) { return work(process, seen); });
  stage->start();
  const bool calm = sim.options().faults.name == "none";
  CO_TRY_DO(co_await sim.clock().sleep(kBoot));
  SubmittedJob& job = stage->submit(served_job());
  if (!calm) CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await stage->whole_again());
  CO_TRY_DO(co_await stage->all_over(kPatience));
  if (sim.failure()) co_return {};
  CO_TRY_DO(co_await sim.clock().sleep(kSettling));
  stage->check_end();
  if (!calm) co_return {};
  sim.check(job.final_state == cluster::SUCCEEDED, "the job did not succeed: {}",
            stage->describe(job));
  sim.check(seen->lives == 2, "the service had {} lives", seen->lives);
  auto info = stage->head()->info(job.id);
  sim.check(info && info->culprit().exit().error() == job::HANG, "its illness was no hang");
  co_return {};
}

}  // namespace

const Scenario kServices = {"services", "a service falls ill, and a gang needs it", 6, 2, 10s, run};

}  // namespace tutti::sims
