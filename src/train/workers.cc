#include "train/workers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace tutti {
namespace {

template <class T>
Result<std::vector<T>> gather_numbers(Group& group, DType type, const std::vector<T>& own) {
  std::vector<T> all(own.size() * group.size());
  TRY_DO(group.run({.kind = CallKind::all_gather,
                    .type = type,
                    .elements = own.size(),
                    .input = reinterpret_cast<const std::byte*>(own.data()),
                    .output = reinterpret_cast<std::byte*>(all.data()),
                    .output_elements = all.size(),
                    .site = "trainer"}));
  return all;
}

Result<void> gather_bytes(Group& group, Bytes own, MutableBytes all) {
  return group.run({.kind = CallKind::all_gather,
                    .type = DType::u8,
                    .elements = own.size(),
                    .input = own.data(),
                    .output = all.data(),
                    .output_elements = all.size(),
                    .site = "trainer"});
}

// Those that are not as most are; of two equally many, those without the first.
std::vector<uint32_t> odd_ones(const std::vector<uint64_t>& hashes) {
  const auto alike = [&](uint64_t hash) { return std::ranges::count(hashes, hash); };
  uint64_t usual = hashes[0];
  for (const uint64_t hash : hashes)
    if (alike(hash) > alike(usual)) usual = hash;
  std::vector<uint32_t> odd;
  for (uint32_t rank = 0; rank < hashes.size(); ++rank)
    if (hashes[rank] != usual) odd.push_back(rank);
  return odd;
}

}  // namespace

Result<void> Workers::enter(EpochWatch& epoch, Duration timeout) {
  // Another epoch may begin between the two.
  do {
    TRY_DO(epoch.enter(timeout));
    if (fabric_.epoch() != epoch.epoch()) TRY_DO(fabric_.join(timeout));
  } while (fabric_.epoch() != epoch.epoch());
  return {};
}

Result<std::shared_ptr<Group>> Workers::group(std::vector<uint32_t> ranks, std::string name) {
  if (ranks.size() == size()) return fabric_.world();
  if (ranks.size() == 1) return nullptr;
  return fabric_.group(std::move(ranks), std::move(name), "trainer");
}

Result<void> Workers::arrange(const WorkerMesh& mesh) {
  std::map<std::string, std::shared_ptr<Group>, std::less<>> groups;
  TRY(same_part_, group(mesh.with_same_part(rank()), kDataAxis));
  if (same_part_ != nullptr) groups.emplace(kDataAxis, same_part_);
  for (const ShardAxis& axis : mesh.model().axes()) {
    TRY(groups[axis.name], group(mesh.along(rank(), axis.name), axis.name));
    same_samples_ = groups[axis.name];
  }
  if (mesh.model().axes().size() > 1) {
    TRY(same_samples_, group(mesh.with_same_samples(rank()), "same samples"));
  }
  communicator_ = std::make_unique<FabricCommunicator>(std::move(groups), fabric_.parking());
  return {};
}

Result<void> Workers::compare(const std::vector<Alike>& parts, uint64_t part) {
  std::vector<uint64_t> own{part};
  for (const Alike& each : parts) own.push_back(each.hash);
  TRY(const std::vector<uint64_t> all, gather(own));
  std::map<uint64_t, std::vector<uint32_t>> having;  // each part
  for (uint32_t rank = 0; rank < size(); ++rank) having[all[rank * own.size()]].push_back(rank);
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const auto& [which, ranks] : having) {
      std::vector<uint64_t> hashes;
      for (const uint32_t rank : ranks) hashes.push_back(all[rank * own.size() + 1 + i]);
      std::vector<uint32_t> odd;
      for (const uint32_t place : odd_ones(hashes)) odd.push_back(ranks[place]);
      if (odd.empty()) continue;
      return fail(Code::invalid,
                  "rank{} {} {} started with {} than the other{}: give all workers the same files "
                  "and options",
                  odd.size() == 1 ? "" : "s", fmt::join(odd, ", "),
                  odd.size() == 1 ? "was" : "were", parts[i].what,
                  ranks.size() - odd.size() == 1 ? "" : "s");
    }
  }
  return {};
}

Result<std::vector<uint64_t>> Workers::gather(const std::vector<uint64_t>& own) {
  return gather_numbers(*fabric_.world(), DType::u64, own);
}

Result<std::vector<double>> Workers::gather_reals(const std::vector<double>& own) {
  return gather_numbers(*fabric_.world(), DType::f64, own);
}

Result<void> Workers::add_up(std::vector<double>& numbers) {
  if (same_part_ == nullptr) return {};
  auto* data = reinterpret_cast<std::byte*>(numbers.data());
  return same_part_->run({.kind = CallKind::all_reduce,
                          .type = DType::f64,
                          .elements = numbers.size(),
                          .input = data,
                          .output = data,
                          .site = "trainer"});
}

Result<void> Workers::gather_shards(Bytes own, MutableBytes all) {
  return gather_bytes(*same_part_, own, all);
}

Result<void> Workers::gather_parts(Bytes own, MutableBytes all) {
  return gather_bytes(*same_samples_, own, all);
}

Result<void> Workers::broadcast(uint32_t rank, MutableBytes bytes) {
  if (same_part_ == nullptr) return {};
  uint32_t root = 0;
  while (same_part_->rank_of(root) != rank) ++root;
  return same_part_->run({.kind = CallKind::broadcast,
                          .type = DType::u8,
                          .elements = bytes.size(),
                          .input = bytes.data(),
                          .output = bytes.data(),
                          .root = root,
                          .site = "trainer"});
}

}  // namespace tutti
