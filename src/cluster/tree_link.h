// One of a node's connections to a neighbour in the tree.
#pragma once

#include <memory>

#include "cluster/tree_node.h"
#include "world/semaphore.h"

namespace tutti {

constexpr NodeId kNobody = ~0U;

inline std::span<const uint32_t> span_of(const google::protobuf::RepeatedField<uint32_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

tree::Envelope lost_message(const RangeSet& nodes);

// Asking somebody to hang below it.
struct Proposal {
  RangeSet told;  // who lives, as we said
  Event answered;
  Result<void> answer;
};

class TreeLink final : public wire::MessageTaker {
 public:
  TreeLink(TreeNode& tree, wire::Courier::Greeted greeted)
      : courier(std::move(greeted.courier)),
        peer(std::make_unique<wire::Peer>(std::move(greeted.peer))),
        tree_(tree) {}

  void start() { courier->start(*this, strands); }
  void post(const tree::Envelope& envelope);
  // Ends it; the tree hears of it from ended().
  void cut(Error why) { courier->cut(std::move(why)); }
  bool over() const { return courier->over() && strands.size() == 0; }

  std::unique_ptr<wire::Courier> courier;
  std::unique_ptr<wire::Peer> peer;  // until it is attached
  Scope strands{Scope::Root{}};
  Proposal* proposal = nullptr;  // while it is not our parent yet
  RangeSet alive;                // of a child: itself and those below
  uint64_t instance = 0;
  Duration back_within{};  // it said that it would restart
  NodeId node = kNobody;
  uint32_t last_heard = 0;
  uint8_t silent_ticks = 0;
  bool upwards = false;
  bool was_silent = false;  // why it was cut
  bool has_moved = false;   // it said that it hangs in a better place

 private:
  Result<void> take(Bytes message) override { return tree_.take(*this, message); }
  void ended(const Error& why) override { tree_.lost_link(*this, why); }
  TreeNode& tree_;
};

}  // namespace tutti
