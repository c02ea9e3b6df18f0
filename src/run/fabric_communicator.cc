#include "run/fabric_communicator.h"

#include <algorithm>

#include "base/assert.h"

namespace tutti {

Result<void> FabricCommunicator::start(uint32_t slot, const Collective& collective) {
  const auto group = groups_.find(collective.axis);
  if (group == groups_.end())
    return fail(Code::invalid, "the mesh has no axis '{}'", collective.axis);
  Call call{.kind = collective.kind,
            .type = collective.type,
            .op = collective.op,
            .elements = collective.elements,
            .output = collective.output,
            .output_elements = collective.output_elements,
            .counts = collective.counts,
            .site = std::string(collective.site)};
  if (collective.lanes.all != 0) {
    const auto nodes = whole_nodes(collective.lanes.own, collective.lanes.all);
    TUTTI_ASSERT(nodes.size() == collective.inputs.size(), "every node of the lanes has its sum");
    call.lanes = collective.lanes.all;
    for (size_t i = 0; i < nodes.size(); ++i)
      call.parts.push_back({.lanes = nodes[i], .input = collective.inputs[i]});
  } else {
    call.input = collective.inputs.empty() ? nullptr : collective.inputs[0];
  }
  if (slot >= under_way_.size()) under_way_.resize(slot + 1);
  TRY(auto operation, group->second->start(std::move(call)));
  under_way_[slot] = {.group = group->second.get(), .operation = std::move(operation)};
  return {};
}

Result<void> FabricCommunicator::wait(uint32_t slot) {
  TUTTI_ASSERT(slot < under_way_.size() && under_way_[slot].operation != nullptr,
               "only what was begun is waited for");
  const UnderWay its = std::exchange(under_way_[slot], {});
  const Instant start = clock_.now();
  auto done = its.group->wait(*its.operation);
  waited_ += clock_.now() - start;
  return done;
}

}  // namespace tutti
