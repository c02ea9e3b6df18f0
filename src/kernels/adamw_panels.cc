#include "kernels/adamw_panels.h"

#include <algorithm>

#include "base/assert.h"

namespace tutti {

void adamw_update_rows(const AdamWStep& step, const AdamWRows& rows, int64_t first_row) {
  TUTTI_ASSERT(first_row % kRowsToPack == 0, "rows are updated in whole strips");
  const AdamWArrays& all = rows.arrays;
  const int64_t end_row =
      std::min(static_cast<int64_t>(all.elements) / rows.columns, first_row + kRowsToPack);
  const int64_t first = first_row * rows.columns;
  adamw_update(step, {.weights_out = all.weights_out + first,
                      .first_out = all.first_out + first,
                      .second_out = all.second_out + first,
                      .weights = all.weights + first,
                      .first = all.first + first,
                      .second = all.second + first,
                      .gradient = all.gradient + first,
                      .elements = static_cast<size_t>((end_row - first_row) * rows.columns)});
  for (const GemmPanel& panel : rows.panels) {
    const bool turned = panel.b.column_stride != 1 || panel.n != rows.columns;
    if (!turned)
      gemm_pack_panel(panel, {first_row, end_row, 0, panel.n});
    else
      gemm_pack_panel(panel, {0, panel.k, first_row, end_row});
  }
}

void adamw_update_rows_reference(const AdamWStep& step, const AdamWRows& rows) {
  adamw_update(step, rows.arrays);
  for (const GemmPanel& panel : rows.panels) gemm_pack_panel(panel, {0, panel.k, 0, panel.n});
}

}  // namespace tutti
