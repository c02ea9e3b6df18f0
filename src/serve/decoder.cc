#include "serve/decoder.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "base/assert.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/program/packing.h"

namespace tutti {
namespace {

constexpr const char* kTokensInput = "tokens";
constexpr const char* kLogitsOutput = "logits";
// A cache line, and the widest vector.
constexpr std::align_val_t kAlignment{64};
// A run over a chunk takes as long as so many single steps, or longer: with fewer tokens left than
// its share, these are quicker.
constexpr int64_t kStepsInChunk = 16;

// Whether a graph takes tokens and gives logits as a decoder needs them.
Result<void> check_graph(const Graph& graph, const DecodingShape& shape) {
  const Type tokens{DType::i32, {{kBatchDim, shape.cache.sequences}, {"time", shape.time}}};
  const Input* input = graph.input(kTokensInput);
  if (input == nullptr || graph.type(input->value) != tokens)
    return fail(Code::invalid, "a model that generates has an input {}: {}", kTokensInput,
                tokens.text());
  const Output* logits = graph.output(kLogitsOutput);
  if (logits == nullptr)
    return fail(Code::invalid, "a model that generates has an output {}; {} has none",
                kLogitsOutput, graph.name);
  const Type& type = graph.type(logits->value);
  if (type.dtype != DType::f32 || type.dims.size() != 3 || type.dims[0] != tokens.dims[0] ||
      type.dims[1] != tokens.dims[1])
    return fail(Code::invalid, "{} is {}, not f32[batch, time, …]", kLogitsOutput, type.text());
  for (const Input& each : graph.inputs)
    if (each.role == InputRole::data && each.name != kTokensInput && each.name != kPositionInput)
      return fail(Code::invalid, "a model that generates cannot have an input {}", each.name);
  return {};
}

}  // namespace

struct Decoder::Room {
  explicit Room(int64_t size)
      : bytes(static_cast<std::byte*>(
            ::operator new(static_cast<size_t>(std::max<int64_t>(size, 1)), kAlignment))) {
    std::memset(bytes, 0, static_cast<size_t>(size));
  }
  ~Room() { ::operator delete(bytes, kAlignment); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  std::byte* bytes;
};

// One of the two programs, with its memory.
struct Decoder::Side {
  int64_t time = 0;
  std::unique_ptr<LoadedProgram> program;
  std::vector<std::unique_ptr<Room>> rooms;
  std::vector<std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::unique_ptr<Mapping> arena;
  int32_t* tokens = nullptr;
  int64_t* positions = nullptr;
  const float* logits = nullptr;

  std::byte* room(int64_t bytes) {
    rooms.push_back(std::make_unique<Room>(bytes));
    return rooms.back()->bytes;
  }
};

Decoder::Decoder(const DecoderOptions& options)
    : options_(options), positions_(static_cast<size_t>(options.cache.sequences)) {}

Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Decoder::make(const TraceForDecoding& trace,
                                               const FindWeight& weights,
                                               const DecoderOptions& options, Device& device) {
  if (options.cache.sequences < 1 || options.cache.places < 1 || options.chunk < 1)
    return fail(Code::invalid, "{} sequences of {} places in chunks of {} cannot be decoded",
                options.cache.sequences, options.cache.places, options.chunk);
  auto made = std::unique_ptr<Decoder>(new Decoder(options));
  made->options_.chunk = std::min(options.chunk, options.cache.places);
  for (const int64_t time : {int64_t{1}, made->options_.chunk}) {
    const DecodingShape shape{options.cache, time};
    TRY(Model model, trace(shape));
    TRY_DO(check_graph(model.graph, shape));
    if (time == 1)
      made->vocabulary_ = model.graph.type(model.graph.output(kLogitsOutput)->value).dims[2].size;
    // The caches are all that is wanted of a chunk.
    auto& side = made->step_ == nullptr ? made->step_ : made->chunk_;
    if (made->step_ != nullptr)
      std::erase_if(model.graph.outputs,
                    [](const Output& output) { return !output.name.starts_with(kCachePrefix); });
    TRY(side, made->make_side(model, weights, device));
    side->time = time;
  }
  return made;
}

std::byte* Decoder::cache(const std::string& name, int64_t bytes) {
  for (const auto& [known, room] : caches_)
    if (known == name) return room->bytes;
  caches_.emplace_back(name, std::make_unique<Room>(bytes));
  cache_bytes_ += bytes;
  return caches_.back().second->bytes;
}

Result<std::unique_ptr<Decoder::Side>> Decoder::make_side(const Model& model,
                                                          const FindWeight& weights,
                                                          Device& device) {
  auto side = std::make_unique<Side>();
  TRY(Program lowered, lower_to_program(optimize(model.graph)));
  if (options_.keep_packed) choose_packing(lowered, {.constant_states = true});
  TRY(side->program, device.load(std::move(lowered)));
  const Program& program = side->program->program();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input& input = program.inputs[i];
    const int64_t bytes = program.input_types[i].bytes();
    if (input.role == InputRole::data) {
      side->inputs.push_back(side->room(bytes));
      if (input.name == kTokensInput)
        side->tokens = reinterpret_cast<int32_t*>(side->inputs.back());
      else
        side->positions = reinterpret_cast<int64_t*>(side->inputs.back());
    } else if (input.name.starts_with(kCachePrefix)) {
      side->inputs.push_back(cache(input.name, bytes));
    } else {
      const Parameter* parameter = model.parameter(input.name);
      if (parameter == nullptr || parameter->type.dtype != DType::f32)
        return fail(Code::invalid, "state {} is no parameter of f32", input.name);
      TRY(const float* values, weights(*parameter));
      // No program writes it: it has no output of that name.
      side->inputs.push_back(reinterpret_cast<std::byte*>(const_cast<float*>(values)));
    }
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Output& output = program.outputs[i];
    const int64_t bytes = program.output_types[i].bytes();
    const bool is_cache = output.name.starts_with(kCachePrefix);
    if (!is_cache && model.parameter(output.name) != nullptr)
      return fail(Code::invalid, "generating would change parameter {}", output.name);
    side->outputs.push_back(is_cache ? cache(output.name, bytes) : side->room(bytes));
    if (output.name == kLogitsOutput)
      side->logits = reinterpret_cast<const float*>(side->outputs.back());
  }
  TRY(side->arena, device.allocate(std::max<uint64_t>(side->program->arena_bytes(), 1)));
  return side;
}

int64_t Decoder::panel_bytes() const {
  return static_cast<int64_t>(step_->program->panel_bytes() + chunk_->program->panel_bytes());
}

void Decoder::rewind(int64_t sequence, int64_t position) {
  int64_t& now = positions_[static_cast<size_t>(sequence)];
  TUTTI_ASSERT(0 <= position && position <= now, "what did not come yet cannot be gone back to");
  now = position;
}

Result<void> Decoder::check_tokens(size_t sequence, std::span<const int32_t> tokens) const {
  const int64_t left = places() - positions_[sequence];
  if (std::ssize(tokens) > left)
    return fail(Code::invalid,
                "sequence {} has room for {} more tokens of {}, not for {}; make it shorter, or "
                "the context longer",
                sequence, left, places(), tokens.size());
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocabulary_)
      return fail(Code::invalid, "token {} of sequence {} is outside of the vocabulary of {}",
                  token, sequence, vocabulary_);
  return {};
}

// A sequence with fewer tokens than the program takes gets some that mean nothing: they are written
// behind its own, where the next ones come, and nobody sees them before.
Result<void> Decoder::run(Side& side, const std::vector<std::span<const int32_t>>& tokens) {
  std::fill_n(side.tokens, sequences() * side.time, 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::ranges::copy(tokens[i], side.tokens + static_cast<int64_t>(i) * side.time);
    if (side.positions != nullptr) side.positions[i] = positions_[i];
  }
  TRY_DO(side.program->run(
      {.inputs = side.inputs, .outputs = side.outputs, .arena = side.arena->bytes().data()}));
  for (size_t i = 0; i < tokens.size(); ++i) positions_[i] += std::ssize(tokens[i]);
  return {};
}

Result<void> Decoder::feed(const std::vector<TokenList>& more) {
  TUTTI_ASSERT(std::cmp_equal(more.size(), sequences()), "every sequence gets its own");
  std::vector<std::span<const int32_t>> left(more.begin(), more.end());
  for (size_t i = 0; i < left.size(); ++i) TRY_DO(check_tokens(i, left[i]));
  for (;;) {
    size_t most = 0;
    for (const auto& each : left) most = std::max(most, each.size());
    if (most == 0) return {};
    const bool few = std::cmp_less(most * kStepsInChunk, chunk_->time);
    Side& side = few ? *step_ : *chunk_;
    std::vector<std::span<const int32_t>> now;
    for (auto& each : left) {
      const size_t count = std::min(each.size(), static_cast<size_t>(side.time));
      now.push_back(each.first(count));
      each = each.subspan(count);
    }
    TRY_DO(run(side, now));
  }
}

Result<std::span<const float>> Decoder::step(std::span<const int32_t> tokens) {
  TUTTI_ASSERT(std::cmp_equal(tokens.size(), sequences()), "every sequence gets its own");
  std::vector<std::span<const int32_t>> now;
  for (size_t i = 0; i < tokens.size(); ++i) {
    now.push_back(tokens.subspan(i, tokens[i] == kNoToken ? 0 : 1));
    TRY_DO(check_tokens(i, now.back()));
  }
  TRY_DO(run(*step_, now));
  return std::span<const float>(step_->logits, static_cast<size_t>(sequences() * vocabulary_));
}

}  // namespace tutti
