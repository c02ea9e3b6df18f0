#include "run/adamw_launch.h"

#include <array>

#include "base/assert.h"
#include "kernels/adamw_panels.h"
#include "run/pointer.h"

namespace tutti {
namespace {

// A matrix of weights and its transpose.
constexpr size_t kMostPanels = 2;

class AdamWLaunch : public Launch {
 public:
  AdamWLaunch(const Program& program, const Instruction& instruction)
      : options_{.beta1 = instruction.attributes.get<double>("beta1"),
                 .beta2 = instruction.attributes.get<double>("beta2"),
                 .epsilon = instruction.attributes.get<double>("epsilon"),
                 .weight_decay = instruction.attributes.get<double>("decay")},
        elements_(instruction.operands[0].type.elements()),
        first_block_(first_commit_block(
            program, static_cast<size_t>(&instruction - program.instructions.data()))) {
    for (const auto* refs : {&instruction.operands, &instruction.results})
      for (const TensorRef& ref : *refs) places_.emplace_back(ref);
  }

  Result<void> run(const LaunchCall& call) const override {
    const Part part = part_of(elements_, call.thread, call.threads, 16 * kMarkedBlock);
    update(call, part.first / kMarkedBlock, step(call),
           arrays(call, part.first, part.end - part.first));
    return {};
  }

 protected:
  // Blocks are counted from the first of this instruction.
  void update(const LaunchCall& call, int64_t block, const AdamWStep& step,
              const AdamWArrays& arrays) const {
    if (call.commit == nullptr) return adamw_update(step, arrays);
    call.commit->update(call.thread, first_block_ + block, step, arrays);
  }
  AdamWStep step(const LaunchCall& call) const {
    AdamW given = options_;
    given.learning_rate = *places_[5].as<const float>(call);
    const auto number = static_cast<uint64_t>(*places_[6].as<const int64_t>(call));
    return adamw_step(given, number, *places_[4].as<const float>(call));
  }
  AdamWArrays arrays(const LaunchCall& call, int64_t first, int64_t count) const {
    return {.weights_out = places_[7].as<float>(call) + first,
            .first_out = places_[8].as<float>(call) + first,
            .second_out = places_[9].as<float>(call) + first,
            .weights = places_[0].as<const float>(call) + first,
            .first = places_[1].as<const float>(call) + first,
            .second = places_[2].as<const float>(call) + first,
            .gradient = places_[3].as<const float>(call) + first,
            .elements = static_cast<size_t>(count)};
  }
  int64_t elements() const { return elements_; }

 private:
  AdamW options_;
  int64_t elements_;
  int64_t first_block_;
  std::vector<Pointer> places_;
};

// Matrix by matrix, some rows at a time, in turns.
class PackedAdamWLaunch final : public AdamWLaunch {
 public:
  PackedAdamWLaunch(const Program& program, const Instruction& instruction,
                    std::span<float* const> panels)
      : AdamWLaunch(program, instruction) {
    const TensorRef& one = program.panels[instruction.panels[0]];
    columns_ = one.type.dims[one.strides[1] == 1 ? 1 : 0].size;
    floats_ = one.type.elements();
    matrices_.resize(static_cast<size_t>(elements() / floats_));
    for (const uint32_t index : instruction.panels) {
      const TensorRef& ref = program.panels[index];
      std::vector<GemmPanel>& its = matrices_[static_cast<size_t>(ref.offset / floats_)];
      its.push_back({.b = {nullptr, ref.strides[0], ref.strides[1]},
                     .n = ref.type.dims[1].size,
                     .k = ref.type.dims[0].size,
                     .packed = panels[index]});
      TUTTI_ASSERT(its.size() <= kMostPanels, "weights are read in two ways");
    }
  }

  Result<void> run(const LaunchCall& call) const override {
    const AdamWStep common = step(call);
    const int64_t parts = (floats_ / columns_ + kRowsToPack - 1) / kRowsToPack;
    const auto count = static_cast<int64_t>(matrices_.size());
    const int64_t blocks_of_strip = (kRowsToPack * columns_ + kMarkedBlock - 1) / kMarkedBlock;
    for (int64_t turn = call.turns->take(); turn < parts * count; turn = call.turns->take()) {
      const int64_t matrix = turn / parts;
      const auto& panels = matrices_[static_cast<size_t>(matrix)];
      const AdamWArrays all = arrays(call, matrix * floats_, floats_);
      std::array<GemmPanel, kMostPanels> placed{};
      std::ranges::copy(panels, placed.begin());
      for (GemmPanel& panel : placed) panel.b.data = all.weights_out;
      const AdamWRows rows{
          .arrays = all, .columns = columns_, .panels = std::span(placed).first(panels.size())};
      const int64_t first_row = turn % parts * kRowsToPack;
      update(call, turn * blocks_of_strip, common, adamw_rows(rows, first_row));
      adamw_pack_rows(rows, first_row);
    }
    return {};
  }

 private:
  int64_t columns_ = 0;
  int64_t floats_ = 0;  // of a matrix
  std::vector<std::vector<GemmPanel>> matrices_;
};

}  // namespace

std::unique_ptr<Launch> make_adamw_launch(const Program& program, const Instruction& instruction,
                                          std::span<float* const> panels) {
  if (instruction.panels.empty() || panels[instruction.panels[0]] == nullptr)
    return std::make_unique<AdamWLaunch>(program, instruction);
  return std::make_unique<PackedAdamWLaunch>(program, instruction, panels);
}

}  // namespace tutti
