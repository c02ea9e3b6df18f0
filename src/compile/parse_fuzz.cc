// Any bytes: parsing never crashes, and what it accepts prints as text that reads back.
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "compile/parse.h"
#include "compile/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto graph = tutti::parse_graph({reinterpret_cast<const char*>(data), size});
  if (!graph || !tutti::verify(*graph)) return 0;
  const auto again = tutti::parse_graph(graph->text());
  TUTTI_ASSERT(again && again->text() == graph->text(), "a graph reads back from its text");
  return 0;
}
