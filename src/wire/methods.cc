#include "wire/methods.h"

#include <algorithm>
#include <vector>

#include "wire/failure.h"
#include "wire/incoming_call.h"

namespace tutti::wire {

namespace {
// Enough for a person to see what is there; a failure frame is bounded.
constexpr size_t kMaxNamesShown = 40;
}  // namespace

void Methods::add_handler(uint64_t id, std::unique_ptr<Handler> handler) {
  const bool added = handlers_.emplace(id, std::move(handler)).second;
  TUTTI_ASSERT(added, "two methods have the same name, or names with the same hash: rename one");
}

const Handler* Methods::find(uint64_t id) const {
  const auto found = handlers_.find(id);
  return found == handlers_.end() ? nullptr : found->second.get();
}

std::string Methods::names() const {
  std::vector<std::string_view> names;
  for (const auto& [id, handler] : handlers_) names.push_back(handler->name());
  std::ranges::sort(names);
  const bool cut = names.size() > kMaxNamesShown;
  if (cut) names.resize(kMaxNamesShown);
  return names.empty() ? "no methods"
                       : fmt::format("{}{}", fmt::join(names, ", "), cut ? ", …" : "");
}

namespace detail {

CallContext& context_of(IncomingCall& call) { return call.context(); }
StreamExchange& exchange_of(IncomingCall& call) { return call; }

Task<void> finish_call(IncomingCall& call, const MessageRef* reply, const Error* error) {
  if (error == nullptr) {
    auto sent = co_await call.reply(*reply);
    call.finish(std::move(sent));
    co_return;
  }
  const Blob failure = Blob::copy_of(as_bytes(encode_failure(*error)));
  auto told = co_await call.refuse(failure);
  call.finish(told ? Result<void>() : fail(*error));
}

}  // namespace detail

}  // namespace tutti::wire
