// Hosts that were lost with something of a job, when it went on elsewhere or ended without them.
// One that is back may still run it: it gets nothing new until it has said that this is gone.
#include "base/log.h"
#include "cluster/head.h"

namespace tutti {

void Head::give_up(HeadJob& job, const RangeSet& hosts) {
  if (hosts.empty()) return;
  state_.set_given_up(job, job.given_up.plus(hosts));
  time_.ring();
}

// Of a job that goes on it may have again what the layout has there.
cluster::Message Head::ask_vacated(NodeId node, const HeadJob& job) {
  cluster::Message message;
  cluster::Vacated& vacated = *message.mutable_vacated();
  vacated.set_job(job.id);
  const auto [serial, is_new] = back_.try_emplace(node);
  if (is_new) serial->second = world_.random().next();
  vacated.set_serial(serial->second);
  vacated.set_epoch(is_over(job.state) ? ~uint64_t{0} : job.epoch);
  if (is_over(job.state)) return message;
  const RangeSet here = processes_on(JobNumbers(job.spec), job.layout, RangeSet(node));
  set_pairs(here.minus(job.wanted), vacated.mutable_but());
  return message;
}

// Gives whether anybody is here to be asked. The coordinator of a job that goes on ends what it
// does not want there, and may still start something where a layout of before has it; what is there
// of a job that is over nobody else would end.
bool Head::ask_given_up() {
  bool asked = false;
  for (const auto& [node, jobs] : state_.given_up) {
    if (!state_.placement.is_alive(node)) continue;
    asked = true;
    for (const uint64_t id : jobs) {
      const HeadJob& job = *state_.find(id);
      if (is_over(job.state)) {
        cluster::Message end;
        end.mutable_end()->set_job(id);
        end.mutable_end()->set_epoch(~uint64_t{0});
        send(node, end);
      }
      if (is_over(job.state) || (job.heard && !job.astray.contains(node)))
        send(node, ask_vacated(node, job));
    }
  }
  return asked;
}

void Head::on_vacated(NodeId node, const cluster::Vacated& vacated) {
  HeadJob* job = state_.find(vacated.job());
  if (job == nullptr || !job->given_up.contains(node)) return;
  // It may have been lost, or given up again, since it was asked.
  if (ask_vacated(node, *job).vacated().SerializeAsString() != vacated.SerializeAsString()) return;
  RangeSet others = job->given_up;
  others.remove(node);
  state_.set_given_up(*job, std::move(others));
  post_changed(*job);
  strands_->spawn(write_log());
  if (state_.given_up.contains(node)) return;
  TUTTI_LOG(info, "a host that was lost has nothing of before any more", {{"host", name_of(node)}});
  hosts_came();
}

}  // namespace tutti
