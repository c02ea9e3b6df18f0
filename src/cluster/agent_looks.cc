#include "cluster/agent_looks.h"

#include "base/hash.h"

namespace tutti {
namespace {

// Of one message: a record is larger only if it is all that is in it.
constexpr size_t kPieceBytes = 512 << 10;

struct Mark {
  uint64_t epoch = 0;
  uint64_t digest = 0;
};
using Marks = std::map<uint32_t, Mark>;

// Of whatever a process changes when it gets on.
uint64_t digest_of(const cluster::ProcessLook& look) {
  const uint64_t words[] = {look.info().progress(), look.info().step(), look.phase(), look.epoch()};
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(words)));
  hasher.update(as_bytes(look.record()));
  return hasher.digest64();
}

std::map<pid_t, Usage> usage_of(World& world, const std::vector<cluster::ProcessLook>& looks) {
  std::vector<pid_t> pids;
  for (const cluster::ProcessLook& look : looks)
    if (look.info().state() == "running") pids.push_back(static_cast<pid_t>(look.info().pid()));
  return world.processes().usage_of(pids);
}

void compare(const Marks& before, const std::map<pid_t, Usage>& used_before,
             const std::map<pid_t, Usage>& used, Duration span, cluster::ProcessLook& look) {
  const auto mark = before.find(look.info().process());
  const bool same_life = mark != before.end() && mark->second.epoch == look.info().epoch();
  look.set_moved(!same_life || mark->second.digest != digest_of(look));
  const auto pid = static_cast<pid_t>(look.info().pid());
  const auto now = used.find(pid);
  const auto then = used_before.find(pid);
  if (!same_life || now == used.end() || then == used_before.end()) return;
  look.set_span_ns(to_ns(span));
  look.set_cpu_ns(std::max<int64_t>(0, to_ns(now->second.processor - then->second.processor)));
}

Task<Result<std::vector<cluster::ProcessLook>>> kept_looks(World& world, Agent& agent,
                                                           uint64_t job) {
  std::vector<cluster::ProcessLook> looks;
  const HostJob* here = agent.find_job(job);
  if (here != nullptr) {
    const std::shared_ptr<JobLooks> kept = here->looks();
    if (kept == nullptr) co_return looks;
    co_await kept->load();
    for (const auto& [process, look] : kept->kept()) looks.push_back(look);
    co_return looks;
  }
  std::string folder = agent.job_folder(job);
  auto read = co_await JobLooks::read(world, std::move(folder));
  if (!read && read.error().code() == Code::not_found) co_return looks;
  if (!read) co_return fail(std::move(read).error());
  looks.assign(std::make_move_iterator(read->mutable_looks()->begin()),
               std::make_move_iterator(read->mutable_looks()->end()));
  co_return looks;
}

}  // namespace

Task<Result<std::vector<cluster::ProcessLook>>> look_at_job(World& world, Agent& agent,
                                                            cluster::LookRequest request) {
  const HostJob* job = request.ended() ? nullptr : agent.find_job(request.job());
  if (job == nullptr) co_return co_await kept_looks(world, agent, request.job());
  Marks before;
  const std::vector<cluster::ProcessLook> first = job->look(request.whole());
  for (const cluster::ProcessLook& look : first)
    before[look.info().process()] = {look.info().epoch(), digest_of(look)};
  const std::map<pid_t, Usage> used_before = usage_of(world, first);
  const Instant began = world.clock().now();
  CO_TRY_DO(co_await world.clock().sleep(kLookSpan));
  job = agent.find_job(request.job());
  if (job == nullptr) co_return co_await kept_looks(world, agent, request.job());
  std::vector<cluster::ProcessLook> looks = job->look(request.whole());
  const std::map<pid_t, Usage> used = usage_of(world, looks);
  const Duration span = world.clock().now() - began;
  for (cluster::ProcessLook& look : looks) compare(before, used_before, used, span, look);
  co_return looks;
}

std::vector<cluster::LookPiece> in_pieces(std::vector<cluster::ProcessLook> looks) {
  std::vector<cluster::LookPiece> pieces(1);
  pieces.front().set_unknown(looks.empty());
  size_t bytes = 0;
  for (cluster::ProcessLook& look : looks) {
    const size_t size = look.ByteSizeLong();
    if (bytes != 0 && bytes + size > kPieceBytes) {
      pieces.emplace_back();
      bytes = 0;
    }
    bytes += size;
    *pieces.back().add_looks() = std::move(look);
  }
  return pieces;
}

}  // namespace tutti
