// The choice of packing: weights that products with few rows read again and again before they
// change stay packed, as panels that a device keeps beside a program's memory. They are derived
// data: made of the states when a program first runs, and written anew where AdamW updates the
// weights.
//
//   panel 0: up.weight:f32[row=4, column=8]
//   gemm (x, up.weight) -> arena+0 with panel 0
//   adamw (up.weight, …) -> up.weight', … into panel 0
//
// A panel takes as much memory as its weights, and products with it have the same bits.
#pragma once

#include <cstdint>

#include "compile/program/program.h"

namespace tutti {

struct PackingOptions {
  // Nobody changes states between runs: weights that are only read, as those of a decoder.
  bool constant_states = false;
  int64_t most_bytes = INT64_MAX;  // of all panels
};

// Makes panels of weights, the ones that save most for their memory first, and schedules anew.
void choose_packing(Program& program, const PackingOptions& options);

int64_t panel_bytes(const Program& program);

}  // namespace tutti
