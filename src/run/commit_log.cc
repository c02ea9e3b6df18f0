#include "run/commit_log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>

#include "kernels/adamw_panels.h"

namespace tutti {
namespace {

// A killed process leaves a prefix of its stores; the compiler must keep their order.
template <class T>
void publish(T& word, T value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref(word).store(value, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

int64_t blocks_of(int64_t elements) { return (elements + kCommitBlock - 1) / kCommitBlock; }

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

// Places are told from here, since memory lies elsewhere in every process.
struct alignas(64) CommitLog::Record {
  int64_t block;  // 1 + which one, when its values are whole
  int64_t step;
  int64_t elements;
  int64_t places[3];
  float values[3][kCommitBlock];
};

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
  return sizeof(Record) * static_cast<uint64_t>(threads);
}

CommitLog::CommitLog(MutableBytes records, std::span<uint32_t> done)
    : records_(records), done_(done) {}

CommitLog::Record& CommitLog::record(int thread) const {
  return reinterpret_cast<Record*>(records_.data())[thread];
}

void CommitLog::begin(int64_t step) {
  step_ = static_cast<uint32_t>(step);
  for (uint64_t i = 0; i < records_.size() / sizeof(Record); ++i) {
    Record& left = record(static_cast<int>(i));
    if (left.block == 0 || left.step != step) continue;
    uint32_t& done = done_[static_cast<size_t>(left.block - 1)];
    if (done == step_) continue;
    for (size_t part = 0; part < std::size(left.values); ++part)
      std::memcpy(reinterpret_cast<std::byte*>(&left) + left.places[part], left.values[part],
                  static_cast<size_t>(left.elements) * sizeof(float));
    publish(done, step_);
  }
}

void CommitLog::forget() {
  for (uint64_t i = 0; i < records_.size() / sizeof(Record); ++i)
    publish(record(static_cast<int>(i)).block, int64_t{0});
  std::ranges::fill(done_, 0);
}

void CommitLog::update(int thread, int64_t first_block, const AdamWStep& step,
                       const AdamWArrays& arrays) const {
  Record& mine = record(thread);
  const std::array out{arrays.weights_out, arrays.first_out, arrays.second_out};
  const auto count = static_cast<int64_t>(arrays.elements);
  for (int64_t first = 0; first < count; first += kCommitBlock) {
    const int64_t block = first_block + first / kCommitBlock;
    uint32_t& done = done_[static_cast<size_t>(block)];
    if (done == step_) continue;
    const int64_t elements = std::min(kCommitBlock, count - first);
    publish(mine.block, int64_t{0});
    adamw_update(step, {.weights_out = mine.values[0],
                        .first_out = mine.values[1],
                        .second_out = mine.values[2],
                        .weights = arrays.weights + first,
                        .first = arrays.first + first,
                        .second = arrays.second + first,
                        .gradient = arrays.gradient + first,
                        .elements = static_cast<size_t>(elements)});
    mine.step = step_;
    mine.elements = elements;
    for (size_t part = 0; part < out.size(); ++part)
      mine.places[part] = reinterpret_cast<std::byte*>(out[part] + first) -
                          reinterpret_cast<std::byte*>(&mine);
    publish(mine.block, block + 1);
    for (size_t part = 0; part < out.size(); ++part)
      std::memcpy(out[part] + first, mine.values[part],
                  static_cast<size_t>(elements) * sizeof(float));
    publish(done, step_);
  }
}

}  // namespace tutti
