// The agents' tree: every host is a node of it, host 0 the head.
//
// What must hold: once all is well, every node hangs below somebody, the head knows exactly who
// lives, and a message from any node reaches all others once. While hosts die: nobody who lives is
// reported lost unless it was cut off, paused or slow; a host that stays dead is reported in time.
#include "cluster/tree_node.h"
#include "sims/roster.h"
#include "sims/scenarios.h"

namespace tutti::sims {
namespace {

constexpr Duration kSettling = 30s;  // a stalled stream is given up after 15 s

struct Ledger {
  std::vector<TreeNode*> nodes;   // of hosts that run
  std::vector<uint64_t> parcels;  // received, by host
  std::vector<uint64_t> reports;  // bodies received, by host
};

// Narrow trees are deep, and have more to heal.
uint32_t fan_out_of(Simulator& sim) {
  constexpr std::array<uint32_t, 4> kFanOuts = {2, 3, 8, kUsualFanOut};
  return sim.hosts() > 1000 ? kUsualFanOut : kFanOuts[sim.options().seed % kFanOuts.size()];
}

class Member final : public TreeUser {
 public:
  Member(SimHost& host, Ledger& ledger)
      : host_(host),
        ledger_(ledger),
        roster_(host.simulator().hosts(), fan_out_of(host.simulator())) {}
  ~Member() { ledger_.nodes[host_.index()] = nullptr; }

  Task<Result<void>> run() {
    auto seals = roster_.seals(host_);
    const Address address = roster_.address(host_.index());
    CO_TRY(auto listener, co_await host_.network().listen(address));
    TreeNode node(host_, *seals, roster_.options(host_.index()), *this);
    ledger_.nodes[host_.index()] = &node;
    auto ran = co_await node.run(*listener);
    ledger_.nodes[host_.index()] = nullptr;
    co_return ran;
  }

 private:
  void on_parcel(NodeId, Bytes) override { ++ledger_.parcels[host_.index()]; }
  void on_report(uint64_t, Bytes body) override { ledger_.reports[host_.index()] += body.size(); }
  void on_lost(const RangeSet&) override {}
  Result<NodeId> admit(const tree::Attach& attach, const wire::Peer&) override {
    return attach.node();
  }
  std::string address_of(NodeId node) override { return roster_.address(node).text(); }

  SimHost& host_;
  Ledger& ledger_;
  Roster roster_;
};

Task<Result<void>> run_member(SimHost& host, std::shared_ptr<Ledger> ledger) {
  Member member(host, *ledger);
  co_return co_await member.run();
}

// Whom a node believes below itself hangs there: of others nobody would notice that they die.
void check_claims(Simulator& sim, const Ledger& ledger) {
  std::vector<uint64_t> below(sim.hosts(), 1);
  for (uint32_t host = sim.hosts() - 1; host > 0; --host)
    below[ledger.nodes[host]->above()] += below[host];
  for (uint32_t host = 0; host < sim.hosts(); ++host)
    sim.check(ledger.nodes[host]->alive().size() == below[host],
              "node {} believes that {} hang below it, but {} do", host,
              ledger.nodes[host]->alive().text(), below[host]);
}

void check_whole(Simulator& sim, const Ledger& ledger) {
  const RangeSet everyone(0, sim.hosts() - 1);
  for (uint32_t host = 0; host < sim.hosts(); ++host) {
    if (!sim.check(ledger.nodes[host] != nullptr, "host {} runs no node", host)) return;
    if (host != 0 && !sim.check(!ledger.nodes[host]->is_root(), "node {} hangs nowhere", host))
      return;
  }
  const RangeSet& known = ledger.nodes[0]->alive();
  sim.check(known == everyone, "the head misses {}", everyone.minus(known).text());
  check_claims(sim, ledger);
}

Task<Result<void>> check_messages(Simulator& sim, Ledger& ledger) {
  const RangeSet everyone(0, sim.hosts() - 1);
  const auto sender = static_cast<uint32_t>(sim.random(RandomStream::program).below(sim.hosts()));
  std::ranges::fill(ledger.parcels, 0);
  std::ranges::fill(ledger.reports, 0);
  ledger.nodes[sender]->send(everyone, as_bytes("news"));
  for (TreeNode* node : ledger.nodes) node->report(sender, 1, as_bytes("x"));
  CO_TRY_DO(co_await sim.clock().sleep(2s));
  for (uint32_t host = 0; host < sim.hosts(); ++host)
    sim.check(ledger.parcels[host] == 1, "host {} got {} of 1 messages of host {}", host,
              ledger.parcels[host], sender);
  sim.check(ledger.reports[sender] == sim.hosts(), "host {} got {} of {} reports", sender,
            ledger.reports[sender], sim.hosts());
  co_return {};
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  auto ledger = std::make_shared<Ledger>();
  ledger->nodes.resize(sim.hosts());
  ledger->parcels.resize(sim.hosts());
  ledger->reports.resize(sim.hosts());
  sim.set_program([ledger](SimHost& host) { return run_member(host, ledger); });
  sim.start_all();
  const bool calm = sim.options().faults.name == "none";
  if (!calm) CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await sim.clock().sleep(calm ? 3s : kSettling));
  check_whole(sim, *ledger);
  if (!sim.failure()) CO_TRY_DO(co_await check_messages(sim, *ledger));
  co_return {};
}

}  // namespace

const Scenario kTree = {"tree", "agents in a tree that heals", 100, 1, 30s, run};

}  // namespace tutti::sims
