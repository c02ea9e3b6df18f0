#include "world/sim/handles.h"

namespace tutti {

Handle SimHandles::add(OpenThing thing) {
  const int number = next_++;
  things_.emplace(number, std::move(thing));
  return {number, *this};
}

Result<OpenThing> SimHandles::find(const Handle& handle) const {
  auto found = things_.find(handle.number());
  if (found == things_.end())
    return fail(Code::invalid, "handle {} is not open on this host", handle.number());
  return found->second;
}

Handle SimHandles::duplicate(const Handle& handle) {
  auto thing = find(handle);
  return thing ? add(std::move(*thing)) : Handle();
}

}  // namespace tutti
