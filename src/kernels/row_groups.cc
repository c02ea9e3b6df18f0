#include "kernels/row_groups.h"

#include <cstring>

#include "kernels/scalar.h"
#include "kernels/share.h"

namespace tutti {

void join_row_groups(const RowGroupSums& given, int thread, int threads) {
  const Part part = part_of(given.columns, thread, threads, kLanes);
  const auto count = static_cast<size_t>(part.end - part.first);
  if (count == 0) return;
  for (int64_t step = 1; step < given.groups; step *= 2)
    for (int64_t group = 0; group + step < given.groups; group += 2 * step) {
      float* left = given.sums + group * given.row_stride + part.first;
      const float* right = left + step * given.row_stride;
      for (size_t i = 0; i < count; ++i) left[i] += right[i];
    }
  if (given.groups == 0)
    std::memset(given.total + part.first, 0, count * sizeof(float));
  else
    std::memcpy(given.total + part.first, given.sums + part.first, count * sizeof(float));
}

}  // namespace tutti
