// Where a step's data come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "compile/type.h"

namespace tutti {

// An input of a step's program, and its memory.
struct BatchTensor {
  std::string name;
  Type type;
  std::byte* data = nullptr;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Whether these are inputs that it can fill; told before the first step.
  virtual Result<void> check(const std::vector<BatchTensor>& inputs) const = 0;
  // Writes the data of the step that comes after so many. A function of that number and of what the
  // source was made with, whoever asks, and in which order. May be called by any thread, by one at
  // a time.
  virtual Result<void> fill(uint64_t steps_done, const std::vector<BatchTensor>& inputs) = 0;
};

}  // namespace tutti
