// Gangs that meet at barriers and exchange values, while agents, the head, coordinators' hosts and
// the workers themselves die. What must hold: no barrier opens before all of that life of the gang
// have come to it, every value that is read was put in that life, whoever is told that its epoch is
// over is ended, and everybody gets through in the end.
#include <charconv>
#include <csignal>
#include <set>

#include "cluster/exchange_wire.h"
#include "sims/cluster_stage.h"
#include "sims/scenarios.h"
#include "world/sim/process.h"
#include "world/sim/process_table.h"

namespace tutti::sims {
namespace {

constexpr Duration kBoot = 2s;
constexpr Duration kSettling = 30s;
constexpr Duration kPatience = 5min;
constexpr Duration kAskPause = 50ms;
// By then a process that was told that its epoch is over has been ended, through all faults.
constexpr Duration kOverPatience = 3min;
constexpr uint32_t kSlots = 8;
constexpr uint64_t kRounds = 6;

uint64_t number_of(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Sees what all workers do, whatever becomes of them.
struct Meetings {
  struct Call {
    uint64_t job;
    uint64_t round;
    uint32_t rank;
    uint64_t life;
    auto operator<=>(const Call&) const = default;
  };
  std::set<Call> arrived;  // their calls, before they are made
  std::set<Call> put;
  std::set<std::pair<uint32_t, pid_t>> alive;  // host and process
};

// One worker, in one life.
struct Rank {
  SimProcess& process;
  Meetings& meetings;
  Simulator& sim;
  uint64_t job = number_of(process.variable("TUTTI_JOB"));
  uint64_t life = number_of(process.variable("TUTTI_EPOCH"));
  uint32_t rank = static_cast<uint32_t>(number_of(process.variable("RANK")));
  uint32_t size = static_cast<uint32_t>(number_of(process.variable("WORLD_SIZE")));
  uint64_t gang_epoch = 0;

  Rank(SimProcess& process, Meetings& meetings)
      : process(process), meetings(meetings), sim(process.host().simulator()) {
    meetings.alive.insert({process.host().index(), process.pid()});
  }
  ~Rank() { meetings.alive.erase({process.host().index(), process.pid()}); }

  ExchangeRequest request(ExchangeRequest::Op op, std::string name, uint64_t round) const {
    ExchangeRequest request{.op = op, .job = job, .life = life, .gang_epoch = gang_epoch};
    request.round = round;
    request.process = static_cast<uint32_t>(number_of(process.variable("TUTTI_PROCESS")));
    request.name = std::move(name);
    return request;
  }
};

Task<Result<ExchangeAnswer>> ask_once(Rank& rank, const ExchangeRequest& request) {
  Address address = Address::unix_socket(std::string(rank.process.variable(kExchangeVariable)));
  auto stream = co_await rank.process.network().connect(std::move(address));
  if (!stream) co_return fail(std::move(stream).error());
  const std::string encoded = encode(request);
  const Bytes bytes = as_bytes(encoded);
  auto written = co_await (*stream)->write(bytes);
  if (!written) co_return fail(std::move(written).error());
  co_return co_await read_answer(**stream);
}

// As the client in Python does: until there is an answer.
Task<Result<ExchangeAnswer>> ask(Rank& rank, ExchangeRequest request) {
  while (true) {
    auto answer = co_await ask_once(rank, request);
    const bool again = answer ? !answer->ok && answer->code == Code::cancelled
                              : answer.error().code() != Code::cancelled;
    if (!again) {
      if (answer && answer->ok) rank.gang_epoch = answer->gang_epoch;
      co_return answer;
    }
    CO_TRY_DO(co_await rank.process.clock().sleep(kAskPause));
  }
}

// Whoever is told that it is over waits to be ended; nothing else may go wrong.
Task<int> wait_for_end(Rank& rank, Result<ExchangeAnswer> answer) {
  if (!answer) co_return 1;  // ended already
  const bool over = answer->code == Code::denied || answer->code == Code::unavailable ||
                    answer->code == Code::not_found;
  const bool impossible = answer->message.find("cannot open") != std::string::npos;
  rank.sim.check(over && !impossible, "rank {} of job {} in epoch {:x}: {}", rank.rank, rank.job,
                 rank.life, answer->message);
  auto slept = co_await rank.process.clock().sleep(kOverPatience);
  if (!slept) co_return 1;
  rank.sim.check(false, "rank {} of job {} in epoch {:x} was told '{}', and nobody ended it",
                 rank.rank, rank.job, rank.life, answer->message);
  co_return 1;
}

std::string value_of(const Meetings::Call& call) {
  return fmt::format("{} {} {}", call.rank, call.round, call.life);
}

// All of the gang were there, in lives of this epoch of it.
void check_meeting(Rank& rank, uint64_t round) {
  TUTTI_PROBE("exchange: a barrier opened");
  for (uint32_t other = 0; other < rank.size; ++other) {
    const auto first = rank.meetings.arrived.lower_bound({rank.job, round, other, rank.gang_epoch});
    const bool there = first != rank.meetings.arrived.end() && first->job == rank.job &&
                       first->round == round && first->rank == other;
    rank.sim.check(there, "barrier {} of job {} opened in epoch {:x} without rank {}", round,
                   rank.job, rank.gang_epoch, other);
  }
}

void check_value(Rank& rank, uint32_t other, uint64_t round, const std::string& value) {
  for (auto put = rank.meetings.put.lower_bound({rank.job, round, other, rank.gang_epoch});
       put != rank.meetings.put.end() && put->job == rank.job && put->round == round &&
       put->rank == other;
       ++put)
    if (value_of(*put) == value) return;
  rank.sim.check(false, "rank {} of job {} read '{}' in epoch {:x}", rank.rank, rank.job, value,
                 rank.gang_epoch);
}

Task<int> run_rank(SimProcess& process, std::shared_ptr<Meetings> meetings) {
  using Op = ExchangeRequest::Op;
  Rank rank(process, *meetings);
  for (uint64_t round = 0; round < kRounds; ++round) {
    const auto pause = Duration(static_cast<int64_t>(process.random().below(to_ns(1s))));
    auto slept = co_await process.clock().sleep(pause);
    if (!slept) co_return 1;
    const Meetings::Call call{rank.job, round, rank.rank, rank.life};
    meetings->put.insert(call);
    ExchangeRequest put =
        rank.request(Op::put, fmt::format("{} of {}", round, rank.rank), round + 1);
    put.value = value_of(call);
    auto kept = co_await ask(rank, std::move(put));
    if (!kept || !kept->ok) co_return co_await wait_for_end(rank, std::move(kept));
    meetings->arrived.insert(call);
    ExchangeRequest barrier = rank.request(Op::barrier, "step", round);
    auto open = co_await ask(rank, std::move(barrier));
    if (!open || !open->ok) co_return co_await wait_for_end(rank, std::move(open));
    check_meeting(rank, round);
    const uint32_t other = (rank.rank + 1) % rank.size;
    ExchangeRequest get = rank.request(Op::get, fmt::format("{} of {}", round, other), 0);
    auto got = co_await ask(rank, std::move(get));
    if (!got || !got->ok) co_return co_await wait_for_end(rank, std::move(got));
    check_value(rank, other, round, got->value);
  }
  co_return 0;
}

Task<Result<void>> crash_for(Simulator& sim, uint32_t host, Duration lasts) {
  sim.crash(host);
  CO_TRY_DO(co_await sim.clock().sleep(lasts));
  sim.reboot(host);
  co_return {};
}

uint32_t some_coordinator(ClusterStage& stage) {
  for (uint32_t host = 1; host < stage.sim().hosts(); ++host)
    if (stage.agent(host) != nullptr && stage.agent(host)->coordinators() != 0) return host;
  return 1;
}

// Whoever is in the way, one after the other.
Task<Result<void>> trouble(ClusterStage& stage, Meetings& meetings, SimRandom& random) {
  Simulator& sim = stage.sim();
  Scope dying;
  for (int i = 0; i < 25; ++i) {
    const auto pause = Duration(static_cast<int64_t>(random.below(to_ns(400ms))));
    CO_TRY_DO(co_await sim.clock().sleep(pause));
    const uint64_t draw = random.below(20);
    const auto some = static_cast<uint32_t>(1 + random.below(sim.hosts() - 1));
    if (draw < 9) {
      stage.kill_agent(some);
    } else if (draw < 15) {
      stage.kill_agent(some_coordinator(stage));
    } else if (draw < 17 && !meetings.alive.empty()) {
      auto victim = meetings.alive.begin();
      std::advance(victim, random.below(meetings.alive.size()));
      (void)sim.host(victim->first).process_table().signal(victim->second, SIGKILL);
    } else if (draw == 18) {
      dying.spawn(crash_for(sim, kHead, 1s));
      CO_TRY_DO(co_await sim.clock().sleep(2s));
    } else if (draw == 19) {
      dying.spawn(crash_for(sim, some_coordinator(stage), 5s));
    }
  }
  co_return co_await dying.join();
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  const auto meetings = std::make_shared<Meetings>();
  const auto stage =
      std::make_shared<ClusterStage>(sim, StageOptions{.fan_out = 2, .slots = kSlots});
  stage->set_worker("meet",
                    [meetings](SimProcess& process) { return run_rank(process, meetings); });
  stage->start();
  CO_TRY_DO(co_await sim.clock().sleep(kBoot));
  SimRandom random = sim.random(RandomStream::program);
  const uint32_t slots = (sim.hosts() - 1) * kSlots;
  for (int i = 0; i < 2; ++i) {
    job::Spec spec = gang_job(2 + static_cast<uint32_t>(random.below(std::max(1U, slots / 3))), 0s);
    spec.mutable_roles(0)->set_command(0, "meet");
    stage->submit(std::move(spec));
  }
  Scope troubles;
  troubles.spawn(trouble(*stage, *meetings, random));
  if (sim.options().faults.name != "none") CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await troubles.join());
  CO_TRY_DO(co_await stage->whole_again());
  CO_TRY_DO(co_await stage->all_over(kPatience));
  if (sim.failure()) co_return {};
  CO_TRY_DO(co_await sim.clock().sleep(kSettling));
  stage->check_end();
  if (!meetings->alive.empty())
    sim.check(false, "{} workers have no owner, as {} on host {}", meetings->alive.size(),
              meetings->alive.begin()->second, meetings->alive.begin()->first);
  co_return {};
}

}  // namespace

const Scenario kExchange = {
    "exchange", "gangs meet and exchange values while everything dies", 6, 3, 20s, run};

}  // namespace tutti::sims
