// A cluster for one `tutti run` of a job file, or one `tutti train` of several workers, on a
// machine without one: a head and an agent, as children of this process, in a folder of their own
// under /tmp. All of it ends with this process, however that ends: the kernel tells both, the
// agent's keepers end what they keep when their agent is gone, and the head removes the folder.
#pragma once

#include <memory>

#include "cli/cluster.h"
#include "cluster/job.pb.h"
#include "world/real/real_world.h"

namespace tutti::cli {

class EmbeddedCluster {
 public:
  // With room for the job; ready to be asked.
  static Result<std::unique_ptr<EmbeddedCluster>> start(RealWorld& world, const job::Spec& spec);
  ~EmbeddedCluster();
  EmbeddedCluster(const EmbeddedCluster&) = delete;
  EmbeddedCluster& operator=(const EmbeddedCluster&) = delete;

  const Home& home() const { return home_; }

 private:
  explicit EmbeddedCluster(Home home) : home_(std::move(home)) {}

  Home home_;
};

}  // namespace tutti::cli
