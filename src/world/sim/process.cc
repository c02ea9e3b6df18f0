#include "world/sim/process.h"

#include <algorithm>

#include "world/sim/process_table.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

std::string in_one_piece(const std::vector<std::string>& entries) {
  size_t size = 0;
  for (const std::string& entry : entries) size += entry.size() + 1;
  std::string piece;
  piece.reserve(size);
  for (const std::string& entry : entries) piece.append(entry).push_back('\0');
  return piece;
}

}  // namespace

SimProcess::SimProcess(SimHost& host, pid_t pid, const SpawnOptions& options, uid_t user)
    : host_(host),
      pid_(pid),
      user_(user),
      arguments_(host.simulator().alike(), as_bytes(in_one_piece(options.arguments))),
      environment_(host.simulator().alike(), as_bytes(in_one_piece(options.environment))),
      network_(host, pid, user),
      processes_(host, pid, user) {
  handles_.reserve(options.inherit.size());
  for (const SpawnOptions::Inherit& inherit : options.inherit)
    handles_.emplace_back(inherit.number, host.handles().duplicate(*inherit.handle));
}

SimProcess::~SimProcess() { scope_.kill(); }

Channel<int>& SimProcess::signals() {
  if (signals_ == nullptr) signals_ = std::make_unique<Channel<int>>(kSignalsKept);
  return *signals_;
}

std::vector<std::string> SimProcess::arguments() const {
  std::vector<std::string> arguments;
  const std::string piece = arguments_.text();
  for (size_t at = 0; at < piece.size(); at += arguments.back().size() + 1)
    arguments.emplace_back(piece.c_str() + at);
  return arguments;
}

std::string SimProcess::variable(std::string_view key) const {
  const std::string environment = environment_.text();
  for (std::string_view rest = environment; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    if (entry.size() > key.size() && entry.starts_with(key) && entry[key.size()] == '=')
      return std::string(entry.substr(key.size() + 1));
    rest.remove_prefix(entry.size() + 1);
  }
  return {};
}

Result<Handle> SimProcess::take_handle(int number) {
  const auto found = std::ranges::find(handles_, number, &std::pair<int, Handle>::first);
  if (found == handles_.end())
    return fail(Code::invalid, "process {} has no handle {}", pid_, number);
  Handle handle = std::move(found->second);
  handles_.erase(found);
  return handle;
}

Result<std::unique_ptr<Stream>> SimProcess::take_stream(int number) {
  TRY(Handle handle, take_handle(number));
  return network_.adopt(std::move(handle));
}

void SimProcess::Life::begin() {
  detail_ = static_cast<uint32_t>(process_.pid_);
  Simulator& sim = process_.host_.simulator();
  sim.schedule(*this, process_.host_.core(), process_.host_.core().ready_at_ns());
}

void SimProcess::Life::end(int code, int signal) {
  if (ending_) return;
  ending_ = true;
  code_ = code;
  signal_ = signal;
  detail_ = static_cast<uint32_t>(process_.pid_);
  Simulator& sim = process_.host_.simulator();
  charge_ns_ = static_cast<uint32_t>(sim.costs().exit_ns);
  sim.schedule(*this, process_.host_.core(), sim.now_ns());
}

void SimProcess::Life::fire() {
  SimHost& host = process_.host_;
  if (ending_) return host.process_table().ended(process_.pid_, {.code = code_, .signal = signal_});
  process_.scope_.spawn(main(process_, host.simulator()));
}

Task<void> SimProcess::main(SimProcess& process, Simulator& simulator) {
  const Simulator::ProcessProgram* program = simulator.find_process(process.command());
  Task<int> work = (*program)(process);
  const int code = co_await std::move(work);
  process.host_.process_table().end(process.pid_, code, 0);
}

}  // namespace tutti
