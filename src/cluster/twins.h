// Whether two agents say that they are one host. Each parent in the tree tells the head who has
// come to hang below it, by the name of its certificate; one that is known to hang elsewhere as
// another instance, and is still there, has a twin, and the newer of the two has to go. Pure
// bookkeeping: the head sends and hears.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cluster/head.pb.h"
#include "cluster/job_layout.h"

namespace tutti {

// What the newer of two is told.
Error twin_error();

class Twins {
 public:
  // Somebody has come. Gives whom the same node was before, if that was another instance: whoever
  // had it below must be asked whether it is still there.
  std::optional<cluster::Hanging> came(const cluster::Hanging& newer);
  // The older one is still there. Gives who has to be expelled, if it came meanwhile.
  std::optional<cluster::Hanging> is_there(const cluster::Hanging& older);
  // Whether we know this node to be another instance.
  bool is_another(NodeId node, uint64_t instance) const;
  // One was refused, at any time.
  void note(const std::string& name, int64_t now_unix_ns);

  // Those of the last minutes, by name.
  std::vector<cluster::Twin> recent(int64_t now_unix_ns) const;

 private:
  std::map<NodeId, cluster::Hanging> known_;  // the newest of each node
  std::map<std::string, cluster::Twin> seen_;
};

}  // namespace tutti
