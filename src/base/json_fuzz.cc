// Any bytes: parsing never crashes, and what it accepts survives printing and parsing again.
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = tutti::parse_json({reinterpret_cast<const char*>(data), size});
  if (!value) return 0;
  const auto again = tutti::parse_json(tutti::dump_json(*value));
  TUTTI_ASSERT(again && *again == *value, "a value reads back from its text");
  return 0;
}
