#include "fabric/tuning_run.h"

#include <algorithm>
#include <cstring>

#include "fabric/fold.h"
#include "fabric/group.h"

namespace tutti {

namespace {

using What = TuningTrial::What;

constexpr const char* kSite = "tuning";
constexpr uint64_t kAlways = 0;
constexpr uint64_t kNotAtAll = ~uint64_t{0};
// Of tags, which have 24 bits for it: calls that people make count from 1.
constexpr uint32_t kFirstNumber = 1 << 23;
constexpr uint64_t kLineElements = 64 / sizeof(float);

}  // namespace

TuningRun::TuningRun(Group& group, uint32_t call)
    : group_(group),
      call_(call),
      heap_(group.fabric_.heap()),
      parking_(group.fabric_.parking()),
      trials_(group.tuning_, group.hosts_->hosts()),
      begun_(parking_.now()) {}

TuningRun::~TuningRun() {
  operation_ = nullptr;  // it uses our memory
  if (input_) heap_.free(*input_);
  if (output_) heap_.free(*output_);
}

bool TuningRun::leads() const { return group_.index() == 0; }

// Who has not enough says so, and nobody measures.
bool TuningRun::has_room() {
  const auto near = static_cast<uint32_t>(group_.local_.size());
  const uint64_t input_bytes = trials_.most_bytes(near);
  const uint64_t output_bytes = group_.wide() ? input_bytes : input_bytes / near + 64;
  const auto find = [&](uint64_t bytes) -> std::optional<uint64_t> {
    auto offset = heap_.allocate(bytes);
    if (!offset) return std::nullopt;
    std::memset(heap_.at(*offset), 0, bytes);  // zeros stay zeros, however often they are summed
    return *offset;
  };
  input_ = find(input_bytes);
  if (input_) output_ = find(output_bytes);
  return input_ && output_;
}

Result<bool> TuningRun::step() {
  while (state_ != State::done) {
    if (operation_ == nullptr) {
      Call call = next_call();
      const TrialChoices trial = choices();
      operation_ = std::make_unique<Operation>(group_, std::move(call), trial);
      operation_->call_number_ = call_;
      operation_->site_ = group_.fabric_.flight_.site(kSite);
      auto prepared = operation_->prepare();
      if (!prepared) return fail(group_.give_up(std::move(prepared).error(), call_));
    }
    TRY(const bool stepped, operation_->step());
    if (!stepped) return false;
    operation_ = nullptr;
    finished();
  }
  return true;
}

// A word or some from member 0 to all, or the least of everybody's.
Call TuningRun::tell(void* words, uint64_t count, CallKind kind) {
  auto* bytes = static_cast<std::byte*>(words);
  return {.kind = kind,
          .type = DType::i64,
          .op = ReduceOp::min,
          .elements = count,
          .input = bytes,
          .output = bytes,
          .site = kSite};
}

Call TuningRun::next_call() {
  switch (state_) {
    case State::ask: word_ = has_room() ? 1 : 0; return tell(&word_, 1, CallKind::all_reduce);
    case State::order:
      word_ = leads() ? trials_.next(parking_.now() - begun_) : 0;
      return tell(&word_, 1, CallKind::broadcast);
    case State::run: return trial_call();
    case State::settle:
      words_ = (word_ == 0 ? group_.tuning_ : trials_.decide()).words();  // member 0's count
      return tell(words_.data(), words_.size(), CallKind::broadcast);
    default: return {.kind = CallKind::barrier, .site = kSite};
  }
}

Call TuningRun::trial_call() const {
  const TuningTrial& trial = trials_.list()[static_cast<size_t>(word_)];
  const uint32_t size = group_.size();
  std::byte* input = heap_.at(*input_);
  Call call{
      .elements = trial.bytes / sizeof(float), .input = input, .output = input, .site = kSite};
  call.kind = CallKind::all_reduce;
  if (trial.what == What::reduce) call.elements *= group_.hosts_->rails();
  if (trial.what == What::gather) {
    call.kind = CallKind::all_gather;
    call.elements /= size;
  }
  if (trial.what == What::stream) {
    call.kind = CallKind::reduce_scatter;
    const uint64_t whole = uint64_t{size} * kLineElements;
    call.elements = std::max(call.elements / (size + 1) / whole, uint64_t{1}) * whole;
  }
  if (trial.what == What::gather || trial.what == What::stream) call.output = heap_.at(*output_);
  return call;
}

TrialChoices TuningRun::choices() {
  TrialChoices made{.small_bytes = group_.tuning_.small_bytes,
                    .stream_bytes = group_.tuning_.stream_bytes,
                    .number = kFirstNumber + ++operations_};
  if (state_ != State::run) return made;
  const TuningTrial& trial = trials_.list()[static_cast<size_t>(word_)];
  if (trial.what == What::small) made.small_bytes = trial.wanted ? kSmallBytes : 0;
  if (trial.what == What::stream) made.stream_bytes = trial.wanted ? kAlways : kNotAtAll;
  if (trial.what == What::reduce || trial.what == What::gather) made.way = trial.way;
  return made;
}

// As its owner will: what was stored past the caches has to come back.
void TuningRun::read_output() {
  const TuningTrial& trial = trials_.list()[static_cast<size_t>(word_)];
  if (trial.what != What::stream) return;
  const uint64_t bytes = trial.bytes / (group_.size() + 1) / group_.size();
  for (uint64_t at = 0; at + 64 <= bytes; at += 64)
    sink_ += static_cast<uint64_t>(heap_.at(*output_)[at]);
}

void TuningRun::finished() {
  switch (state_) {
    case State::ask: state_ = word_ != 0 ? State::order : State::settle; return;
    case State::order:
      state_ = word_ < 0 ? State::settle : State::ready;
      if (word_ < 0) return;
      calls_left_ = trials_.list()[static_cast<size_t>(word_)].calls;
      // Inputs come fresh from who computed them.
      if (trials_.list()[static_cast<size_t>(word_)].what == What::stream)
        std::memset(heap_.at(*input_), 0, trial_call().elements * sizeof(float));
      return;
    case State::ready:
      trial_begun_ = parking_.now();
      state_ = State::run;
      return;
    case State::run:
      if (--calls_left_ > 0) return;
      read_output();
      state_ = State::close;
      return;
    case State::close:
      trials_.note(static_cast<size_t>(word_), parking_.now() - trial_begun_);
      state_ = State::order;
      return;
    case State::settle:
      group_.take_tuning(words_);
      state_ = State::done;
      return;
    case State::done: return;
  }
}

std::string TuningRun::missing() const {
  return operation_ == nullptr ? "nobody" : operation_->missing();
}

std::shared_ptr<EngineJob> TuningRun::job() const {
  return operation_ == nullptr ? nullptr : operation_->job_;
}

}  // namespace tutti
