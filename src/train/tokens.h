// Text as numbers: files of tokens, read where they lie, and the batches that are made of them.
//
// Files are nanoGPT's (u16, nothing else), llm.c's (a header of 256 i32, then u16 or u32), or
// memory. What a batch is follows from the seed and the step alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/batch_source.h"
#include "world/disk.h"

namespace tutti {

class Tokens {
 public:
  static Tokens of(std::vector<uint16_t> tokens, std::string name);
  static Tokens of(std::vector<uint32_t> tokens, std::string name);

  // Some of them, where they lie.
  Tokens part(uint64_t first, uint64_t count) const;

  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }
  uint32_t operator[](uint64_t index) const {
    return wide_ ? load_le<uint32_t>(data_ + 4 * index) : load_le<uint16_t>(data_ + 2 * index);
  }
  // Some of them, in order; Code::invalid when one is not below `vocabulary`.
  Result<void> read(uint64_t first, std::span<int32_t> into, uint32_t vocabulary) const;

 private:
  friend Task<Result<std::shared_ptr<const Tokens>>> open_tokens(Disk& disk, std::string path);
  Result<void> find_format(Bytes file);

  std::string name_;
  uint64_t size_ = 0;
  bool wide_ = false;  // u32
  uint64_t header_bytes_ = 0;
  uint64_t first_ = 0;  // of a part, in the whole
  const std::byte* data_ = nullptr;
  std::shared_ptr<void> keep_;  // what the data lie in
};

Task<Result<std::shared_ptr<const Tokens>>> open_tokens(Disk& disk, std::string path);

enum class SampleOrder : uint8_t {
  random,       // windows that begin anywhere
  consecutive,  // one after the other, from the first to the last, and again
};

struct TokenBatchOptions {
  uint64_t seed = 0;
  uint32_t vocabulary = 0;
  SampleOrder order = SampleOrder::random;
};

// Fills "tokens" and "targets", which are the tokens one further on: i32[…, time]. All dimensions
// but the last count samples, in their order. And a model's own random numbers, if it has any.
class TokenBatches final : public BatchSource {
 public:
  TokenBatches(std::shared_ptr<const Tokens> tokens, TokenBatchOptions options)
      : tokens_(std::move(tokens)), options_(options) {}

  Result<void> check(const std::vector<BatchTensor>& inputs) const override;
  Result<void> fill(uint64_t steps_done, const std::vector<BatchTensor>& inputs) override;
  // Where a sample of a step begins.
  uint64_t start_of(uint64_t steps_done, uint64_t sample, uint64_t samples, uint64_t time) const;

 private:
  std::shared_ptr<const Tokens> tokens_;
  TokenBatchOptions options_;
};

}  // namespace tutti
