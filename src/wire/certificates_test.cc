#include "wire/certificates.h"

#include <doctest/doctest.h>

#include "wire/authority.h"

namespace tutti::wire {
namespace {

constexpr int64_t kNow_s = 1'800'000'000;

Certificate node3(const Authority& authority) {
  return authority.issue({Role::agent, "node3", 3000}, kNow_s).value();
}

TEST_CASE("a certificate survives the way to its file and back") {
  const Authority authority = Authority::create("lab", kNow_s).value();
  const Certificate certificate = node3(authority);
  const Certificate read = Certificate::from_pem(certificate.pem()).value();
  CHECK(read.identity() == Identity{"lab", Role::agent, "node3"});
  CHECK(read.claim().authority == certificate.claim().authority);
  CHECK(read.claim().not_before_unix_s == kNow_s - kClockSkew_s);
  CHECK(read.claim().not_after_unix_s == kNow_s + 3000);
  CHECK(read.pem() == certificate.pem());
}

TEST_CASE("an authority survives the way to its files and back, and goes on issuing") {
  const Authority authority = Authority::create("lab", kNow_s).value();
  const Authority read =
      Authority::from_pem(authority.certificate_pem(), authority.key_pem()).value();
  CHECK(read.cluster() == "lab");
  CHECK(node3(read).claim().authority == node3(authority).claim().authority);
}

TEST_CASE("a certificate file that is cut or mixed up is refused and never half believed") {
  const Authority authority = Authority::create("lab", kNow_s).value();
  const Authority other = Authority::create("lab", kNow_s).value();
  const std::string pem = node3(authority).pem();
  for (size_t size = 0; size + 30 < pem.size(); size += 13)
    CHECK(!Certificate::from_pem(pem.substr(0, size)));
  const std::string stranger = node3(other).pem();
  const std::string end_of_key = "-----END PRIVATE KEY-----\n";
  const size_t key_end = pem.find(end_of_key) + end_of_key.size();
  const size_t other_key_end = stranger.find(end_of_key) + end_of_key.size();
  const auto foreign_key =
      Certificate::from_pem(stranger.substr(0, other_key_end) + pem.substr(key_end));
  CHECK(foreign_key.error().message() == "the key is not the certificate's");
  const size_t authority_at = pem.rfind("-----BEGIN");
  const auto foreign_authority =
      Certificate::from_pem(pem.substr(0, authority_at) + other.certificate_pem());
  CHECK(foreign_authority.error().message().find("did not sign") != std::string::npos);
}

TEST_CASE("names and lifetimes that make no sense are not certified") {
  const Authority authority = Authority::create("lab", kNow_s).value();
  CHECK(!Authority::create("", kNow_s));
  CHECK(!Authority::create("a/b", kNow_s));
  CHECK(Authority::create(std::string(kMaxNameBytes, 'x'), kNow_s).has_value());
  CHECK(!authority.issue({Role::agent, "a,URI:tutti://lab/head/head"}, kNow_s));
  CHECK(!authority.issue({Role::agent, "x", 0}, kNow_s));
  CHECK(!authority.issue({Role::agent, "x", kAuthorityLifetime_s + 1}, kNow_s));
  CHECK(authority.issue({Role::agent, std::string(kMaxNameBytes, 'x')}, kNow_s).has_value());
}

TEST_CASE("no certificate outlives its authority") {
  const Authority authority = Authority::create("lab", kNow_s).value();
  const int64_t late = kNow_s + kAuthorityLifetime_s - kDay_s;
  const Certificate last = authority.issue({Role::agent, "x"}, late).value();
  CHECK(last.claim().not_after_unix_s == kNow_s + kAuthorityLifetime_s + 1);
  auto after = authority.issue({Role::agent, "x"}, late + 2 * kDay_s);
  CHECK(after.error().code() == Code::denied);
}

}  // namespace
}  // namespace tutti::wire
