// Whether the next value of something may be written over the old one: only when nothing reads that
// any more.
#pragma once

#include <vector>

#include "compile/graph.h"

namespace tutti {

class Overwrite {
 public:
  explicit Overwrite(const Graph& graph);  // which must outlive it

  // By an operation; else it is an input.
  bool is_made(ValueId value) const { return made_[value] != 0; }
  // Whether the old value would still be read when the next one is written over it.
  bool is_too_early(ValueId old, ValueId next) const;

 private:
  bool repeat_is_too_early(const Node& op, ValueId old, size_t result) const;
  bool elements_are_too_early(const Node& op, ValueId old, ValueId next) const;
  // All of it or a part, in whatever order; and all of it in its own.
  bool is_view_of(ValueId value, ValueId whole) const;
  bool has_places_of(ValueId value, ValueId whole) const;

  const Graph& graph_;
  // Which operation makes a value, and which is the last to read it, counted from 1.
  std::vector<size_t> made_;
  std::vector<size_t> read_;
  std::vector<ValueId> itself_;  // of what is another's elements in another shape, that one
};

}  // namespace tutti
