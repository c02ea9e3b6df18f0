// Where a step's data come from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "compile/type.h"

namespace tutti {

// Which of a step's atoms a worker has.
struct AtomShare {
  int64_t first = 0;
  int64_t of = 1;
};

// An input of a step's program, and its memory. Of a worker's share of many atoms it has a first
// dimension, the atoms that are its own.
struct BatchTensor {
  std::string name;
  Type type;
  std::byte* data = nullptr;
  std::optional<AtomShare> share = std::nullopt;  // without: all of the step
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Whether these are inputs that it can fill; told before the first step.
  virtual Result<void> check(const std::vector<BatchTensor>& inputs) const = 0;
  // Writes the data of the step that comes after so many. A function of that number, of the share
  // of the step, and of what the source was made with, whoever asks, and in which order. May be
  // called by any thread, by one at a time.
  virtual Result<void> fill(uint64_t steps_done, const std::vector<BatchTensor>& inputs) = 0;
};

}  // namespace tutti
