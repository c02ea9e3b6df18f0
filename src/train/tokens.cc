#include "train/tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "base/hash.h"
#include "base/philox.h"
#include "compile/model.h"

namespace tutti {
namespace {

// llm.c's, see its dataloader: i32 words of which the first three say what it is.
constexpr uint64_t kHeaderBytes = 1024;
constexpr int32_t kMagic16 = 20240520;
constexpr int32_t kVersion16 = 1;
constexpr int32_t kMagic32 = 20240801;
constexpr int32_t kVersion32 = 7;
// Files with no more tokens are looked through before the first step.
constexpr uint64_t kCheckedAtOnce = 16 << 20;

const BatchTensor* find(const std::vector<BatchTensor>& inputs, std::string_view name) {
  const auto found = std::ranges::find(inputs, name, &BatchTensor::name);
  return found == inputs.end() ? nullptr : &*found;
}

template <class T>
std::pair<std::shared_ptr<void>, const std::byte*> kept(std::vector<T> tokens) {
  auto all = std::make_shared<std::vector<T>>(std::move(tokens));
  const auto* data = reinterpret_cast<const std::byte*>(all->data());
  return {std::move(all), data};
}

}  // namespace

Tokens Tokens::of(std::vector<uint16_t> tokens, std::string name) {
  Tokens made;
  made.name_ = std::move(name);
  made.size_ = tokens.size();
  std::tie(made.keep_, made.data_) = kept(std::move(tokens));
  return made;
}

Tokens Tokens::of(std::vector<uint32_t> tokens, std::string name) {
  Tokens made;
  made.name_ = std::move(name);
  made.size_ = tokens.size();
  made.wide_ = true;
  std::tie(made.keep_, made.data_) = kept(std::move(tokens));
  return made;
}

Tokens Tokens::part(uint64_t first, uint64_t count) const {
  TUTTI_ASSERT(first <= size_ && count <= size_ - first, "within them");
  Tokens some = *this;
  const uint64_t before = first * (wide_ ? 4 : 2);
  some.data_ += before;
  some.first_ += first;
  some.size_ = count;
  return some;
}

Result<void> Tokens::read(uint64_t first, std::span<int32_t> into, uint32_t vocabulary) const {
  for (size_t i = 0; i < into.size(); ++i) {
    const uint32_t token = (*this)[first + i];
    if (token >= vocabulary)
      return fail(Code::invalid,
                  "{}: token {} at place {} (byte {}) is outside of the vocabulary of {}: make the "
                  "file with the tokenizer of this model, or the model's vocabulary larger",
                  name_, token, first_ + first + i,
                  header_bytes_ + (first_ + first + i) * (wide_ ? 4 : 2), vocabulary);
    into[i] = static_cast<int32_t>(token);
  }
  return {};
}

Result<void> Tokens::find_format(Bytes file) {
  const auto word = [&](size_t i) { return load_le<int32_t>(file.data() + 4 * i); };
  const bool has_header =
      file.size() >= kHeaderBytes && (word(0) == kMagic16 || word(0) == kMagic32);
  uint64_t counted = 0;
  if (has_header) {
    wide_ = word(0) == kMagic32;
    const int32_t version = wide_ ? kVersion32 : kVersion16;
    if (word(1) != version)
      return fail(Code::unsupported, "{} is version {} of llm.c's token files; known is {}", name_,
                  word(1), version);
    counted = static_cast<uint32_t>(word(2));
    header_bytes_ = kHeaderBytes;
  }
  const uint64_t each = wide_ ? 4 : 2;
  const uint64_t bytes = file.size() - header_bytes_;
  if (has_header && bytes != counted * each)
    return fail(Code::corrupt,
                "{} says that it has {} tokens but has {} bytes of them, not {}: it was cut short, "
                "copy or make it again",
                name_, counted, bytes, counted * each);
  if (bytes % each != 0)
    return fail(Code::corrupt,
                "{} has {} bytes, an odd number: tokens take two each (nanoGPT's or llm.c's .bin)",
                name_, bytes);
  size_ = bytes / each;
  data_ = file.data() + header_bytes_;
  return {};
}

Task<Result<std::shared_ptr<const Tokens>>> open_tokens(Disk& disk, std::string path) {
  CO_TRY(auto file, co_await disk.open(path, OpenOptions{}));
  CO_TRY(const uint64_t size, co_await file->size());
  if (size == 0) co_return fail(Code::invalid, "{} has no tokens: it is empty", path);
  CO_TRY(std::shared_ptr<Mapping> mapping, file->map(0, size, false));
  auto tokens = std::make_shared<Tokens>();
  tokens->name_ = path;
  const Bytes bytes = mapping->bytes();
  CO_TRY_DO(tokens->find_format(bytes));
  tokens->keep_ = std::move(mapping);
  co_return tokens;
}

Result<void> TokenBatches::check(const std::vector<BatchTensor>& inputs) const {
  const BatchTensor* tokens = find(inputs, "tokens");
  const BatchTensor* targets = find(inputs, "targets");
  for (const BatchTensor& input : inputs)
    if (&input != tokens && &input != targets && input.name != kDrawInput)
      return fail(Code::invalid, "the model wants an input {} that no tokens can be: {}",
                  input.name, input.type.text());
  for (const BatchTensor* input : {tokens, targets})
    if (input == nullptr || input->type.dtype != DType::i32 || input->type.dims.size() < 2 ||
        input->type != tokens->type)
      return fail(Code::invalid,
                  "a model that learns from tokens has inputs \"tokens\" and \"targets\", both i32 "
                  "of the same batch and time; this one has {} and {}",
                  tokens == nullptr ? "none" : tokens->type.text(),
                  targets == nullptr ? "none" : targets->type.text());
  const auto time = static_cast<uint64_t>(tokens->type.dims.back().size);
  if (tokens_->size() < time + 1)
    return fail(
        Code::invalid,
        "{} has {} tokens, fewer than the {} that one sample of {} takes: give a longer text "
        "or a shorter context",
        tokens_->name(), tokens_->size(), time + 1, time);
  if (tokens_->size() > kCheckedAtOnce) return {};
  std::vector<int32_t> all(tokens_->size());
  return tokens_->read(0, all, options_.vocabulary);
}

uint64_t TokenBatches::start_of(uint64_t steps_done, uint64_t sample, uint64_t samples,
                                uint64_t time) const {
  const uint64_t starts = tokens_->size() - time;  // each leaves room for a window and one more
  if (options_.order == SampleOrder::consecutive) {
    const uint64_t windows = (tokens_->size() - 1) / time;
    return (steps_done * samples + sample) % windows * time;
  }
  const uint64_t key = hash64(as_bytes("data"), options_.seed);
  const uint64_t high = random_bits(key, steps_done, 2 * sample);
  const uint64_t low = random_bits(key, steps_done, 2 * sample + 1);
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{(high << 32) | low} * starts) >> 64);
}

Result<void> TokenBatches::fill(uint64_t steps_done, const std::vector<BatchTensor>& inputs) {
  const BatchTensor& tokens = *find(inputs, "tokens");
  const BatchTensor& targets = *find(inputs, "targets");
  const auto time = static_cast<size_t>(tokens.type.dims.back().size);
  const uint64_t samples = static_cast<uint64_t>(tokens.type.elements()) / time;
  auto* in = reinterpret_cast<int32_t*>(tokens.data);
  auto* out = reinterpret_cast<int32_t*>(targets.data);
  // By their place in the whole step, whoever has which of them.
  const auto atoms = static_cast<uint64_t>(tokens.type.dims[0].size);
  const AtomShare share = tokens.share.value_or(AtomShare{.of = static_cast<int64_t>(atoms)});
  const uint64_t before = samples / atoms * static_cast<uint64_t>(share.first);
  const uint64_t all = samples / atoms * static_cast<uint64_t>(share.of);
  for (uint64_t sample = 0; sample < samples; ++sample, in += time, out += time) {
    const uint64_t start = start_of(steps_done, before + sample, all, time);
    TRY_DO(tokens_->read(start, {in, time}, options_.vocabulary));
    TRY_DO(tokens_->read(start + 1, {out, time}, options_.vocabulary));
  }
  if (const BatchTensor* draw = find(inputs, kDrawInput)) {
    auto* draws = reinterpret_cast<int64_t*>(draw->data);
    const int64_t own = draw->type.elements();
    const AtomShare its = draw->share.value_or(AtomShare{.of = own});
    for (int64_t i = 0; i < own; ++i)
      draws[i] = static_cast<int64_t>(steps_done) * its.of + its.first + i;
  }
  return {};
}

}  // namespace tutti
