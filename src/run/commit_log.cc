#include "run/commit_log.h"

#include <algorithm>

#include "kernels/adamw_panels.h"

namespace tutti {
namespace {

int64_t blocks_of(int64_t elements) { return (elements + kMarkedBlock - 1) / kMarkedBlock; }

int64_t blocks_of(const Program& program, const Instruction& update) {
  const int64_t elements = update.operands[0].type.elements();
  if (update.panels.empty()) return blocks_of(elements);
  const TensorRef& matrix = program.panels[update.panels[0]];
  const int64_t columns = matrix.type.dims[matrix.strides[1] == 1 ? 1 : 0].size;
  const int64_t rows = matrix.type.elements() / columns;
  const int64_t strips = (rows + kRowsToPack - 1) / kRowsToPack;
  return elements / matrix.type.elements() * strips * blocks_of(kRowsToPack * columns);
}

}  // namespace

int64_t first_commit_block(const Program& program, size_t index) {
  int64_t blocks = 0;
  for (size_t i = 0; i < index; ++i) {
    const Instruction& each = program.instructions[i];
    if (each.kernel == Kernel::adamw) blocks += blocks_of(program, each);
  }
  return blocks;
}

int64_t commit_blocks(const Program& program) {
  return first_commit_block(program, program.instructions.size());
}

uint64_t CommitLog::record_bytes(int threads) {
  return sizeof(AdamWRecord) * static_cast<uint64_t>(threads);
}

CommitLog::CommitLog(MutableBytes records, std::span<uint32_t> done)
    : records_(reinterpret_cast<AdamWRecord*>(records.data()),
               records.size() / sizeof(AdamWRecord)),
      done_(done) {}

void CommitLog::begin(int64_t step) {
  step_ = static_cast<uint32_t>(step);
  for (AdamWRecord& left : records_) adamw_restore(left, done_.data(), step_);
}

void CommitLog::forget() {
  for (AdamWRecord& left : records_) left.block = 0;
  std::ranges::fill(done_, 0);
}

void CommitLog::update(int thread, int64_t first_block, const AdamWStep& step,
                       const AdamWArrays& arrays) const {
  adamw_update_marked(step, arrays,
                      {.record = &records_[static_cast<size_t>(thread)],
                       .done = done_.data(),
                       .first_block = first_block,
                       .step = step_});
}

}  // namespace tutti
