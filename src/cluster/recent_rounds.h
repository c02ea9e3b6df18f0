// How many barriers of each name have opened, for the names that were used last. An older one is
// not asked for any more: whoever waits at a barrier holds up every later one of its role, unless
// as many of its threads as there are names kept wait at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace tutti {

using BarrierName = std::pair<size_t, std::string>;  // role and name

class RecentRounds {
 public:
  static constexpr size_t kMostNames = 256;

  struct Entry {
    uint64_t rounds = 0;
    uint64_t gang_epoch = 0;
    uint64_t used = 0;
    uint64_t sequence = 0;  // of its record in a log
  };

  // 0 of one that is not known.
  uint64_t of(const BarrierName& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? 0 : found->second.rounds;
  }
  // At least so many are open; a newer epoch of the gang begins to count anew.
  void raise(const BarrierName& name, uint64_t rounds, uint64_t gang_epoch, uint64_t sequence = 0) {
    Entry& entry = entries_[name];
    if (gang_epoch < entry.gang_epoch) return;
    if (gang_epoch > entry.gang_epoch) entry.rounds = 0;
    by_use_.erase(entry.used);
    entry = {std::max(entry.rounds, rounds), gang_epoch, ++last_use_, sequence};
    by_use_[entry.used] = name;
    if (entries_.size() <= kMostNames) return;
    entries_.erase(by_use_.begin()->second);
    by_use_.erase(by_use_.begin());
  }
  // Those of the role that are not of this epoch of it.
  void keep_only(size_t role, uint64_t gang_epoch) {
    std::erase_if(entries_, [&](const auto& item) {
      if (item.first.first != role || item.second.gang_epoch == gang_epoch) return false;
      by_use_.erase(item.second.used);
      return true;
    });
  }
  const std::map<BarrierName, Entry>& entries() const { return entries_; }

 private:
  std::map<BarrierName, Entry> entries_;
  std::map<uint64_t, BarrierName> by_use_;
  uint64_t last_use_ = 0;
};

}  // namespace tutti
