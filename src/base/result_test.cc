#include "base/result.h"

#include <doctest/doctest.h>

#include <cerrno>

namespace tutti {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return fail(Code::invalid, "{} is odd", n);
  return n / 2;
}

Result<int> quarter(int n) {
  TRY(const int first, half(n));
  TRY(const int second, half(first));
  return second;
}

Result<void> must_be_even(int n) {
  if (n % 2 != 0) return fail(Code::invalid, "{} is odd", n);
  return {};
}

Result<int> even_or_error(int n) {
  TRY_DO(must_be_even(n));
  return n;
}

TEST_CASE("TRY gives the value, or returns the error") {
  CHECK(*quarter(12) == 3);
  const auto failed = quarter(6);
  REQUIRE(!failed);
  CHECK(failed.error().code() == Code::invalid);
  CHECK(failed.error().message() == "3 is odd");
}

TEST_CASE("TRY_DO passes on success and returns the error") {
  CHECK(*even_or_error(2) == 2);
  REQUIRE(!even_or_error(3));
  CHECK(even_or_error(3).error().message() == "3 is odd");
}

TEST_CASE("an error reads from the outermost doing to the message") {
  const Error inner(Code::io, "disk on fire");
  const Error outer = inner.context("writing chunk 3").context("saving step 12");
  CHECK(outer.text() == "saving step 12: writing chunk 3: disk on fire");
  CHECK(outer.code() == Code::io);
  CHECK(outer.contexts() == std::vector<std::string>{"writing chunk 3", "saving step 12"});
}

TEST_CASE("adding context leaves the original error as it was") {
  const Error inner(Code::io, "disk on fire");
  const Error outer = inner.context("saving");
  CHECK(inner.text() == "disk on fire");
  CHECK(outer.text() == "saving: disk on fire");
}

TEST_CASE("errno keeps its words and gets the code a caller can act on") {
  const struct {
    int number;
    Code code;
  } cases[] = {
      {ENOENT, Code::not_found}, {EEXIST, Code::exists},          {EACCES, Code::denied},
      {ENOSPC, Code::exhausted}, {ECONNRESET, Code::unavailable}, {ETIMEDOUT, Code::deadline},
      {EINVAL, Code::invalid},   {ENOSYS, Code::unsupported},     {ECANCELED, Code::cancelled},
      {EIO, Code::io},
  };
  for (const auto& [number, code] : cases) {
    CAPTURE(number);
    CHECK(Error::from_errno(number, "open /x").code() == code);
  }
  const Result<int> failed = fail_errno(ENOENT, "open {}", "/x");
  REQUIRE(!failed);
  CHECK(failed.error().text() == "open /x: No such file or directory");
  CHECK(Error::from_errno(EMFILE, "open /x").message() ==
        "open /x: Too many open files; see `ulimit -n`");
}

TEST_CASE("every code has its own name") {
  std::vector<std::string_view> names;
  for (auto code = Code::cancelled; code <= Code::internal;
       code = static_cast<Code>(static_cast<int>(code) + 1)) {
    for (const auto name : names) CHECK(name != code_name(code));
    names.push_back(code_name(code));
    CHECK(names.back() != "unknown");
  }
  CHECK(names.size() == 12);
}

}  // namespace
}  // namespace tutti
