#include "wire/failure.h"

#include <algorithm>

#include "wire/wire.pb.h"

namespace tutti::wire {

namespace {
// A message a person can read; with the contexts it stays below one frame.
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxContexts = 16;
}  // namespace

std::string encode_failure(const Error& error) {
  proto::Failure failure;
  failure.set_code(static_cast<uint32_t>(error.code()));
  failure.set_message(error.message().substr(0, kMaxText));
  const auto& contexts = error.contexts();
  for (size_t i = 0; i < std::min(contexts.size(), kMaxContexts); ++i)
    failure.add_contexts(contexts[i].substr(0, kMaxText));
  return failure.SerializeAsString();
}

Result<Error> decode_failure(Bytes payload) {
  proto::Failure failure;
  if (!failure.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return fail(Code::corrupt, "a failure that does not parse");
  // A code of a newer version means nothing here, but that it failed.
  const bool known = failure.code() <= static_cast<uint32_t>(Code::internal);
  Error error(known ? static_cast<Code>(failure.code()) : Code::internal, failure.message());
  for (const std::string& context : failure.contexts()) error = error.context(context);
  return error;
}

}  // namespace tutti::wire
