// A node of the agents' tree: hangs below somebody, has others hang below it, passes messages on,
// and knows who below it lives. The head's and the agents' node are the same class.
//
// Every kTick each side of a link sees that it heard something from the other, or says a word
// itself. A neighbour that was silent for kSilentTicks is gone; a node that was late itself gives
// everybody another tick. A child whose parent is gone hangs itself below the next place it knows
// (tree_shape.h), with everything below it; who is not back within kOrphanGrace is reported up as
// removed, and the root tells everyone whom it lost.
//
// Messages are passed on by who is alive below which child, otherwise upwards; what nobody can
// deliver is dropped, since links break anyway: those who send ask again. One strand does all of
// it; docs/tree.md is the manual.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/on_demand.h"
#include "cluster/tree.pb.h"
#include "cluster/tree_shape.h"
#include "wire/courier.h"
#include "wire/seals.h"
#include "world/alarm.h"
#include "world/world.h"

namespace tutti {

constexpr Duration kTick = 250ms;
constexpr int kSilentTicks = 4;
// A child notices its dead parent up to a tick later than the grandparent does, then connects.
constexpr Duration kOrphanGrace = 500ms;
// A connection that closes, where silence would be a dead host, may be an agent that restarts.
constexpr Duration kRestartGrace = 1500ms;
// Who has found a better place is back within this time if that dies at once: it is silent for a
// while, then others are tried.
constexpr Duration kMoveGrace = 4s;
// A node that does not hang in its best place looks whether it is free again this often.
constexpr Duration kBetterPlacePause = 2s;
// An agent that says that it will be back is waited for so long: an upgrade by hand, with a look
// into the manual. Its host is not replaced meanwhile, should it die.
constexpr Duration kLongestAway = 10min;

// What a node does for the tree and the tree for it. Calls come from the node's strand or from
// strands of its links and must not wait.
class TreeUser {
 public:
  virtual void on_parcel(NodeId from, Bytes body) = 0;
  virtual void on_report(uint64_t key, Bytes body) = 0;
  // Joins what stands in a report of several bodies, one after the other.
  virtual std::string fold(uint64_t key, std::string bodies) {
    static_cast<void>(key);
    return bodies;
  }
  // From the root: these are gone.
  virtual void on_lost(const RangeSet& nodes) = 0;
  // Their agents said that they end and come back: they are not lost until TreeNode::away() ends.
  // Or that is over.
  virtual void on_away(const RangeSet& nodes, bool away) {
    static_cast<void>(nodes), static_cast<void>(away);
  }
  // We hang below somebody, who told us our number.
  virtual void on_attached() {}
  // At the root: who lives.
  virtual void on_alive(const RangeSet& added, const RangeSet& removed) {
    static_cast<void>(added), static_cast<void>(removed);
  }
  // Somebody asks for a number, or has one: gives it, or says why not. Only the head gives numbers.
  virtual Result<NodeId> admit(const tree::Attach& attach, const wire::Peer& peer) = 0;
  // Where a node is, as far as we know; empty when we do not.
  virtual std::string address_of(NodeId node) = 0;
  // An agent hangs below us from now on, or was refused since another does as that node.
  struct Child {
    NodeId node;
    uint64_t instance;  // drawn when it started
    std::string name;   // as its certificate says
    std::string about;  // as it said itself
  };
  virtual void on_child(const Child& child) { static_cast<void>(child); }
  virtual void on_twin(const Child& child) { static_cast<void>(child); }

 protected:
  ~TreeUser() = default;
};

struct TreeOptions {
  TreeShape shape;
  NodeId node = kHead;  // of an agent: 0 when the head shall say
  std::string address;  // where others reach us
  std::string about;    // to be told to the head
  wire::Identity self;
  // Of the wire's protocol, that are spoken with neighbours.
  uint16_t lowest_version = wire::kProtocolVersion;
  uint16_t highest_version = wire::kProtocolVersion;
  // Where to hang, best first, until the parent says better.
  std::vector<tree::Place> places;
};

class TreeLink;

class TreeNode final : private ConnectionTaker {
 public:
  TreeNode(World& world, wire::Seals& seals, TreeOptions options, TreeUser& user);
  ~TreeNode();

  // Until cancelled; the listener is at options.address.
  Task<Result<void>> run(Listener& listener);
  // The same in parts: its strands are those of the scope, and when they are joined it is finished.
  void start(Listener& listener, Scope& strands);
  Task<void> finish();

  // To everyone in the set who lives; to ourselves at once.
  void send(const RangeSet& to, Bytes body);
  // To one node; joined on its way with others of the same key.
  void report(NodeId to, uint64_t key, Bytes body);

  NodeId node() const { return node_; }
  bool numbered() const { return is_head_ || node_ != kHead; }
  const TreeShape& shape() const { return shape_; }
  // Ourselves and everyone below.
  const RangeSet& alive() const { return alive_; }
  bool is_root() const { return up_ == nullptr; }
  // The node we hang below; kHead as well when we are the root.
  NodeId above() const;
  size_t children() const { return children_.size(); }
  // We end and come back, and our host goes on: nobody shall take us for lost for that long. When
  // away() has us the root knows (tree_away.cc).
  void leave_for(Duration time);
  RangeSet away() const;
  std::optional<Duration> away_for(NodeId node) const;  // at most
  const std::string& about() const { return about_; }
  uint64_t instance() const { return instance_; }
  const std::string& address() const { return address_; }
  // The addresses of others have changed: those below must know.
  void places_changed();
  // Whether this very agent hangs below us; and to have it leave.
  bool has_child(NodeId node, uint64_t instance) const;
  void expel(NodeId node, uint64_t instance, const Error& why);

 private:
  friend class TreeLink;
  struct Orphans {
    Instant until;
    RangeSet nodes;
    bool moved = false;  // they hang elsewhere, as far as we know
  };
  struct Loss {
    Instant at;
    RangeSet nodes;
  };
  struct Away {
    Instant until;
    RangeSet nodes;
  };
  struct PendingReport {
    std::string body;
    uint32_t hops = 0;
    bool many = false;
  };

  // The strand (tree_node.cc).
  Task<Result<void>> work();
  Instant next_due() const;
  void tick();
  void reap_links();
  void find_again(const RangeSet& nodes);
  void expire_orphans();
  void send_news();
  void send_reports();

  // Hanging (tree_links.cc).
  void on_connection(std::unique_ptr<Stream> stream) override;
  void on_accept_failed(const Error& why) override;
  Task<void> greet_child(std::unique_ptr<Stream> stream);
  Task<void> hang();
  Task<Result<void>> hang_below(tree::Place place);
  Result<void> on_attach(TreeLink& link, const tree::Attach& attach);
  Result<void> on_welcome(TreeLink& link, const tree::Welcome& welcome);
  void hang_on(TreeLink& link);
  void say_moved();
  RangeSet moved() const;
  void miss(TreeLink& link);
  tree::Welcome welcome_for(NodeId node);
  tree::Welcome places() const;
  void lost_link(TreeLink& link, const Error& why);
  TreeLink* find_child(NodeId node) const;
  wire::ConnectionOptions greeting(const std::string& address) const;

  // Who is away (tree_away.cc).
  Result<void> on_away(TreeLink& link, const tree::Away& told);
  void note_away(const RangeSet& nodes, Duration time);
  void note_back(const RangeSet& nodes);
  void tell_away(TreeLink& link);
  Instant away_due() const;
  void expire_away();

  // Passing on (tree_routes.cc).
  Result<void> take(TreeLink& link, Bytes message);
  void route_parcel(tree::Envelope& envelope, RangeSet to, const TreeLink* from);
  void route_report(NodeId to, uint64_t key, Bytes body, uint32_t hops);
  void pass_on_lost(const RangeSet& nodes);
  void tell_losses(TreeLink& child);
  Result<void> apply_news(TreeLink& link, const tree::News& news);
  void add_alive(const RangeSet& nodes);
  void drop_alive(RangeSet nodes);

  World& world_;
  wire::Seals& seals_;
  TreeUser& user_;
  TreeShape shape_;
  NodeId node_;
  bool is_head_;
  bool hanging_ = false;  // a strand looks for a place
  uint16_t lowest_version_;
  uint16_t highest_version_;
  uint32_t greeting_ = 0;  // neighbours that are not children yet
  uint64_t instance_;
  Instant started_at_;
  std::string address_;
  std::string about_;
  wire::Identity self_;
  std::string places_;  // a tree::Welcome: mostly nobody looks at them

  std::unique_ptr<TreeLink> up_;
  size_t up_place_ = 0;  // its index in places_
  // Was the node above until it fell silent. It would not answer for long; those below us are
  // missed if we do not soon hang elsewhere.
  std::optional<NodeId> silent_above_;
  std::vector<std::unique_ptr<TreeLink>> children_;  // by number
  std::vector<std::unique_ptr<TreeLink>> ended_;     // until their strands are gone

  RangeSet alive_;
  RangeSet news_added_;
  RangeSet news_removed_;
  OnDemand<std::vector<Orphans>> orphans_;
  OnDemand<std::vector<Loss>> losses_;  // of late: who attaches may not have heard of them
  OnDemand<std::vector<Away>> away_;    // as the root said
  OnDemand<std::map<std::pair<NodeId, uint64_t>, PendingReport>> reports_;
  size_t report_bytes_ = 0;

  Alarm alarm_;
  Instant next_tick_{};
  Instant next_hang_{};
  std::unique_ptr<LogLimit> tell_refused_;  // once somebody was
  Instant news_due_ = kNever;
  Instant reports_due_ = kNever;
  Scope* strands_ = nullptr;
};

}  // namespace tutti
