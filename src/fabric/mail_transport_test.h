// For tests: a transport of one simulation that carries letters, each after a while of its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fabric/transport.h"
#include "world/world.h"

namespace tutti {

struct PostOffice {
  using Key = std::tuple<uint64_t, uint32_t, uint32_t, Tag>;  // epoch, from, to
  std::map<Key, std::vector<std::byte>> letters;
  std::map<std::pair<uint32_t, uint64_t>, Refusal> refused;  // rank and scope
  std::map<uint32_t, std::set<uint32_t>> left;               // as each rank knows it
  std::map<uint32_t, uint64_t> epochs;                       // of those who live
  std::map<uint32_t, MutableBytes> heaps;                    // of each rank's host
  std::mt19937_64 random;
  uint64_t sent_bytes = 0;
  uint64_t got_bytes = 0;
};

class MailTransport final : public Transport {
 public:
  MailTransport(World& world, PostOffice& office, uint32_t rank, MutableBytes heap = {})
      : world_(world), office_(office), rank_(rank) {
    office.heaps[rank] = heap;
  }

  std::string_view name() const override { return "mail"; }
  void begin_epoch(uint64_t epoch) override {
    epoch_ = office_.epochs[rank_] = epoch;
    office_.left[rank_].clear();
    over_.reset();
  }
  void end_epoch(Error why) override { over_ = std::move(why); }
  Task<void> refuse(std::vector<uint32_t> ranks, Refusal refusal) override {
    ranks.push_back(rank_);
    for (const uint32_t rank : ranks) {
      const auto [at, added] =
          office_.refused.emplace(std::pair(rank, refusal.from.scope), refusal);
      if (!added && refusal.from.number < at->second.from.number) at->second = refusal;
      if (refusal.left) office_.left[rank].insert(*refusal.left);
    }
    co_return;
  }
  std::vector<uint32_t> left() const override {
    return {office_.left[rank_].begin(), office_.left[rank_].end()};
  }
  std::optional<uint32_t> left_in(uint64_t scope) const override {
    const auto found = office_.refused.find({rank_, scope});
    return found == office_.refused.end() ? std::nullopt : found->second.left;
  }
  std::vector<uint32_t> linked() const override { return {}; }

  Task<Result<void>> send(uint32_t rank, Tag tag, Bytes bytes, Priority) override {
    CO_TRY_DO(co_await world_.clock().sleep(some_time()));
    office_.sent_bytes += bytes.size();
    office_.letters[{epoch_, rank_, rank, tag}].assign(bytes.begin(), bytes.end());
    co_return Result<void>{};
  }
  Task<Result<void>> receive(uint32_t rank, Tag tag, MutableBytes into) override {
    const uint64_t epoch = epoch_;
    while (true) {
      CO_TRY_DO(co_await world_.clock().sleep(some_time()));
      if (const Error* why = refused(tag)) co_return fail(*why);
      if (over_ || epoch != epoch_) co_return fail(Code::unavailable, "the epoch is over");
      const auto letter = office_.letters.find({epoch, rank, rank_, tag});
      if (letter == office_.letters.end()) continue;
      if (letter->second.size() != into.size())
        co_return fail(Code::invalid, "{} bytes came where {} were expected", letter->second.size(),
                       into.size());
      std::ranges::copy(letter->second, into.begin());
      office_.letters.erase(letter);
      co_return Result<void>{};
    }
  }
  Task<Result<void>> put(uint32_t, uint64_t, Bytes, Priority) override {
    co_return fail(Code::unsupported, "letters only");
  }
  // From one who lives, and is in our epoch.
  Task<Result<void>> get(uint32_t rank, Strides from, MutableBytes into, Priority,
                         Tag tag) override {
    const uint64_t epoch = epoch_;
    while (true) {
      CO_TRY_DO(co_await world_.clock().sleep(some_time()));
      if (const Error* why = refused(tag)) co_return fail(*why);
      if (over_ || epoch != epoch_) co_return fail(Code::unavailable, "the epoch is over");
      const auto there = office_.epochs.find(rank);
      if (there == office_.epochs.end() || there->second != epoch) continue;
      if (!from.fits(office_.heaps[rank].size(), into.size()))
        co_return fail(Code::invalid, "not in the heap");
      from.gather(office_.heaps[rank].data(), 0, into);
      office_.got_bytes += into.size();
      co_return Result<void>{};
    }
  }

 private:
  const Error* refused(Tag tag) const {
    const auto found = office_.refused.find({rank_, tag.scope});
    if (found == office_.refused.end() || tag.number < found->second.from.number) return nullptr;
    return &found->second.why;
  }
  Duration some_time() { return Duration(200 + office_.random() % 5'000); }

  World& world_;
  PostOffice& office_;
  uint32_t rank_;
  uint64_t epoch_ = 1;
  std::optional<Error> over_;
};

}  // namespace tutti
