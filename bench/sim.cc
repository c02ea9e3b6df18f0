// Events per second of the simulator, and of a binary heap in its place.
//
//   bench_sim timers HOSTS EVENTS     each host has a strand that sleeps in a loop
//   bench_sim heap HOSTS EVENTS       the same events and host state on std::priority_queue
//   bench_sim messages HOSTS EVENTS   hosts in pairs send 64 bytes back and forth
//   bench_sim memory HOSTS            bytes per idle host that sleeps
//
// Prints one number: events, or delivered messages, per second of processor time.
#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <string_view>
#include <vector>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr int64_t kShortestNs = 500'000'000;
constexpr uint64_t kSpreadNs = 1'000'000'000;

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Task<void> sleep_on(SimHost& host) {
  for (;;) {
    const auto pause = kShortestNs + static_cast<int64_t>(host.random().below(kSpreadNs));
    auto slept = co_await host.clock().sleep(Duration(pause));
    if (!slept) co_return;
  }
}

void start_sleepers(Simulator& sim) {
  for (uint32_t i = 0; i < sim.hosts(); ++i) sim.host(i).scope().spawn(sleep_on(sim.host(i)));
  sim.run_for(1s);  // everyone sleeps, somewhere in its period
}

double timers(uint32_t hosts, uint64_t events) {
  Simulator sim({.hosts = hosts});
  start_sleepers(sim);
  const uint64_t before = sim.events();
  const double begin = cpu_s();
  while (sim.events() - before < events) sim.run_for(100ms);
  return static_cast<double>(sim.events() - before) / (cpu_s() - begin);
}

// What a simulator on a heap would do for the same events: the same number of hosts and pending
// events, the same delays, 64 bytes of state touched per event, the same trace.
double heap(uint32_t hosts, uint64_t events) {
  struct State {
    std::array<uint64_t, 8> words;
  };
  struct Event {
    int64_t at_ns;
    uint64_t sequence;
    uint32_t host;
    bool operator<(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : sequence > other.sequence;
    }
  };
  std::vector<State> states(hosts);
  std::vector<SimRandom> random;
  std::vector<Event> pending;
  uint64_t sequence = 0;
  for (uint32_t i = 0; i < hosts; ++i) {
    random.emplace_back(random_key(1, i, RandomStream::program));
    const auto pause = kShortestNs + static_cast<int64_t>(random[i].below(kSpreadNs));
    pending.push_back({pause, sequence++, i});
  }
  std::priority_queue<Event> queue({}, std::move(pending));
  Trace trace;
  const double begin = cpu_s();
  for (uint64_t i = 0; i < events; ++i) {
    const Event event = queue.top();
    queue.pop();
    trace.add(event.at_ns, event.host, EventKind::timer, 0);
    ++states[event.host].words[event.at_ns & 7];
    const auto pause = kShortestNs + static_cast<int64_t>(random[event.host].below(kSpreadNs));
    queue.push({event.at_ns + pause, sequence++, event.host});
  }
  return static_cast<double>(events) / (cpu_s() - begin);
}

uint64_t delivered = 0;

Task<void> answer(std::unique_ptr<Stream> stream) {
  std::array<std::byte, 64> message{};
  for (;;) {
    auto got = co_await stream->read(message);
    if (!got || *got == 0) co_return;
    ++delivered;
    const Bytes reply(message.data(), *got);
    auto sent = co_await stream->write(reply);
    if (!sent) co_return;
  }
}

Task<Result<void>> play(SimHost& host) {
  const bool serves = host.index() % 2 == 0;
  const Address address = Address::tcp(sim_host_name(host.index() & ~1U), 7000);
  if (serves) {
    CO_TRY(auto listener, co_await host.network().listen(address));
    CO_TRY(auto stream, co_await listener->accept());
    listener.reset();
    co_await answer(std::move(stream));
    co_return {};
  }
  const auto pause = static_cast<int64_t>(host.random().below(kSpreadNs));
  CO_TRY_DO(co_await host.clock().sleep(Duration(pause)));
  CO_TRY(auto stream, co_await host.network().connect(address));
  const std::array<std::byte, 64> hello{};
  CO_TRY_DO(co_await stream->write(hello));
  co_await answer(std::move(stream));
  co_return {};
}

double messages(uint32_t hosts, uint64_t events) {
  // As far apart in time as in a datacentre where each host hears something twenty times a second.
  CostTable costs;
  costs.within_rack_ns = costs.between_racks_ns = 25'000'000;
  costs.jitter_ns = 50'000'000;
  Simulator sim({.hosts = hosts, .costs = costs});
  sim.set_program(play);
  sim.start_all();
  sim.run_for(1500ms);
  const uint64_t before = delivered;
  const double begin = cpu_s();
  while (delivered - before < events) sim.run_for(1ms);
  return static_cast<double>(delivered - before) / (cpu_s() - begin);
}

double resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long total = 0;
  long resident = 0;
  const int got = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return got == 2 ? static_cast<double>(resident) * 4096 : 0;
}

double memory(uint32_t hosts) {
  const double before = resident_bytes();
  Simulator sim({.hosts = hosts});
  start_sleepers(sim);
  return (resident_bytes() - before) / hosts;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string_view what = argv[1];
  const auto hosts = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  const uint64_t events = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  double number = 0;
  if (what == "timers") number = tutti::timers(hosts, events);
  if (what == "heap") number = tutti::heap(hosts, events);
  if (what == "messages") number = tutti::messages(hosts, events);
  if (what == "memory") number = tutti::memory(hosts);
  fmt::print("{}\n", number);
}
