// Reports of many hosts as one: rows that say the same of different processes become one row.
#pragma once

#include "cluster/cluster.pb.h"

namespace tutti {

void fold_rows(cluster::JobReport& report);

// Hosts have nothing of the job any more, and need no answer.
inline bool says_ended(const cluster::Row& row) {
  return row.what() == cluster::Row::ENDED || row.what() == cluster::Row::LEFT_BEHIND;
}

}  // namespace tutti
