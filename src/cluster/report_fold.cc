#include "cluster/report_fold.h"

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

}  // namespace tutti
