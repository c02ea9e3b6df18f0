#include "wire/failure.h"

#include <algorithm>

#include "wire/limits.h"
#include "wire/wire.pb.h"

namespace tutti::wire {

namespace {
// A message a person can read, and what was being done.
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxContexts = 16;
constexpr size_t kMaxContext = 512;
static_assert(kMaxText + kMaxContexts * (kMaxContext + 8) + 16 <= kMaxInlineMessage,
              "a failure, tags and lengths included, is a small frame");

// What the peer says when its side gave up is no reason for ours to act as if we had. A code of a
// newer version means nothing here, but that it failed.
Code code_of(uint32_t code) {
  if (code > static_cast<uint32_t>(Code::internal)) return Code::internal;
  return static_cast<Code>(code) == Code::cancelled ? Code::unavailable : static_cast<Code>(code);
}
// As calls that failed are named.
bool names_call(const std::string& context) {
  return context.starts_with("calling ") || context.starts_with("streaming ");
}
bool is_verdict(Code code) {
  return code == Code::invalid || code == Code::not_found || code == Code::exists ||
         code == Code::denied || code == Code::exhausted || code == Code::unsupported;
}
}  // namespace

std::string encode_failure(const Error& error) {
  proto::Failure failure;
  failure.set_code(static_cast<uint32_t>(error.code()));
  failure.set_message(error.message().substr(0, kMaxText));
  const auto& contexts = error.contexts();
  for (size_t i = 0; i < std::min(contexts.size(), kMaxContexts); ++i)
    failure.add_contexts(contexts[i].substr(0, kMaxContext));
  return failure.SerializeAsString();
}

Result<Error> decode_failure(Bytes payload) {
  proto::Failure failure;
  if (!failure.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return fail(Code::corrupt, "a failure that does not parse");
  Error error(code_of(failure.code()), failure.message().substr(0, kMaxText));
  const auto contexts = std::min<size_t>(kMaxContexts, failure.contexts_size());
  for (size_t i = 0; i < contexts; ++i)
    error = error.context(failure.contexts(static_cast<int>(i)).substr(0, kMaxContext));
  return error;
}

Error as_said(const Error& error) {
  const auto& contexts = error.contexts();
  const size_t count = contexts.size();
  if (count < 2 || !is_verdict(error.code()) || !names_call(contexts[count - 1]) ||
      !contexts[count - 2].starts_with("from "))
    return error;
  Error said(error.code(), error.message());
  for (size_t i = 0; i + 2 < count; ++i) said = said.context(contexts[i]);
  return said;
}

}  // namespace tutti::wire
