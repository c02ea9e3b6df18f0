// One order of reduction: the same bits over all combinations of rank count, algorithm and bucket
// size, in memory. Between hosts: sim/identity_sim_test.cc.
#include "fabric/identity_test.h"

#include <doctest/doctest.h>

#include "base/seeds_test.h"
#include "fabric/fabric_fixture_test.h"

namespace tutti {
namespace {

TEST_CASE("a digest is the same for any rank count, algorithm and bucket size, in memory") {
  const IdentityCase sums(seeds(1));
  const uint64_t expected = sums.expected();
  for (uint32_t ranks = 1; ranks <= kIdentityLanes; ++ranks) {
    SharedHost host(ranks, 64 << 20);
    host.run([&](Fabric& fabric) {
      // Data that travels with its call, or never; stored past the caches always, or never.
      for (const uint64_t small : {uint64_t{0}, kSmallBytes}) {
        for (const uint64_t stream : {uint64_t{0}, ~uint64_t{0}}) {
          fabric.world()->set_small_bytes(small);
          fabric.world()->set_stream_bytes(stream);
          for (const uint64_t bytes : kIdentityBuckets) {
            IdentityRank own(sums, ranks, fabric.rank());
            auto buckets = own.buckets(fabric.world(), bytes);
            REQUIRE_MESSAGE(buckets.has_value(), buckets.error().text());
            for (uint32_t i = 0; i < own.tensors(); ++i) REQUIRE((*buckets)->ready(i).has_value());
            REQUIRE((*buckets)->wait(60s).has_value());
            CHECK(own.digest() == expected);
          }
        }
      }
    });
  }
}

TEST_CASE("plain sums have one digest for any algorithm and bucket size, in memory") {
  for (const uint32_t ranks : {2U, 5U, 8U}) {
    const IdentityCase sums(7, ranks);
    const uint64_t expected = sums.expected();
    SharedHost host(ranks, 64 << 20);
    host.run([&](Fabric& fabric) {
      for (const uint64_t small : {uint64_t{0}, uint64_t{2048}, kSmallBytes}) {
        fabric.world()->set_small_bytes(small);
        for (const uint64_t bytes : kIdentityBuckets) {
          IdentityRank own(sums, ranks, fabric.rank());
          own.without_lanes();
          auto buckets = *own.buckets(fabric.world(), bytes);
          for (uint32_t i = 0; i < own.tensors(); ++i) REQUIRE(buckets->ready(i).has_value());
          REQUIRE(buckets->wait(60s).has_value());
          CHECK(own.digest() == expected);
        }
      }
    });
  }
}

}  // namespace
}  // namespace tutti
