#include "world/sim/handles.h"

#include <algorithm>

namespace tutti {

namespace {
constexpr size_t kFew = 16;  // so many take no more room than they need
}

Handle SimHandles::add(OpenThing thing) {
  const int number = next_++;
  const bool is_stream = thing.stream != nullptr;
  if (things_.size() < kFew) things_.reserve(things_.size() + 1);
  if (is_stream) {
    things_.push_back({std::move(thing.stream), number, true});
  } else {
    things_.push_back({std::move(thing.arena), number, false});
  }
  return {number, *this};
}

std::vector<SimHandles::Entry>::const_iterator SimHandles::at(int number) const {
  const auto found = std::ranges::lower_bound(things_, number, {}, &Entry::number);
  return found != things_.end() && found->number == number ? found : things_.end();
}

Result<OpenThing> SimHandles::find(const Handle& handle) const {
  const auto found = at(handle.number());
  if (found == things_.end())
    return fail(Code::invalid, "handle {} is not open on this host", handle.number());
  if (found->is_stream)
    return OpenThing{.stream = std::static_pointer_cast<SimStream>(found->thing)};
  return OpenThing{.arena = std::static_pointer_cast<Arena>(found->thing)};
}

void SimHandles::close_handle(int number) {
  const auto found = at(number);
  if (found == things_.end()) return;
  const std::shared_ptr<void> dies_last = found->thing;
  things_.erase(found);
}

Handle SimHandles::duplicate(const Handle& handle) {
  auto thing = find(handle);
  return thing ? add(std::move(*thing)) : Handle();
}

}  // namespace tutti
