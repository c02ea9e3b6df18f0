// For tests: a transport of one simulation that carries letters, each after a while of its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "fabric/transport.h"
#include "world/world.h"

namespace tutti {

struct PostOffice {
  using Key = std::tuple<uint64_t, uint32_t, uint32_t, Tag>;  // epoch, from, to
  std::map<Key, std::vector<std::byte>> letters;
  std::map<std::pair<uint32_t, uint64_t>, Error> refused;  // rank and scope
  std::mt19937_64 random;
  uint64_t sent_bytes = 0;
};

class MailTransport final : public Transport {
 public:
  MailTransport(World& world, PostOffice& office, uint32_t rank)
      : world_(world), office_(office), rank_(rank) {}

  std::string_view name() const override { return "mail"; }
  void begin_epoch(uint64_t epoch) override {
    epoch_ = epoch;
    over_.reset();
  }
  void end_epoch(Error why) override { over_ = std::move(why); }
  Task<void> refuse(std::vector<uint32_t> ranks, uint64_t scope, Error why) override {
    office_.refused.insert_or_assign({rank_, scope}, why);
    for (const uint32_t rank : ranks) office_.refused.insert_or_assign({rank, scope}, why);
    co_return;
  }

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
      const auto refused = office_.refused.find({rank_, tag.scope});
      if (refused != office_.refused.end()) co_return fail(refused->second);
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
  Task<Result<void>> get(uint32_t, uint64_t, MutableBytes, Priority) override {
    co_return fail(Code::unsupported, "letters only");
  }

 private:
  Duration some_time() { return Duration(200 + office_.random() % 5'000); }

  World& world_;
  PostOffice& office_;
  uint32_t rank_;
  uint64_t epoch_ = 1;
  std::optional<Error> over_;
};

}  // namespace tutti
