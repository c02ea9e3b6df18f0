// Reports of many hosts as one: rows that say the same of different processes become one row.
#pragma once

#include "cluster/cluster.pb.h"

namespace tutti {

void fold_rows(cluster::JobReport& report);

}  // namespace tutti
