// What a job on a host knows for those of its processes that exchange with others.
#include "cluster/host_job.h"

namespace tutti {

std::shared_ptr<HostExchange> HostJob::exchange() {
  ExchangeJob& job = *this;
  if (exchange_ == nullptr) exchange_ = std::make_shared<HostExchange>(job);
  return exchange_;
}

void HostJob::on_release(const cluster::Release& release) {
  if (exchange_ != nullptr && !directive_.empty()) exchange_->on_release(release);
}

uint64_t HostJob::life_of(ProcessId process) const {
  const auto known = processes_.find(process);
  if (known == processes_.end() || known->second.phase == Phase::exited || known->second.stopping)
    return 0;
  return known->second.epoch;
}

uint64_t HostJob::gang_epoch(size_t role) const {
  const auto& epochs = directive().gang_epochs();
  return role < static_cast<size_t>(epochs.size()) ? epochs[static_cast<int>(role)] : 0;
}

// Lines for people and programs: src/cluster/client/rank_exchange.h reads them.
std::optional<std::string> HostJob::gang_table(size_t role, uint64_t wanted) const {
  if (directive_.empty() || epoch() < wanted) return {};
  std::string text = fmt::format("epoch {}\nlisten {}\nkey ", epoch(), host_.address());
  for (const char byte : directive().spec().fabric_key())
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  text += '\n';
  const RangeSet all = numbers().of_role(role);
  const ProcessId base = numbers().number(role, 0);
  for (const NodeId node : nodes_of(directive().layout()).members()) {
    const RangeSet here = processes_on(numbers(), directive().layout(), RangeSet(node)).common(all);
    for (const auto& [first, last] : here.ranges())
      text += fmt::format("{} {} {}\n", node, first - base, last - base);
  }
  return text;
}

void HostJob::tell_soon() { alarm_.ring(); }

uint64_t HostJob::log_exchange(cluster::ExchangeRecord record) {
  record.set_job(job_);
  return host_.log_exchange(record);
}

Task<Result<void>> HostJob::logged(uint64_t sequence) { return host_.logged(sequence); }

void HostJob::tell_exchange() {
  cluster::JobReport report;
  report.set_job(job_);
  exchange_->add_rows(report, host_.node(), false);
  if (report.rows_size() != 0) host_.report(directive().coordinator(), report);
}

void HostJob::restore_exchange(const std::vector<cluster::ExchangeRecord>& records) {
  for (const cluster::ExchangeRecord& record : records) exchange()->restore(record);
}

std::vector<cluster::ExchangeRecord> HostJob::exchange_records() const {
  return exchange_ == nullptr ? std::vector<cluster::ExchangeRecord>() : exchange_->records(job_);
}

}  // namespace tutti
