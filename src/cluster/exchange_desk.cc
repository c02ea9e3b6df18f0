#include "cluster/exchange_desk.h"

namespace tutti {

cluster::Release ExchangeDesk::release_of(size_t role, const cluster::Row& row) const {
  cluster::Release release;
  release.set_epoch(row.gang_epoch());
  release.set_role(static_cast<uint32_t>(role));
  release.set_barrier(row.message());
  return release;
}

void ExchangeDesk::arrived(const RangeSet& processes, const cluster::Row& row,
                           const RangeSet& hosts, const RangeSet& done) {
  const size_t role = numbers_.role_of(processes.front());
  const BarrierName name{role, row.message()};
  cluster::Release release = release_of(role, row);
  // Whoever waits at a later one has passed those before it.
  if (row.round() > open_.of(name)) {
    open_.raise(name, row.round(), row.gang_epoch());
    waiting_.erase(name);
  }
  if (row.round() < open_.of(name)) {
    release.set_rounds(open_.of(name));
    letters_.push_back({hosts, std::move(release)});
    return;
  }
  if (waiting_.size() >= kMaxOpenBarriers && !waiting_.contains(name)) {
    release.set_refused(fmt::format("there are {} barriers at which somebody waits; {} is the most",
                                    waiting_.size(), kMaxOpenBarriers));
    letters_.push_back({hosts, std::move(release)});
    return;
  }
  RangeSet& here = waiting_[name];
  here.add(processes);
  const RangeSet missing = numbers_.of_role(role).minus(here);
  release.set_rounds(row.round());
  if (missing.empty()) {
    waiting_.erase(name);
    open_.raise(name, row.round() + 1, row.gang_epoch());
    release.set_rounds(row.round() + 1);
    letters_.push_back({RangeSet(), std::move(release)});
  } else if (row.ask()) {
    set_pairs(missing, release.mutable_missing());
    set_pairs(missing.common(done), release.mutable_finished());
    letters_.push_back({hosts, std::move(release)});
  }
}

void ExchangeDesk::opened(size_t role, const cluster::Row& row) {
  open_.raise({role, row.message()}, row.round(), row.gang_epoch());
}

std::string ExchangeDesk::refusal(ProcessId process, const std::string& key, size_t more) const {
  const auto before = values_.find(key);
  if (before != values_.end() && before->second.process != process) {
    const ProcessId owner = before->second.process;
    return fmt::format(
        "'{}' was put by rank {} (process {} of the job); only that one may put it "
        "again",
        key, numbers_.index_of(owner), owner);
  }
  if (before == values_.end() && values_.size() >= kMaxExchangeKeys)
    return fmt::format("the job has {} keys, which is the most", kMaxExchangeKeys);
  const size_t less = before == values_.end() ? 0 : key.size() + before->second.bytes.size();
  if (bytes_ - less + more > kMaxExchangeBytes)
    return fmt::format("the keys and values of a job have at most {} bytes together",
                       kMaxExchangeBytes);
  return "";
}

void ExchangeDesk::put(ProcessId process, const cluster::Row& row, const RangeSet& hosts) {
  const std::string& key = row.message();
  const size_t role = numbers_.role_of(process);
  const auto before = values_.find(key);
  // What was told while nobody knew which epoch is the present one.
  if (before != values_.end() && before->second.role == role &&
      before->second.gang_epoch < row.gang_epoch()) {
    bytes_ -= key.size() + before->second.bytes.size();
    values_.erase(before);
  }
  const size_t size = key.size() + row.value().size();
  const std::string refused = refusal(process, key, size);
  if (refused.empty()) {
    Value& value = values_[key];
    const bool fresh = value.gang_epoch == 0;
    if (fresh || row.round() > value.serial) {
      bytes_ += size - (fresh ? 0 : key.size() + value.bytes.size());
      value = {role, process, row.gang_epoch(), row.round(), row.value()};
    }
    const auto wanting = wanting_.find(key);
    if (wanting != wanting_.end()) {
      send_value(key, value, wanting->second);
      wanting_.erase(wanting);
    }
  }
  cluster::Release::Kept& kept = *kept_.add_kept();
  kept.set_process(process);
  kept.set_serial(row.round());
  kept.set_key(key);
  kept.set_refused(refused);
  kept_for_.add(hosts);
}

void ExchangeDesk::wanted(const cluster::Row& row, const RangeSet& hosts) {
  const auto value = values_.find(row.message());
  if (value != values_.end()) return send_value(row.message(), value->second, hosts);
  if (wanting_.size() < kMaxExchangeKeys || wanting_.contains(row.message()))
    wanting_[row.message()].add(hosts);  // else they ask again
}

void ExchangeDesk::send_value(const std::string& key, const Value& value, const RangeSet& hosts) {
  cluster::Release release;
  release.set_epoch(value.gang_epoch);
  release.set_role(static_cast<uint32_t>(value.role));
  release.set_key(key);
  release.set_value(value.bytes);
  letters_.push_back({hosts, std::move(release)});
}

void ExchangeDesk::keep_only(size_t role, uint64_t gang_epoch) {
  std::erase_if(waiting_, [&](const auto& item) { return item.first.first == role; });
  open_.keep_only(role, gang_epoch);
  std::erase_if(values_, [&](const auto& item) {
    if (item.second.role != role || item.second.gang_epoch == gang_epoch) return false;
    bytes_ -= item.first.size() + item.second.bytes.size();
    return true;
  });
}

std::vector<ExchangeDesk::Letter> ExchangeDesk::take_letters() {
  if (kept_.kept_size() != 0)
    letters_.push_back({std::exchange(kept_for_, {}), std::exchange(kept_, {})});
  return std::exchange(letters_, {});
}

}  // namespace tutti
