// Trees of nodes in the simulator. Host n is node n; host 0 the head.
#include "cluster/tree_node.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/queue_mark.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr uint16_t kPort = 7000;

struct Stage;

class Member final : public TreeUser {
 public:
  explicit Member(Stage& stage, uint32_t host) : stage_(stage), host_(host) {}
  ~Member();
  Task<Result<void>> run(SimHost& host, NodeId node, uint16_t port);

  std::vector<std::string> parcels;  // "from: body"
  std::vector<std::string> reports;
  RangeSet lost;
  RangeSet alive;  // as the root was told
  int attached = 0;
  int folds = 0;
  TreeNode* node = nullptr;

 private:
  void on_parcel(NodeId from, Bytes body) override {
    parcels.push_back(fmt::format("{}: {}", from, as_text(body)));
  }
  void on_report(uint64_t key, Bytes body) override {
    reports.push_back(fmt::format("{}: {}", key, as_text(body)));
  }
  std::string fold(uint64_t, std::string bodies) override {
    ++folds;
    std::ranges::sort(bodies);
    return bodies;
  }
  void on_lost(const RangeSet& nodes) override;
  void on_attached() override { ++attached; }
  void on_alive(const RangeSet& added, const RangeSet& removed) override {
    alive.remove(removed);
    alive.add(added);
  }
  Result<NodeId> admit(const tree::Attach& attach, const wire::Peer&) override;
  std::string address_of(NodeId node) override;

  Stage& stage_;
  uint32_t host_;
};

struct Stage {
  explicit Stage(uint32_t hosts, uint32_t fan_out = 2) : shape{fan_out}, sim({.hosts = hosts}) {
    members.resize(hosts);
    lost_at.resize(hosts, kNever);
    sim.set_program([this](SimHost& host) { return run_member(*this, host); });
    sim.start_all();
  }
  static Task<Result<void>> run_member(Stage& stage, SimHost& host) {
    Member member(stage, host.index());
    stage.members[host.index()] = &member;
    auto ran = co_await member.run(host, host.index(), kPort);
    co_return ran;
  }
  std::string address(NodeId node) const {
    return fmt::format("{}:{}", sim_host_name(node), kPort);
  }
  TreeNode& node(NodeId number) {
    REQUIRE(members[number] != nullptr);
    REQUIRE(members[number]->node != nullptr);
    return *members[number]->node;
  }
  NodeId above(NodeId number) { return node(number).is_root() ? ~0U : node(number).above(); }
  RangeSet everyone() const { return {0, sim.hosts() - 1}; }

  TreeShape shape;
  std::vector<Member*> members;  // of hosts that run
  std::vector<Instant> lost_at;  // when anybody heard first that a node is gone
  NodeId next_number = 0;        // that the head gives away; 0: none
  Simulator sim;                 // its end is the end of all members
};

Member::~Member() { stage_.members[host_] = nullptr; }

Task<Result<void>> Member::run(SimHost& host, NodeId number, uint16_t port) {
  const bool is_head = host.index() == 0;
  const wire::Identity self{"lab", is_head ? wire::Role::head : wire::Role::agent,
                            sim_host_name(host.index())};
  const wire::Claim claim{.identity = self,
                          .authority = "lab",
                          .not_before_unix_s = 0,
                          .not_after_unix_s = 4'000'000'000};
  auto seals = wire::make_sim_seals(host, claim, [] {});
  const Address address = Address::tcp(host.host_name(), port);
  CO_TRY(auto listener, co_await host.network().listen(address));
  TreeOptions options{.shape = stage_.shape, .node = number, .address = address.text()};
  options.self = self;
  if (!is_head && number == kHead) {
    tree::Place& place = options.places.emplace_back();
    place.set_address(stage_.address(kHead));
  } else {
    for (const NodeId above : stage_.shape.places_for(number)) {
      tree::Place& place = options.places.emplace_back();
      place.set_node(above);
      place.set_address(stage_.address(above));
    }
  }
  TreeNode made(host, *seals, std::move(options), *this);
  node = &made;
  auto ran = co_await made.run(*listener);
  node = nullptr;
  co_return ran;
}

void Member::on_lost(const RangeSet& nodes) {
  lost.add(nodes);
  const Instant now = stage_.sim.clock().now();
  for (const NodeId gone : nodes.members())
    if (gone < stage_.lost_at.size()) stage_.lost_at[gone] = std::min(stage_.lost_at[gone], now);
}

Result<NodeId> Member::admit(const tree::Attach& attach, const wire::Peer&) {
  if (attach.node() != kHead) return attach.node();
  if (stage_.next_number == 0) return fail(Code::denied, "no number is free");
  return stage_.next_number;
}

std::string Member::address_of(NodeId node) { return stage_.address(node); }

TEST_CASE("nodes hang where the shape says, and the head knows all of them") {
  Stage stage(40, 3);
  stage.sim.run_for(3s);
  for (NodeId node = 1; node < 40; ++node) {
    CHECK(stage.above(node) == stage.shape.parent(node));
    CHECK(stage.members[node]->attached >= 1);
  }
  CHECK(stage.node(0).is_root());
  CHECK(stage.node(0).alive().text() == stage.everyone().text());
  CHECK(stage.members[0]->alive == RangeSet(1, 39));
  CHECK(stage.node(1).alive() == stage.shape.below(1, 39));
  CHECK(stage.members[0]->lost.empty());
}

TEST_CASE("when an inner node dies, those below hang above it, and only it is lost") {
  Stage stage(31, 2);
  stage.sim.run_for(3s);
  stage.sim.crash(2);
  stage.sim.run_for(5s);
  for (const NodeId node : {5U, 6U}) CHECK(stage.above(node) == 0);
  CHECK(stage.above(11) == 5);
  CHECK(stage.node(0).alive().text() == stage.everyone().minus(RangeSet(2)).text());
  for (NodeId node = 0; node < 31; ++node)
    if (node != 2) CHECK(stage.members[node]->lost.text() == "2");
  stage.sim.reboot(2);
  stage.sim.run_for(10s);
  for (const NodeId node : {5U, 6U}) CHECK(stage.above(node) == 2);  // the better place again
  CHECK(stage.node(0).alive().text() == stage.everyone().text());
  CHECK(stage.members[0]->lost.text() == "2");
}

TEST_CASE("a whole branch that dies is lost, and nobody else") {
  Stage stage(31, 2);
  stage.sim.run_for(3s);
  const RangeSet branch = stage.shape.below(2, 30);
  for (const NodeId node : branch.members()) stage.sim.crash(node);
  stage.sim.run_for(6s);
  CHECK(stage.node(0).alive().text() == stage.everyone().minus(branch).text());
  CHECK(stage.members[0]->lost.text() == branch.text());
}

TEST_CASE("among a thousand hosts, one that falls silent is known to all within two seconds") {
  Stage stage(1000, 4);
  stage.sim.run_for(5s);
  REQUIRE(stage.node(0).alive().text() == stage.everyone().text());
  // A leaf, an inner node, and one right below the head: the network swallows what they say.
  for (const NodeId victim : {999U, 60U, 2U}) {
    const Instant before = stage.sim.clock().now();
    stage.sim.links().partition(HostSet::one(victim), HostSet::all());
    stage.sim.run_for(2s);
    INFO("node ", victim, " after ", to_ns(stage.lost_at[victim] - before) / 1'000'000, " ms");
    CHECK(stage.lost_at[victim] != kNever);
    for (const NodeId node : {0U, 1U, 500U, 998U}) {
      if (victim == 2 && stage.shape.covers(2, node)) continue;  // may hang itself elsewhere yet
      CHECK(stage.members[node]->lost.contains(victim));
    }
  }
  stage.sim.run_for(3s);
  RangeSet gone(999);
  gone.add(60);
  gone.add(2);
  CHECK(stage.members[0]->lost.text() == gone.text());
  CHECK(stage.node(0).alive().text() == stage.everyone().minus(gone).text());
}

TEST_CASE("messages reach exactly the nodes of a set, wherever they are") {
  Stage stage(40, 3);
  stage.sim.run_for(3s);
  RangeSet to(0);
  to.add(7, 13);
  to.add(39);
  to.add(20);
  for (const NodeId sender : {0U, 13U, 20U, 38U}) {
    for (Member* member : stage.members) member->parcels.clear();
    stage.node(sender).send(to, as_bytes("hello"));
    stage.sim.run_for(100ms);
    for (NodeId node = 0; node < 40; ++node) {
      const std::vector<std::string> once = {fmt::format("{}: hello", sender)};
      INFO("from ", sender, " to ", node);
      CHECK(stage.members[node]->parcels ==
            (to.contains(node) ? once : std::vector<std::string>()));
    }
  }
}

TEST_CASE("messages to nodes that are gone are dropped, others arrive") {
  Stage stage(15, 2);
  stage.sim.run_for(3s);
  stage.sim.crash(14);
  stage.sim.run_for(5s);
  stage.node(7).send(RangeSet(12, 1000), as_bytes("x"));
  stage.sim.run_for(100ms);
  CHECK(stage.members[12]->parcels.size() == 1);
  CHECK(stage.members[13]->parcels.size() == 1);
}

TEST_CASE("reports of many are folded on their way, those with other keys are not") {
  Stage stage(40, 3);
  stage.sim.run_for(3s);
  for (NodeId node = 0; node < 40; ++node) {
    stage.node(node).report(1, 5, as_bytes("a"));
    stage.node(node).report(1, 6, as_bytes("b"));
  }
  stage.sim.run_for(200ms);
  const Member& member = *stage.members[1];
  std::string fives;
  std::string sixes;
  for (const std::string& report : member.reports)
    (report[0] == '5' ? fives : sixes) += report.substr(3);
  CHECK(fives == std::string(40, 'a'));
  CHECK(sixes == std::string(40, 'b'));
  CHECK(member.reports.size() < 40);  // of 80
  CHECK(stage.members[0]->folds > 0);
}

TEST_CASE("while the head is away a stand-in keeps the tree in one piece") {
  Stage stage(31, 2);
  stage.sim.run_for(3s);
  stage.sim.crash(0);
  stage.sim.run_for(6s);
  CHECK(stage.node(1).is_root());
  CHECK(stage.above(2) == 1);
  CHECK(stage.node(1).alive() == RangeSet(1, 30));
  stage.node(14).send(RangeSet(1, 30), as_bytes("still here"));
  stage.sim.run_for(200ms);
  for (NodeId node = 1; node < 31; ++node) CHECK(stage.members[node]->parcels.size() == 1);
  stage.sim.reboot(0);
  stage.sim.run_for(10s);
  CHECK(stage.above(1) == 0);
  CHECK(stage.above(2) == 0);
  CHECK(stage.node(0).alive().text() == stage.everyone().text());
}

TEST_CASE("a node that was late itself declares nobody dead") {
  Stage stage(31, 2);
  stage.sim.run_for(3s);
  stage.sim.pause(1);
  stage.sim.run_for(3s);
  const size_t lost_by_others = stage.members[0]->lost.size();
  CHECK(stage.members[0]->lost.text() == "1");
  stage.sim.resume(1);
  stage.sim.run_for(10s);
  // It missed nobody, and everybody has it back.
  CHECK(stage.members[0]->lost.size() == lost_by_others);
  CHECK(stage.node(0).alive().text() == stage.everyone().text());
  CHECK(stage.above(1) == 0);
}

TEST_CASE("a head that stood still declares nobody dead") {
  Stage stage(31, 2);
  stage.sim.run_for(3s);
  stage.sim.pause(0);
  stage.sim.run_for(3s);
  stage.sim.resume(0);
  stage.sim.run_for(10s);
  CHECK(stage.members[0]->lost.empty());
  CHECK(stage.node(0).alive().text() == stage.everyone().text());
}

Task<Result<void>> run_second(Stage& stage, SimHost& host, NodeId number, std::string& end,
                              std::unique_ptr<Member>& member) {
  member = std::make_unique<Member>(stage, host.index());
  auto ran = co_await member->run(host, number, kPort + 1);
  end = ran ? "well" : ran.error().text();
  co_return {};
}

TEST_CASE("a second agent with a number that is taken is refused, and the first stays") {
  Stage stage(4, 2);
  stage.sim.run_for(2s);
  const int attached = stage.members[1]->attached;
  std::string end;
  std::unique_ptr<Member> second;
  SimHost& host = stage.sim.host(3);
  host.scope().spawn(run_second(stage, host, 1, end, second));
  stage.sim.run_for(5s);
  REQUIRE(second != nullptr);
  REQUIRE(second->node != nullptr);
  CHECK(second->attached == 0);
  CHECK(second->node->is_root());
  CHECK(stage.above(1) == 0);
  CHECK(stage.members[1]->attached == attached);
  CHECK(stage.members[0]->lost.empty());
  stage.node(0).send(RangeSet(1), as_bytes("for the first"));
  stage.sim.run_for(100ms);
  CHECK(stage.members[1]->parcels.size() == 1);
  CHECK(second->parcels.empty());
  // When the first is gone its number is free.
  stage.sim.crash(1);
  stage.sim.run_for(6s);
  CHECK(second->attached >= 1);
  host.scope().kill();
  second.reset();
}

TEST_CASE("an agent without a number gets it from the head, then its place") {
  Stage stage(4, 2);
  stage.next_number = 9;
  stage.sim.run_for(2s);
  std::string end;
  std::unique_ptr<Member> fresh;
  SimHost& host = stage.sim.host(3);
  host.scope().spawn(run_second(stage, host, kHead, end, fresh));
  stage.sim.run_for(5s);
  REQUIRE(fresh != nullptr);
  REQUIRE(fresh->node != nullptr);
  CHECK(fresh->node->node() == 9);
  CHECK(stage.node(0).alive().contains(9));
  CHECK(fresh->attached >= 1);
  host.scope().kill();
  fresh.reset();
}

TEST_CASE("a node that says it leaves for a while is not lost until then") {
  for (const bool says : {false, true}) {
    Stage stage(8, 2);
    stage.sim.run_for(3s);
    if (says) stage.node(7).leave_for(8s);
    stage.sim.run_for(100ms);
    stage.sim.host(7).scope().cancel();  // its agent ends; its host lives on and closes
    stage.sim.run_for(5s);
    for (const uint32_t host : {0, 2, 6}) {
      CHECK(stage.node(host).away().contains(7) == says);
      CHECK(stage.members[host]->lost.contains(7) != says);
    }
    CHECK(!stage.node(0).alive().contains(7));
    stage.sim.run_for(5s);
    for (const uint32_t host : {0, 2, 6}) CHECK(stage.members[host]->lost.contains(7));
    stage.sim.run_for(5s);
    CHECK(stage.node(6).away().empty());
  }
}

TEST_CASE("that a node is away outlives the root, and whoever it hung below") {
  Stage stage(8, 2);
  stage.sim.run_for(3s);
  REQUIRE(stage.above(7) == 3);
  stage.node(7).leave_for(1min);
  stage.sim.run_for(100ms);
  stage.sim.crash(7);
  stage.sim.crash(3);
  stage.sim.crash(0);
  stage.sim.run_for(5s);
  for (const uint32_t host : {1, 2, 4}) {
    CHECK(stage.members[host]->lost.contains(3));
    CHECK(stage.node(host).away() == RangeSet(7));
  }
  stage.sim.reboot(0);
  stage.sim.run_for(10s);
  CHECK(stage.node(0).away() == RangeSet(7));
  stage.sim.run_for(1min);
  CHECK(stage.node(0).away().empty());
  CHECK(stage.members[2]->lost.contains(7));
}

TEST_CASE("a node that is back is lost again as soon as any other") {
  for (const Duration gone : {Duration(200ms), Duration(20s)}) {
    Stage stage(8, 2);
    stage.sim.run_for(3s);
    stage.node(7).leave_for(10min);
    stage.sim.run_for(100ms);
    stage.sim.crash(7);
    stage.sim.run_for(gone);
    CHECK(stage.node(2).away() == RangeSet(7));
    stage.sim.reboot(7);
    stage.sim.run_for(3s);
    CHECK(stage.node(0).alive().contains(7));
    CHECK(stage.node(2).away().empty());
    for (const auto& member : stage.members) CHECK(!member->lost.contains(7));
    stage.sim.crash(7);
    stage.sim.run_for(2s);
    CHECK(stage.members[2]->lost.contains(7));
  }
}

TEST_CASE("who was cut off while a node came back does not take it for away") {
  Stage stage(8, 2);
  stage.sim.run_for(3s);
  stage.node(7).leave_for(10min);
  stage.sim.run_for(100ms);
  stage.sim.crash(7);
  stage.sim.run_for(1s);
  const uint64_t cut = stage.sim.links().partition(HostSet::one(2), HostSet::all());
  stage.sim.run_for(3s);
  stage.sim.reboot(7);
  stage.sim.run_for(3s);
  CHECK(stage.node(0).away().empty());
  CHECK(stage.node(2).away() == RangeSet(7));
  stage.sim.links().heal(cut);
  stage.sim.run_for(20s);
  CHECK(stage.node(0).alive().contains(2));
  CHECK(stage.node(0).away().empty());
  CHECK(stage.node(2).away().empty());
}

TEST_CASE("who was cut off while a node came back and was lost does not make it away again") {
  Stage stage(8, 2);
  stage.sim.run_for(20s);
  stage.node(7).leave_for(10min);
  stage.sim.run_for(100ms);
  stage.sim.crash(7);
  stage.sim.run_for(1s);
  const uint64_t cut = stage.sim.links().partition(HostSet::one(2), HostSet::all());
  stage.sim.run_for(3s);
  stage.sim.reboot(7);
  stage.sim.run_for(3s);
  stage.sim.crash(7);
  stage.sim.run_for(10s);
  CHECK(stage.members[1]->lost.contains(7));
  CHECK(stage.node(2).away() == RangeSet(7));
  stage.sim.links().heal(cut);
  stage.sim.run_for(20s);
  CHECK(stage.node(0).alive().contains(2));
  CHECK(stage.node(0).away().empty());
  CHECK(stage.node(2).away().empty());
  CHECK(stage.members[2]->lost.contains(7));
}

TEST_CASE("who is cut off from the head forgets who was away, and loses nobody") {
  Stage stage(8, 2);
  stage.sim.run_for(3s);
  stage.node(7).leave_for(8s);
  stage.sim.run_for(100ms);
  stage.sim.crash(7);
  stage.sim.run_for(1s);
  const uint64_t cut = stage.sim.links().partition(HostSet::one(2), HostSet::all());
  stage.sim.run_for(2s);
  stage.sim.reboot(7);
  stage.sim.run_for(20s);
  CHECK(stage.node(2).away().empty());
  CHECK_FALSE(stage.members[2]->lost.contains(7));
  stage.sim.links().heal(cut);
  stage.sim.run_for(5s);
  CHECK(stage.node(0).alive() == stage.everyone());
}

const QueueMark& mark_of(std::string_view name) {
  const auto marks = queue_marks();
  const auto found =
      std::ranges::find(marks, name, [](const QueueMark* mark) { return mark->name; });
  REQUIRE(found != marks.end());
  return **found;
}

// Connects, and says nothing.
Task<void> crowd(SimHost& host, std::string address, int count,
                 std::vector<std::unique_ptr<Stream>>& streams) {
  for (int i = 0; i < count; ++i) {
    auto parsed = Address::parse(address);
    auto stream = co_await host.network().connect(std::move(*parsed));
    if (stream) streams.push_back(std::move(*stream));
  }
}

TEST_CASE("of a crowd that connects and says nothing, no more are greeted than the limit") {
  Stage stage(4, 2);
  stage.sim.run_for(2s);
  SimHost& host = stage.sim.host(3);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 50; ++i) host.scope().spawn(crowd(host, stage.address(kHead), 100, streams));
  stage.sim.run_for(1500ms);
  const QueueMark& mark = mark_of("tree: neighbours that are greeted");
  CHECK(mark.highest == mark.limit);
  CHECK(streams.size() > mark.limit);
  // They are given up, and others get their turn.
  stage.sim.run_for(5s);
  stage.sim.crash(2);
  stage.sim.run_for(3s);
  stage.sim.reboot(2);
  stage.sim.run_for(3s);
  CHECK(stage.node(0).alive().contains(2));
  host.scope().kill();
  streams.clear();
}

TEST_CASE("reports that are long together do not wait for each other") {
  Stage stage(4, 1);
  stage.sim.run_for(2s);
  const std::string body(3_MiB, 'x');
  stage.node(3).report(0, 5, as_bytes(body));
  stage.node(3).report(0, 5, as_bytes(body));
  stage.sim.run_for(2s);
  CHECK(stage.members[0]->reports.size() == 2);
  const QueueMark& mark = mark_of("tree: bytes of reports that wait for others");
  CHECK(mark.highest >= body.size());
  CHECK(mark.highest <= mark.limit);
}

}  // namespace
}  // namespace tutti
