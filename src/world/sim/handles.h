// The open things of one simulated host, by number. A thing stays open while any number, process
// or packet in flight refers to it.
#pragma once

#include <map>
#include <memory>

#include "base/result.h"
#include "world/handle.h"

namespace tutti {

class SimStream;
class Arena;

// One of the two.
struct OpenThing {
  std::shared_ptr<SimStream> stream;
  std::shared_ptr<Arena> arena;
};

class SimHandles final : public HandleTable {
 public:
  Handle add(OpenThing thing);
  // What the handle refers to; the handle stays open.
  Result<OpenThing> find(const Handle& handle) const;
  Handle duplicate(const Handle& handle);  // closed when the handle is unknown
  void close_handle(int number) override { things_.erase(number); }
  void clear() { things_.clear(); }
  size_t size() const { return things_.size(); }

 private:
  std::map<int, OpenThing> things_;
  int next_ = 3;  // numbers are not used twice, so that a stale one is found out
};

}  // namespace tutti
