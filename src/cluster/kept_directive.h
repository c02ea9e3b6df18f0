// A directive that a host has for as long as its job runs, and hardly ever looks into: kept as the
// bytes of the message, and taken apart when somebody asks. A simulation has a million of them, all
// alike.
#pragma once

#include <memory>
#include <string>

#include "base/alike.h"
#include "cluster/cluster.pb.h"
#include "cluster/job_layout.h"

namespace tutti {

class KeptDirective {
 public:
  KeptDirective() = default;
  KeptDirective(AlikePool& pool, cluster::Directive directive);

  bool empty() const { return bytes_.empty(); }  // there was none yet
  uint64_t epoch() const { return epoch_; }
  uint32_t revision() const { return revision_; }

  // These are good until it is folded or replaced.
  const cluster::Directive& get() const { return open().directive; }
  const JobNumbers& numbers() const { return open().numbers; }

  // Before a long wait: only the bytes stay.
  void fold() { open_.reset(); }

 private:
  struct Open {
    explicit Open(cluster::Directive taken)
        : directive(std::move(taken)), numbers(directive.spec()) {}
    cluster::Directive directive;
    JobNumbers numbers;
  };
  const Open& open() const;

  AlikeBytes bytes_;
  uint64_t epoch_ = 0;
  uint32_t revision_ = 0;
  mutable std::unique_ptr<Open> open_;
};

}  // namespace tutti
