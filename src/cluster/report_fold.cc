#include "cluster/report_fold.h"

#include <algorithm>
#include <map>
#include <string>

#include "cluster/job_layout.h"

namespace tutti {

void fold_rows(cluster::JobReport& report) {
  struct Folded {
    cluster::Row row;
    RangeSet processes;
    RangeSet hosts;
  };
  // By what is left of a row without its sets; in the order of the bytes, the same everywhere.
  std::map<std::string, Folded> rows;
  for (cluster::Row& row : *report.mutable_rows()) {
    auto processes = set_from(row.processes());
    auto hosts = set_from(row.hosts());
    if (!processes || !hosts) continue;
    row.clear_processes();
    row.clear_hosts();
    Folded& folded = rows[row.SerializeAsString()];
    folded.row = std::move(row);
    folded.processes.add(*processes);
    folded.hosts.add(*hosts);
  }
  report.clear_rows();
  for (auto& [key, folded] : rows) {
    cluster::Row& row = *report.add_rows();
    row = std::move(folded.row);
    set_pairs(folded.processes, row.mutable_processes());
    set_pairs(folded.hosts, row.mutable_hosts());
  }
}

void remove_hosts(const RangeSet& hosts, google::protobuf::RepeatedPtrField<cluster::Row>& rows) {
  for (cluster::Row& row : rows) {
    const RangeSet left = set_from(row.hosts()).value_or(RangeSet()).minus(hosts);
    set_pairs(left, row.mutable_hosts());
  }
  const auto gone =
      std::ranges::remove_if(rows, [](const auto& row) { return row.hosts().empty(); });
  rows.erase(gone.begin(), gone.end());
}

RangeSet hosts_of(const google::protobuf::RepeatedPtrField<cluster::Row>& rows) {
  RangeSet hosts;
  for (const cluster::Row& row : rows) hosts.add(set_from(row.hosts()).value_or(RangeSet()));
  return hosts;
}

}  // namespace tutti
