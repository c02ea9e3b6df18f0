#include "run/collective_launch.h"

#include "compile/collective.h"
#include "run/pointer.h"

namespace tutti {
namespace {

CallKind kind_of(std::string_view call) {
  if (call == "shard_gather" || call == "all_gather") return CallKind::all_gather;
  if (call == "lane_reduce_scatter" || call == "reduce_scatter") return CallKind::reduce_scatter;
  return call == "all_to_all" ? CallKind::all_to_all : CallKind::all_reduce;
}

Result<void> nobody_there() {
  return fail(Code::invalid, "a program with collectives runs with other workers, and has none");
}

class CollectiveStart final : public Launch {
 public:
  explicit CollectiveStart(const Instruction& instruction)
      : slot_(static_cast<uint32_t>(instruction.attributes.get<int64_t>("slot"))),
        output_(instruction.results[0]) {
    for (const TensorRef& ref : instruction.operands) inputs_.emplace_back(ref);
    const Attributes& given = instruction.attributes;
    collective_.axis = *given.find<std::string>("axis");
    collective_.type = instruction.operands[0].type.dtype;
    collective_.site = instruction.at;
    collective_.kind = kind_of(given.get<std::string>("call"));
    if (given.get<std::string>("op") == kMaxOp) collective_.op = ReduceOp::max;
    collective_.elements = static_cast<uint64_t>(instruction.operands[0].type.elements());
    if (collective_.kind == CallKind::all_to_all)
      collective_.elements /= static_cast<uint64_t>(given.get<int64_t>("ranks"));
    collective_.output_elements = static_cast<uint64_t>(instruction.results[0].type.elements());
    if (collective_.kind == CallKind::reduce_scatter)
      for (const int64_t count : given.get<std::vector<int64_t>>("counts"))
        collective_.counts.push_back(static_cast<uint64_t>(count));
    const auto number = [&](const char* name) {
      return static_cast<uint32_t>(given.get<int64_t>(name));
    };
    collective_.lanes = {.all = number("lanes"),
                         .own = {.first = number("first"), .count = number("count")}};
  }

  Result<void> run(const LaunchCall& call) const override {
    if (call.thread != 0) return {};
    if (call.communicator == nullptr) return nobody_there();
    Collective collective = collective_;
    for (const Pointer& input : inputs_) collective.inputs.push_back(input.as<std::byte>(call));
    collective.output = output_.as<std::byte>(call);
    return call.communicator->start(slot_, collective);
  }

 private:
  uint32_t slot_;
  Collective collective_;
  std::vector<Pointer> inputs_;
  Pointer output_;
};

class CollectiveWait final : public Launch {
 public:
  explicit CollectiveWait(const Instruction& instruction)
      : slot_(static_cast<uint32_t>(instruction.attributes.get<int64_t>("slot"))) {}

  Result<void> run(const LaunchCall& call) const override {
    if (call.thread != 0) return {};
    if (call.communicator == nullptr) return nobody_there();
    return call.communicator->wait(slot_);
  }

 private:
  uint32_t slot_;
};

}  // namespace

std::unique_ptr<Launch> make_collective_launch(const Instruction& instruction) {
  if (instruction.kernel == Kernel::collective_start)
    return std::make_unique<CollectiveStart>(instruction);
  return std::make_unique<CollectiveWait>(instruction);
}

}  // namespace tutti
