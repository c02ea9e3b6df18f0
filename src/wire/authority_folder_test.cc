#include "wire/authority_folder.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "wire/memory_world.h"
#include "world/sim/simulator.h"

namespace tutti::wire {
namespace {

const std::string kFolder = "/etc/tutti";

Task<Result<void>> open_into(World& world, std::string cluster, std::optional<Authority>& out) {
  auto authority = co_await open_authority(world, kFolder, cluster);
  if (!authority) co_return fail(authority.error());
  out = *authority;
  co_return {};
}

Task<Result<void>> obtain_into(World& world, IssueOptions options,
                               std::optional<Certificate>& out) {
  auto certificate = co_await obtain_certificate(world, kFolder, "lab", options);
  if (!certificate) co_return fail(certificate.error());
  out = *certificate;
  co_return {};
}

Task<Result<void>> list_into(World& world, std::vector<std::string>& out) {
  auto names = co_await world.disk().list(kFolder);
  if (!names) co_return fail(names.error());
  out = *names;
  co_return {};
}

Task<Result<void>> remove_authority(World& world) {
  for (const char* name : {"/authority/key.pem", "/authority/certificate.pem", "/authority"}) {
    const std::string path = kFolder + name;
    auto removed = co_await world.disk().remove(path);
    if (!removed) co_return fail(removed.error());
  }
  co_return {};
}

Task<Result<void>> write_openly(World& world, std::string path, std::string text) {
  const Bytes bytes = as_bytes(text);
  auto written = co_await write_file_atomically(world.disk(), path, bytes);
  co_return written;
}

Task<Result<void>> load_only(World& world, std::string path) {
  auto loaded = co_await load_certificate(world, path);
  if (!loaded) co_return fail(loaded.error());
  co_return {};
}

TEST_CASE("the authority is made on first use and the same ever after") {
  Simulator sim({.seed = 1, .hosts = 1});
  std::optional<Authority> first;
  std::optional<Authority> second;
  REQUIRE(sim.run(open_into(sim.host(0), "", first), 1min));
  REQUIRE(sim.run(open_into(sim.host(0), "", second), 1min));
  CHECK(first->cluster().starts_with("cluster-"));
  CHECK(first->certificate_pem() == second->certificate_pem());
  CHECK(first->key_pem() == second->key_pem());
  auto renamed = sim.run(open_into(sim.host(0), "other", second), 1min);
  REQUIRE(!renamed);
  CHECK(renamed.error().text().find(first->cluster() + ", not other") != std::string::npos);
}

Task<Result<void>> race(World& world, std::vector<std::optional<Authority>>& made) {
  Scope scope;
  for (auto& one : made) scope.spawn(open_into(world, "lab", one));
  auto joined = co_await scope.join();
  co_return joined;
}

TEST_CASE("of several that make the authority at once one wins, and nothing else is left") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Simulator sim({.seed = seed, .hosts = 1});
    std::vector<std::optional<Authority>> made(4);
    REQUIRE(sim.run(race(sim.host(0), made), 1min));
    for (const auto& one : made) CHECK(one->certificate_pem() == made[0]->certificate_pem());
    std::vector<std::string> names;
    REQUIRE(sim.run(list_into(sim.host(0), names), 1min));
    CHECK(names == std::vector<std::string>{"authority"});
  }
}

Task<void> open_and_forget(World& world, std::optional<Authority>& out) {
  auto opened = co_await open_into(world, "lab", out);
  static_cast<void>(opened);
}

TEST_CASE("a crash at any moment leaves no authority or a whole one") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Simulator sim({.seed = seed, .hosts = 1});
    std::optional<Authority> before;
    sim.host(0).scope().spawn(open_and_forget(sim.host(0), before));
    sim.run_for(Duration(seed * 20'000));
    sim.crash(0);
    sim.run_for(1s);
    sim.reboot(0);
    sim.run_for(1s);
    std::optional<Authority> after;
    auto opened = sim.run(open_into(sim.host(0), "lab", after), 1min);
    REQUIRE_MESSAGE(opened.has_value(), (opened ? "" : opened.error().text()));
    // Whoever was told of an authority finds the same one again.
    if (before) CHECK(before->certificate_pem() == after->certificate_pem());
  }
}

TEST_CASE("a certificate is kept while it is fresh and renewed before it ends") {
  Simulator sim({.seed = 1, .hosts = 1});
  const IssueOptions options{Role::agent, "node3", 3000};
  std::optional<Certificate> first;
  std::optional<Certificate> kept;
  std::optional<Certificate> renewed;
  REQUIRE(sim.run(obtain_into(sim.host(0), options, first), 1min));
  CHECK(first->identity() == Identity{"lab", Role::agent, "node3"});
  sim.run_for(600s);
  REQUIRE(sim.run(obtain_into(sim.host(0), options, kept), 1min));
  CHECK(kept->pem() == first->pem());
  sim.run_for(2000s);
  REQUIRE(sim.run(obtain_into(sim.host(0), options, renewed), 1min));
  CHECK(renewed->pem() != first->pem());
  CHECK(renewed->claim().authority == first->claim().authority);
  CHECK(renewed->claim().not_after_unix_s > first->claim().not_after_unix_s);
}

TEST_CASE("a host without the authority uses its certificate to the end, then says how to renew") {
  Simulator sim({.seed = 1, .hosts = 1});
  const IssueOptions options{Role::agent, "node3", 3000};
  std::optional<Certificate> certificate;
  REQUIRE(sim.run(obtain_into(sim.host(0), options, certificate), 1min));
  REQUIRE(sim.run(remove_authority(sim.host(0)), 1min));
  sim.run_for(2900s);
  CHECK(sim.run(obtain_into(sim.host(0), options, certificate), 1min));
  sim.run_for(200s);
  auto late = sim.run(obtain_into(sim.host(0), options, certificate), 1min);
  REQUIRE(!late);
  CHECK(late.error().code() == Code::denied);
  CHECK(late.error().text().find("from the host that holds the cluster's authority") !=
        std::string::npos);
}

TEST_CASE("a key that others may read is refused with the command that mends it") {
  Simulator sim({.seed = 1, .hosts = 1});
  std::optional<Certificate> certificate;
  REQUIRE(sim.run(obtain_into(sim.host(0), {Role::user, "jo"}, certificate), 1min));
  const std::string path = certificate_path(kFolder, Role::user, "jo");
  CHECK(sim.run(load_only(sim.host(0), path), 1min));
  REQUIRE(sim.run(write_openly(sim.host(0), path, certificate->pem()), 1min));
  auto refused = sim.run(load_only(sim.host(0), path), 1min);
  REQUIRE(!refused);
  CHECK(refused.error().code() == Code::denied);
  CHECK(refused.error().text().find("chmod 600 " + path) != std::string::npos);
}

TEST_CASE("whoever was told of an authority finds it again after a crash right then") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Simulator sim({.seed = seed, .hosts = 1});
    std::optional<Authority> before;
    std::optional<Authority> after;
    REQUIRE(sim.run(open_into(sim.host(0), "lab", before), 1min));
    sim.crash(0);
    sim.run_for(1s);
    sim.reboot(0);
    sim.run_for(1s);
    REQUIRE(sim.run(open_into(sim.host(0), "lab", after), 1min));
    CHECK(before->certificate_pem() == after->certificate_pem());
  }
}

Task<Result<void>> copy_secret(World& world, std::string from, std::string to) {
  auto certificate = co_await load_certificate(world, from);
  if (!certificate) co_return fail(certificate.error());
  auto stored = co_await store_certificate(world, to, *certificate);
  co_return stored;
}

std::string refusal_to_obtain(Simulator& sim, const IssueOptions& options) {
  std::optional<Certificate> certificate;
  auto refused = sim.run(obtain_into(sim.host(0), options, certificate), 1min);
  REQUIRE(!refused);
  return refused.error().text();
}

TEST_CASE("somebody else's certificate in the place of ours is refused with both names") {
  Simulator sim({.seed = 1, .hosts = 1});
  SimHost& host = sim.host(0);
  std::optional<Certificate> certificate;
  REQUIRE(sim.run(obtain_into(host, {Role::agent, "node3"}, certificate), 1min));
  const std::string from = certificate_path(kFolder, Role::agent, "node3");
  REQUIRE(sim.run(copy_secret(host, from, certificate_path(kFolder, Role::agent, "node4")), 1min));
  REQUIRE(sim.run(copy_secret(host, from, certificate_path(kFolder, Role::head, "node3")), 1min));
  CHECK(refusal_to_obtain(sim, {Role::agent, "node4"}) ==
        kFolder +
            "/agent-node4.pem is the certificate of agent node3 of cluster lab, not of agent "
            "node4 of cluster lab; move it away, or use another folder");
  CHECK(refusal_to_obtain(sim, {Role::head, "node3"}).find("not of head node3 of cluster lab") !=
        std::string::npos);
  const Authority office =
      Authority::create("office", host.clock().unix_ns() / 1'000'000'000).value();
  const Certificate theirs =
      office.issue({Role::agent, "node3"}, host.clock().unix_ns() / 1'000'000'000).value();
  REQUIRE(sim.run(store_certificate(host, from, theirs), 1min));
  CHECK(refusal_to_obtain(sim, {Role::agent, "node3"})
            .find("of agent node3 of cluster office, not of agent node3 of cluster lab") !=
        std::string::npos);
}

TEST_CASE("a certificate of an authority that was made anew is issued anew, however fresh") {
  Simulator sim({.seed = 1, .hosts = 1});
  std::optional<Certificate> before;
  std::optional<Certificate> after;
  std::optional<Authority> anew;
  REQUIRE(sim.run(obtain_into(sim.host(0), {Role::agent, "node3"}, before), 1min));
  REQUIRE(sim.run(remove_authority(sim.host(0)), 1min));
  REQUIRE(sim.run(open_into(sim.host(0), "lab", anew), 1min));
  REQUIRE(sim.run(obtain_into(sim.host(0), {Role::agent, "node3"}, after), 1min));
  CHECK(after->claim().authority != before->claim().authority);
  CHECK(after->claim().authority == key_fingerprint(anew->certificate_pem()).value());
}

TEST_CASE("an authority's key that others may read is refused, a certificate that holds is not") {
  const LogLines log;
  Simulator sim({.seed = 1, .hosts = 1});
  const IssueOptions options{Role::agent, "node3", 3000};
  std::optional<Authority> authority;
  std::optional<Certificate> certificate;
  REQUIRE(sim.run(obtain_into(sim.host(0), options, certificate), 1min));
  REQUIRE(sim.run(open_into(sim.host(0), "lab", authority), 1min));
  const std::string key = kFolder + "/authority/key.pem";
  REQUIRE(sim.run(write_openly(sim.host(0), key, authority->key_pem()), 1min));
  CHECK(refusal_to_obtain(sim, {Role::agent, "node9"}).find("chmod 600 " + key) !=
        std::string::npos);
  sim.run_for(2600s);  // time to renew
  CHECK(sim.run(obtain_into(sim.host(0), options, certificate), 1min));
  CHECK(log.count("cannot renew a certificate") == 1);
  sim.run_for(600s);
  CHECK(refusal_to_obtain(sim, options).find("chmod 600 " + key) != std::string::npos);
}

Task<Result<void>> make_unreadable(World& world) {
  const std::string path = kFolder + "/authority/certificate.pem";
  auto removed = co_await world.disk().remove(path);
  if (!removed) co_return fail(removed.error());
  auto made = co_await world.disk().make_directories(path);
  co_return made;
}

TEST_CASE("an authority that cannot be read is not taken for none") {
  const LogLines log;
  Simulator sim({.seed = 1, .hosts = 1});
  const IssueOptions options{Role::agent, "node3", 3000};
  std::optional<Certificate> certificate;
  REQUIRE(sim.run(obtain_into(sim.host(0), options, certificate), 1min));
  REQUIRE(sim.run(make_unreadable(sim.host(0)), 1min));
  sim.run_for(2600s);
  CHECK(sim.run(obtain_into(sim.host(0), options, certificate), 1min));
  sim.run_for(600s);
  const std::string refusal = refusal_to_obtain(sim, options);
  CHECK(refusal.find("there is no authority") == std::string::npos);
  CHECK(refusal.find("authority/certificate.pem") != std::string::npos);
}

}  // namespace
}  // namespace tutti::wire
