// Any bytes: they are refused with words, or are a job that keeps the rules and can be started.
#include <cstddef>
#include <cstdint>

#include "cluster/job_file.h"
#include "cluster/role_order.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed =
      tutti::parse_job_file({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
  if (!parsed) {
    if (parsed.error().text().empty()) __builtin_trap();
    return 0;
  }
  if (!tutti::check_job(*parsed)) __builtin_trap();
  if (!tutti::needs_cycle(*parsed).empty()) __builtin_trap();
  return 0;
}
