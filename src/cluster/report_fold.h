// Reports of many hosts as one: rows that say the same of different processes become one row.
#pragma once

#include "base/range_set.h"
#include "cluster/cluster.pb.h"

namespace tutti {

void fold_rows(cluster::JobReport& report);

// Takes hosts out of rows; a row without any is gone.
void remove_hosts(const RangeSet& hosts, google::protobuf::RepeatedPtrField<cluster::Row>& rows);
// Of all rows.
RangeSet hosts_of(const google::protobuf::RepeatedPtrField<cluster::Row>& rows);

// Hosts have nothing of the job any more, and need no answer.
inline bool says_ended(const cluster::Row& row) {
  return row.what() == cluster::Row::ENDED || row.what() == cluster::Row::LEFT_BEHIND;
}

}  // namespace tutti
