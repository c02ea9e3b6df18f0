// Sums over rows, in one order whatever the number of threads: rows in order within groups of a
// fixed size, and groups joined by the tree of fabric/fold_tree.h.
//
// Two phases, with a barrier of the caller's between them: every thread writes the sums of its
// groups; then every thread joins its columns.
#pragma once

#include <cstdint>

namespace tutti {

// Few enough for threads to share the rows of a small batch, and enough that sums of groups are
// little beside what they were summed from.
constexpr int64_t kRowsPerGroup = 64;

constexpr int64_t row_groups(int64_t rows) { return (rows + kRowsPerGroup - 1) / kRowsPerGroup; }

// sums[groups][columns], which it uses up, to total[columns]; zeros when there are no groups.
struct RowGroupSums {
  float* sums;
  int64_t groups;
  int64_t row_stride;  // of `sums`
  int64_t columns;
  float* total;
};
void join_row_groups(const RowGroupSums& given, int thread, int threads);

}  // namespace tutti
