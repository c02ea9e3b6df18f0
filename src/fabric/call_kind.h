// What a group of ranks can be asked for.
#pragma once

#include <cstdint>
#include <string_view>

#include "fabric/dtype.h"

namespace tutti {

enum class CallKind : uint8_t {
  none,
  barrier,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  gather,
  scatter,
  shift,
  reshard,
  done,  // this rank's part of the call before is done
};
constexpr int kCallKinds = 12;

constexpr std::string_view call_kind_name(CallKind kind) {
  constexpr std::string_view names[] = {"nothing",    "barrier",   "all_reduce", "reduce_scatter",
                                        "all_gather", "broadcast", "all_to_all", "gather",
                                        "scatter",    "shift",     "reshard",    "done"};
  return names[static_cast<int>(kind)];
}
// Whether a reduction's op counts.
constexpr bool reduces(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter;
}

}  // namespace tutti
