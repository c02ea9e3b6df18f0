// Measures what simulated handlers are charged, on this machine, and prints a cost table:
//
//   build/release/bench/bench_sim_costs "2-core AMD EPYC guest" > sims/costs/loopback.toml
//
// Processor time is what getrusage says this process and its children used, so that other programs
// disturb it little. Latencies and bandwidths of a network between machines cannot be measured on
// one: those are written as the built-in table assumes them. With a folder as second argument the
// table is of a cluster within this machine: latencies are those of its loopback and of its sockets
// from one process to another, the disk is the one of the folder.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "seal_pair.h"
#include "world/sim/costs.h"

extern char** environ;

namespace tutti {
namespace {

constexpr size_t kLarge = 64 << 10;

double cpu_ns(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto ns = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_usec) * 1e3;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// Processor time of one call, over many.
double cost_ns(int times, const std::function<void()>& work) {
  work();
  const double before = cpu_ns(RUSAGE_SELF);
  for (int i = 0; i < times; ++i) work();
  return (cpu_ns(RUSAGE_SELF) - before) / times;
}

int listen_on_loopback(sockaddr_in& address) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  address = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  TUTTI_ASSERT(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  TUTTI_ASSERT(listen(listener, SOMAXCONN) == 0, "listen");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  return listener;
}

struct Ends {
  int client;
  int server;
};

Ends connect_pair(int listener, const sockaddr_in& address) {
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  TUTTI_ASSERT(connect(client, to, sizeof address) == 0, "connect");
  const int server = accept(listener, nullptr, nullptr);
  TUTTI_ASSERT(server >= 0, "accept");
  const int on = 1;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {client, server};
}

void pass(const Ends& ends, std::vector<char>& buffer, size_t bytes) {
  TUTTI_ASSERT(send(ends.client, buffer.data(), bytes, 0) == static_cast<ssize_t>(bytes), "send");
  for (size_t got = 0; got < bytes;) {
    const ssize_t now = recv(ends.server, buffer.data(), bytes - got, 0);
    TUTTI_ASSERT(now > 0, "receive");
    got += static_cast<size_t>(now);
  }
}

// On loopback the sender's call does the receiver's share of the protocol too; halves are fair.
void measure_network(CostTable& table) {
  sockaddr_in address{};
  const int listener = listen_on_loopback(address);
  const Ends ends = connect_pair(listener, address);
  std::vector<char> buffer(kLarge);
  const double small = cost_ns(20'000, [&] { pass(ends, buffer, 64); });
  const double large = cost_ns(5'000, [&] { pass(ends, buffer, kLarge); });
  table.send_ns = table.receive_ns = small / 2;
  table.send_byte_ns = table.receive_byte_ns = (large - small) / 2 / kLarge;
  const double connection = cost_ns(3'000, [&] {
    const Ends one = connect_pair(listener, address);
    close(one.client);
    close(one.server);
  });
  table.connect_ns = table.accept_ns = connection / 2;
  close(ends.client);
  close(ends.server);
  close(listener);
}

// Both sides do about the same arithmetic.
void measure_handshake(CostTable& table) {
  wire::SealBench bench;
  table.handshake_ns = cost_ns(500, [&] { bench.connect(); }) / 2;
}

// The end of a process is that of a fork that does nothing; the rest of /bin/true is its start.
void measure_processes(CostTable& table) {
  constexpr int kTimes = 300;
  double mine = cpu_ns(RUSAGE_SELF);
  double theirs = cpu_ns(RUSAGE_CHILDREN);
  for (int i = 0; i < kTimes; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, nullptr, 0);
  }
  table.exit_ns = (cpu_ns(RUSAGE_CHILDREN) - theirs) / kTimes;
  mine = cpu_ns(RUSAGE_SELF);
  theirs = cpu_ns(RUSAGE_CHILDREN);
  for (int i = 0; i < kTimes; ++i) {
    std::string path = "/bin/true";
    std::array<char*, 2> arguments = {path.data(), nullptr};
    pid_t pid = 0;
    TUTTI_ASSERT(posix_spawn(&pid, "/bin/true", nullptr, nullptr, arguments.data(), environ) == 0,
                 "spawn");
    waitpid(pid, nullptr, 0);
  }
  const double whole = cpu_ns(RUSAGE_SELF) - mine + cpu_ns(RUSAGE_CHILDREN) - theirs;
  table.spawn_ns = whole / kTimes - table.exit_ns;
}

void measure_disk(CostTable& table) {
  std::string path = "/var/tmp/tutti-costs-XXXXXX";
  const int file = mkstemp(path.data());
  TUTTI_ASSERT(file >= 0, "a temporary file");
  unlink(path.c_str());
  std::vector<char> buffer(kLarge);
  const auto write_some = [&](size_t bytes) {
    TUTTI_ASSERT(pwrite(file, buffer.data(), bytes, 0) == static_cast<ssize_t>(bytes), "write");
  };
  const double small = cost_ns(20'000, [&] { write_some(64); });
  const double large = cost_ns(5'000, [&] { write_some(kLarge); });
  table.disk_operation_ns = small;
  table.disk_byte_ns = (large - small) / kLarge;
  close(file);
}

double wall_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double median_wall_ns(int times, const std::function<void()>& work) {
  std::vector<double> spans;
  for (int i = 0; i < times; ++i) {
    const double begin = wall_ns();
    work();
    spans.push_back(wall_ns() - begin);
  }
  std::ranges::nth_element(spans, spans.begin() + times / 2);
  return spans[static_cast<size_t>(times / 2)];
}

// From a process that writes to one that was asleep, waiting for it.
double latency_ns(int ours, int theirs) {
  const pid_t pid = fork();
  char byte = 0;
  if (pid == 0) {
    close(ours);
    while (read(theirs, &byte, 1) == 1 && write(theirs, &byte, 1) == 1) {
    }
    _exit(0);
  }
  close(theirs);
  const double both_ways = median_wall_ns(2'000, [&] {
    usleep(50);  // long enough for it to sleep
    TUTTI_ASSERT(write(ours, &byte, 1) == 1 && read(ours, &byte, 1) == 1, "echo");
  });
  close(ours);
  waitpid(pid, nullptr, 0);
  return (both_ways - median_wall_ns(2'000, [] { usleep(50); })) / 2;
}

void measure_latencies_here(CostTable& table) {
  sockaddr_in address{};
  const int listener = listen_on_loopback(address);
  const Ends loopback = connect_pair(listener, address);
  const int on = 1;
  setsockopt(loopback.server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const double network = latency_ns(loopback.client, loopback.server);
  table.within_rack_ns = table.between_racks_ns =
      std::max(0.0, network - table.send_ns - table.receive_ns);
  close(listener);
  std::array<int, 2> pair{};
  TUTTI_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0, "a pair");
  table.within_host_ns = std::max(0.0, latency_ns(pair[0], pair[1]) - table.send_ns);
}

void measure_disk_of(const std::string& folder, CostTable& table) {
  std::string path = folder + "/tutti-costs-XXXXXX";
  const int file = mkstemp(path.data());
  TUTTI_ASSERT(file >= 0, "a file in that folder");
  unlink(path.c_str());
  std::array<char, 256> record{};
  const auto add = [&] {
    TUTTI_ASSERT(write(file, record.data(), record.size()) == ssize_t{record.size()}, "write");
  };
  table.disk_latency_ns = median_wall_ns(300, add);
  table.disk_sync_ns = median_wall_ns(300, [&] {
    add();
    fdatasync(file);
  });
  close(file);
}

void print(const CostTable& table) {
  fmt::print(
      "# Made by bench_sim_costs. Processor time is measured, but for timer_ns; that and "
      "everything\n"
      "# from within_host_ns on (latencies, jitter, bandwidth, the disk's speed) are assumed:\n"
      "# 25 Gbit/s in two tiers, a common NVMe disk.\n");
  fmt::print("name = \"{}\"\nmeasured_on = \"{}\"\nmeasured_with = \"{}\"\n\n", table.name,
             table.measured_on, table.measured_with);
  for (const CostTable::Entry& entry : CostTable::entries()) {
    const double value = table.*entry.value;
    fmt::print("{} = {}\n", entry.key,
               value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value));
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  tutti::CostTable table;
  if (argc > 1) table.measured_on = argv[1];
  table.measured_with = "bench/sim_costs.cc";
  tutti::measure_network(table);
  tutti::measure_handshake(table);
  tutti::measure_processes(table);
  tutti::measure_disk(table);
  if (argc > 2) {
    table.name = "here";
    tutti::measure_latencies_here(table);
    tutti::measure_disk_of(argv[2], table);
  }
  tutti::print(table);
}
