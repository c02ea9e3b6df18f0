// AdamW of a matrix of weights whose panels are written while its rows are in the cache, so that no
// product packs them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/adamw.h"
#include "kernels/gemm_panel.h"

namespace tutti {

// Rows of a matrix that lie one after the other. Panels hold it, or its transpose: their b is where
// the new weights are written.
struct AdamWRows {
  AdamWArrays arrays;  // of the whole matrix
  int64_t columns;
  std::span<const GemmPanel> panels;
};

// So many rows at a time: whole strips of a transpose, and small enough for the second level.
constexpr int64_t kRowsToPack = kPanelColumns;

// Rows from a multiple of kRowsToPack on, to the next one or the last.
void adamw_update_rows(const AdamWStep& step, const AdamWRows& rows, int64_t first_row);
// Of these rows what arrays have; and their panels, from the new weights.
AdamWArrays adamw_rows(const AdamWRows& rows, int64_t first_row);
void adamw_pack_rows(const AdamWRows& rows, int64_t first_row);

// The same panels, by the definition: all rows, and then each panel as a whole.
void adamw_update_rows_reference(const AdamWStep& step, const AdamWRows& rows);

}  // namespace tutti
