#include "train/workers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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
  if (met_epoch_ == epoch.epoch()) return {};
  communicator_ = std::make_unique<FabricCommunicator>(
      std::map<std::string, std::shared_ptr<Group>, std::less<>>{{kDataAxis, fabric_.world()}},
      fabric_.parking());
  met_epoch_ = epoch.epoch();
  return {};
}

Result<void> Workers::compare(const std::vector<Alike>& parts) {
  std::vector<uint64_t> own;
  for (const Alike& part : parts) own.push_back(part.hash);
  TRY(const std::vector<uint64_t> all, gather(own));
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<uint64_t> hashes;
    for (size_t at = i; at < all.size(); at += parts.size()) hashes.push_back(all[at]);
    const std::vector<uint32_t> odd = odd_ones(hashes);
    if (odd.empty()) continue;
    return fail(Code::invalid,
                "rank{} {} {} started with {} than the other{}: give all workers the same files "
                "and options",
                odd.size() == 1 ? "" : "s", fmt::join(odd, ", "), odd.size() == 1 ? "was" : "were",
                parts[i].what, size() - odd.size() == 1 ? "" : "s");
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
  auto* data = reinterpret_cast<std::byte*>(numbers.data());
  return fabric_.world()->run({.kind = CallKind::all_reduce,
                               .type = DType::f64,
                               .elements = numbers.size(),
                               .input = data,
                               .output = data,
                               .site = "trainer"});
}

Result<void> Workers::gather_shards(Bytes own, MutableBytes all) {
  return fabric_.world()->run({.kind = CallKind::all_gather,
                               .type = DType::u8,
                               .elements = own.size(),
                               .input = own.data(),
                               .output = all.data(),
                               .output_elements = all.size(),
                               .site = "trainer"});
}

Result<void> Workers::broadcast(uint32_t root, MutableBytes bytes) {
  return fabric_.world()->run({.kind = CallKind::broadcast,
                               .type = DType::u8,
                               .elements = bytes.size(),
                               .input = bytes.data(),
                               .output = bytes.data(),
                               .root = root,
                               .site = "trainer"});
}

}  // namespace tutti
