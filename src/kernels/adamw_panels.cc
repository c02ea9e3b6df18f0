#include "kernels/adamw_panels.h"

#include <algorithm>

#include "base/assert.h"

namespace tutti {

namespace {

int64_t end_of(const AdamWRows& rows, int64_t first_row) {
  return std::min(static_cast<int64_t>(rows.arrays.elements) / rows.columns,
                  first_row + kRowsToPack);
}

}  // namespace

void adamw_update_rows(const AdamWStep& step, const AdamWRows& rows, int64_t first_row) {
  adamw_update(step, adamw_rows(rows, first_row));
  adamw_pack_rows(rows, first_row);
}

AdamWArrays adamw_rows(const AdamWRows& rows, int64_t first_row) {
  TUTTI_ASSERT(first_row % kRowsToPack == 0, "rows are updated in whole strips");
  const AdamWArrays& all = rows.arrays;
  const int64_t first = first_row * rows.columns;
  return {.weights_out = all.weights_out + first,
          .first_out = all.first_out + first,
          .second_out = all.second_out + first,
          .weights = all.weights + first,
          .first = all.first + first,
          .second = all.second + first,
          .gradient = all.gradient + first,
          .elements = static_cast<size_t>((end_of(rows, first_row) - first_row) * rows.columns)};
}

void adamw_pack_rows(const AdamWRows& rows, int64_t first_row) {
  const int64_t end_row = end_of(rows, first_row);
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
