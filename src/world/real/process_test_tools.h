// What tests of processes share: a world of processes, children's output, open descriptors.
#pragma once

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "world/real/fd.h"
#include "world/real/processes.h"

namespace tutti::process_testing {

inline const std::string kPathVariable = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

struct Host {
  explicit Host(Spawner::Way way = Spawner::Way::best)
      : loop(LoopOptions{.spin = Duration::zero()}), processes(loop, way) {}
  Loop loop;
  RealProcesses processes;

  Exit wait(Process& process) {
    auto exit = loop.run(process.wait());
    REQUIRE(exit.has_value());
    return *exit;
  }
};

inline SpawnOptions command(std::vector<std::string> arguments) {
  SpawnOptions options;
  options.arguments = std::move(arguments);
  options.environment = {kPathVariable};
  return options;
}
inline SpawnOptions script(std::string text) { return command({"sh", "-c", std::move(text)}); }

inline std::unique_ptr<Process> must_spawn(Host& host, const SpawnOptions& options) {
  auto process = host.processes.spawn(options);
  REQUIRE_MESSAGE(process.has_value(), (process ? "" : process.error().text()));
  return std::move(*process);
}

inline Exit run(Host& host, const SpawnOptions& options) {
  const auto process = must_spawn(host, options);
  return host.wait(*process);
}

// Everything until the other end is closed.
inline std::string drain(const Handle& reader) {
  std::string text;
  char chunk[4096];
  for (;;) {
    pollfd ready{reader.number(), POLLIN, 0};
    poll(&ready, 1, -1);
    const ssize_t got = read(reader.number(), chunk, sizeof chunk);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return text;  // a terminal ends with EIO
    text.append(chunk, static_cast<size_t>(got));
  }
}

// A pipe the other way round: a child reads it as its standard input.
inline Processes::Pipe input_pipe(Host& host) {
  auto pipe = host.processes.pipe();
  REQUIRE(pipe.has_value());
  REQUIRE(fcntl(pipe->reader.number(), F_SETFL, 0) == 0);
  return std::move(*pipe);
}

inline std::string read_line(const Handle& reader) {
  std::string line;
  for (;;) {
    pollfd ready{reader.number(), POLLIN, 0};
    poll(&ready, 1, -1);
    char byte = 0;
    const ssize_t got = read(reader.number(), &byte, 1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0 || byte == '\n') return line;
    line += byte;
  }
}

// What the command prints to standard output and error.
inline std::string output_of(Host& host, SpawnOptions options) {
  auto pipe = host.processes.pipe();
  REQUIRE(pipe.has_value());
  options.inherit.push_back({&pipe->writer, 1});
  options.inherit.push_back({&pipe->writer, 2});
  const auto process = must_spawn(host, options);
  pipe->writer.close();
  std::string text = drain(pipe->reader);
  host.wait(*process);
  return text;
}

inline std::set<int> descriptors_of(const std::string& pid) {
  std::set<int> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(("/proc/" + pid + "/fd").c_str()),
                                                   &closedir);
  while (const dirent* entry = readdir(folder.get())) {
    const int number = std::atoi(entry->d_name);
    const bool listing = pid == "self" && number == dirfd(folder.get());
    if (entry->d_name[0] != '.' && !listing) numbers.insert(number);
  }
  return numbers;
}

class LimitDescriptors {
 public:
  // As many may be opened as given, no more.
  explicit LimitDescriptors(int free) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit{static_cast<rlim_t>(*descriptors_of("self").rbegin() + 1 + free),
                       before_.rlim_max};
    fill();
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~LimitDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  // Gaps below the limit would be used first.
  void fill() {
    const int highest = *descriptors_of("self").rbegin();
    for (;;) {
      Handle fd = own_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (fd.number() > highest) return;
      fillers_.push_back(std::move(fd));
    }
  }
  rlimit before_{};
  std::vector<Handle> fillers_;
};

inline std::string status_field(pid_t pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":"))
      return line.substr(line.find_first_not_of(" \t", field.size() + 1));
  return "";
}

inline bool have_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace tutti::process_testing
