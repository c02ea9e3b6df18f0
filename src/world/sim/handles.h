// The open things of one simulated host, by number. A thing stays open while any number, process
// or packet in flight refers to it.
#pragma once

#include <memory>
#include <vector>

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
  void close_handle(int number) override;
  void clear() { std::vector<Entry>().swap(things_); }
  size_t size() const { return things_.size(); }

 private:
  // A few for each of many hosts: small, in the order of their numbers.
  struct Entry {
    std::shared_ptr<void> thing;
    int number;
    bool is_stream;
  };
  std::vector<Entry>::const_iterator at(int number) const;
  std::vector<Entry> things_;
  int next_ = 3;  // numbers are not used twice, so that a stale one is found out
};

}  // namespace tutti
