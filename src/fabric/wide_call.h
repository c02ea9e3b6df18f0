// A call of a group whose members are on several hosts, once those of this host have arrived.
//
// prepare() runs in the caller's thread and joins or copies what this host has by itself; run() is
// for the engine, and moves the rest; finish() is for the caller's thread again. Results that
// several members of a host want come to it once, and whoever got them stores them to all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/awaited_transport.h"
#include "fabric/call.h"
#include "fabric/far_reshard.h"
#include "fabric/group_hosts.h"
#include "fabric/node_folds.h"
#include "fabric/rail.h"
#include "fabric/share.h"
#include "fabric/tuning.h"
#include "world/clock.h"

namespace tutti {

// What a member of this host brought along, as addresses in this process.
struct NearMember {
  uint64_t elements = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;   // null: its owner alone can write it
  uint64_t room = kUnknownRoom;  // elements of it
  std::vector<LanePart> parts;
  std::vector<uint64_t> counts;  // of all_to_all
};

struct WideOptions {
  Transport* transport = nullptr;
  Clock* clock = nullptr;  // of the engine
  std::shared_ptr<const GroupHosts> hosts;
  std::vector<uint32_t> ranks;   // by member
  uint32_t index = 0;            // ours
  std::vector<NearMember> near;  // by place
  Call call;
  std::byte* output = nullptr;  // ours: where to write it
  uint64_t scope = 0;
  uint32_t number = 0;         // of the call in its group
  std::optional<RailWay> way;  // if it fits, instead of
  RailWays reduces{};          // by size: the group's tuning, the same for all
  RailWays gathers{};
  uint64_t signature = 0;  // equal for all that mean the same call
  std::string text;        // what we call, and where, for those who do not
  // Of a reshard; an input is the table of where a member's tensors lie in the heap.
  std::shared_ptr<const Resharding> resharding;
  const std::byte* heap = nullptr;
};

class WideCall {
 public:
  explicit WideCall(WideOptions options);

  Result<void> prepare();
  Task<Result<void>> run();
  void finish();
  // Ranks elsewhere for which it waits, from any thread.
  std::vector<uint32_t> awaited() const { return transport_.awaited(); }
  // When it is done: for whose leave it failed.
  std::optional<uint32_t> left() const { return left_; }

 private:
  // What we have joined for a member of another host.
  struct Given {
    uint32_t member = 0;
    std::vector<std::byte> nodes;  // of its share, one after the other
  };

  uint32_t host() const { return hosts_.host_of[options_.index]; }
  uint32_t place() const { return hosts_.place_of[options_.index]; }
  bool near(uint32_t member) const { return hosts_.host_of[member] == host(); }
  const NearMember& near_member(uint32_t member) const {
    return options_.near[hosts_.place_of[member]];
  }
  Rail rail();
  uint32_t lanes() const;
  DType carried() const { return is_half(call_.type) ? DType::f32 : call_.type; }
  uint64_t element() const { return dtype_bytes(call_.type); }
  Share slice() const;
  Share share_of(uint32_t member) const;
  Result<void> check_room(uint64_t elements) const;
  std::vector<LaneRange> near_lanes(std::vector<const std::byte*>& inputs) const;
  RailWay choose(uint64_t bytes, bool reduces) const;

  Result<void> prepare_all_reduce();
  Result<void> prepare_reduce_scatter();
  void prepare_broadcast();
  const std::byte* join(const NodeFold& node, const std::vector<const std::byte*>& inputs,
                        Share share);
  void join_into(std::byte* target, const NodeFold& node,
                 const std::vector<const std::byte*>& inputs, Share share) const;
  Result<void> prepare_exchange();
  void copy_near(uint32_t from, uint64_t source_element, uint64_t target_element,
                 uint64_t elements);
  void push(uint64_t first, uint64_t elements);

  Task<Result<void>> work();
  void prepare_reshard();
  Task<Result<void>> compare_calls();
  Task<Result<void>> hear_why();
  Task<Result<void>> learn_nodes();
  Task<Result<void>> learn_counts();
  Result<void> order_nodes();
  Task<Result<void>> all_reduce();
  Task<Result<void>> reduce_scatter();
  Task<Result<void>> broadcast();
  Task<Result<void>> all_gather();
  Task<Result<void>> gather();
  Task<Result<void>> exchange();

  WideOptions options_;
  AwaitedTransport transport_;
  const GroupHosts& hosts_;
  const Call& call_;
  std::unique_ptr<FarReshard> far_;
  std::optional<uint32_t> left_;
  std::vector<NodeFold> folds_;
  std::vector<std::vector<LaneRange>> nodes_;         // by host
  std::vector<std::vector<std::byte>> scratch_;       // of joined nodes
  std::vector<const std::byte*> joined_;              // our slice of each of our nodes
  std::vector<float> widened_;                        // the result, when it is to be rounded
  std::vector<Given> given_;                          // to members of other hosts
  std::vector<std::vector<std::byte>> received_;      // by host: its nodes of our share
  std::vector<uint64_t> counts_;                      // by member: of all_gather and gather
  std::vector<std::pair<uint32_t, uint32_t>> order_;  // hosts and their nodes, by lane
  FoldTree tree_;                                     // over them
  std::vector<RailMove> moves_;
};

}  // namespace tutti
