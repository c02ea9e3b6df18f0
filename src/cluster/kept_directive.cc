#include "cluster/kept_directive.h"

#include "base/assert.h"

namespace tutti {

KeptDirective::KeptDirective(AlikePool& pool, cluster::Directive directive)
    : bytes_(pool, as_bytes(directive.SerializeAsString())),
      epoch_(directive.epoch()),
      revision_(directive.revision()),
      open_(std::make_unique<Open>(std::move(directive))) {}

const KeptDirective::Open& KeptDirective::open() const {
  if (open_ == nullptr) {
    cluster::Directive directive;
    const bool parsed = directive.ParseFromString(bytes_.text());
    TUTTI_ASSERT(parsed, "these are bytes of our own making");
    open_ = std::make_unique<Open>(std::move(directive));
  }
  return *open_;
}

}  // namespace tutti
