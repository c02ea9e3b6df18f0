#include "wire/failure.h"

#include <doctest/doctest.h>

#include "wire/limits.h"
#include "wire/wire.pb.h"

namespace tutti::wire {
namespace {

Error travelled(const proto::Failure& failure) {
  const std::string payload = failure.SerializeAsString();
  return decode_failure(as_bytes(payload)).value();
}

TEST_CASE("a failure keeps code, message and contexts") {
  const Error error = Error(Code::exists, "there").context("inner").context("outer");
  const std::string payload = encode_failure(error);
  const Error got = decode_failure(as_bytes(payload)).value();
  CHECK(got.code() == Code::exists);
  CHECK(got.text() == "outer: inner: there");
}

TEST_CASE("a code that is not known here counts as internal") {
  proto::Failure failure;
  failure.set_code(200);
  CHECK(travelled(failure).code() == Code::internal);
}

TEST_CASE("that the other side gave up does not look as if we had") {
  proto::Failure failure;
  failure.set_code(static_cast<uint32_t>(Code::cancelled));
  CHECK(travelled(failure).code() == Code::unavailable);
}

TEST_CASE("a failure of many contexts and long texts is cut, whoever made it") {
  proto::Failure failure;
  failure.set_code(static_cast<uint32_t>(Code::io));
  failure.set_message(std::string(100'000, 'm'));
  for (int i = 0; i < 50'000; ++i) failure.add_contexts(i % 2 == 0 ? "" : "context");
  const Error got = travelled(failure);
  CHECK(got.contexts().size() == 16);
  CHECK(got.message().size() == 4096);

  Error error(Code::io, std::string(100'000, 'm'));
  for (int i = 0; i < 100; ++i) error = error.context(std::string(10'000, 'c'));
  CHECK(encode_failure(error).size() <= kMaxInlineMessage);
}

TEST_CASE("what was refused is said as it was, and how a call failed on its way stays") {
  const Error refused = Error(Code::not_found, "no job 9").context("look for it");
  const Error came = refused.context("from the head").context("calling head.kill of the head");
  CHECK(as_said(came).text() == "look for it: no job 9");
  CHECK(as_said(came).code() == Code::not_found);
  const Error away = Error(Code::unavailable, "it ends").context("from the head");
  CHECK(as_said(away.context("calling head.kill of the head")).text() ==
        "calling head.kill of the head: from the head: it ends");
  const Error late = Error(Code::not_found, "no such socket").context("calling head.kill");
  CHECK(as_said(late).text() == "calling head.kill: no such socket");
}

}  // namespace
}  // namespace tutti::wire
