// A job of the cluster, run as `tutti run` runs a gang: its output here, and a verdict at its end.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster.h"
#include "cli/gang_printer.h"
#include "cli/run_options.h"
#include "cluster/job_layout.h"
#include "world/channel.h"

namespace tutti::cli {

// The job of these options: one gang that ends as one, or what the job file says.
Task<Result<job::Spec>> make_job(World& world, RunOptions options, uint64_t open_files);

// The same of a job file that was read already. Where it does not say, the job is in that folder.
Result<job::Spec> make_job_of_text(World& world, std::string_view text, std::string_view file_name,
                                   const RunOptions& options, uint64_t open_files);

// "worker 3" for each process; none for a job of one gang, whose processes are its ranks.
std::vector<std::string> process_labels(const job::Spec& spec);

// Signals as for run_gang(); one more than it heeds leaves the job to itself.
Task<GangReport> run_on_cluster(Cluster& cluster, job::Spec spec, JobViewer& viewer,
                                Channel<int>& signals);

// As above, of a job that is there already, running or over: its output from the beginning, as far
// as its hosts have it.
Task<GangReport> watch_on_cluster(Cluster& cluster, cluster::JobInfo job, JobViewer& viewer,
                                  Channel<int>& signals);

}  // namespace tutti::cli
