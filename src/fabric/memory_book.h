// Where ranks can be reached, known to all at once: for ranks of one process or simulation.
#pragma once

#include <map>
#include <utility>

#include "fabric/tcp_transport.h"

namespace tutti {

class MemoryBook final : public AddressBook {
 public:
  // Of one rank: what it publishes is its own.
  class Page final : public AddressBook {
   public:
    Page(MemoryBook& book, uint32_t rank) : book_(book), rank_(rank) {}
    Task<Result<void>> publish(uint64_t epoch, Address address) override {
      book_.addresses_[{epoch, rank_}] = std::move(address);
      co_return {};
    }
    Task<Result<Address>> find(uint64_t epoch, uint32_t rank) override {
      return book_.find(epoch, rank);
    }

   private:
    MemoryBook& book_;
    uint32_t rank_;
  };

  Task<Result<void>> publish(uint64_t, Address) override { co_return {}; }
  Task<Result<Address>> find(uint64_t epoch, uint32_t rank) override {
    const auto found = addresses_.find({epoch, rank});
    if (found == addresses_.end())
      co_return fail(Code::unavailable, "rank {} is not there yet", rank);
    co_return found->second;
  }

 private:
  std::map<std::pair<uint64_t, uint32_t>, Address> addresses_;
};

}  // namespace tutti
