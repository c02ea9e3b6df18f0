#include "train/replica.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.h"

namespace tutti {

namespace {

// Scalars are summed over these, in order, and the sums by a fixed tree: src/fabric/fold_tree.h.
constexpr uint64_t kChunk = 4096;

double square_sum(const float* values, uint64_t elements) {
  double sum = 0;
  for (uint64_t i = 0; i < elements; ++i) sum += double{values[i]} * double{values[i]};
  return sum;
}

double tree_sum(std::vector<double> sums) {
  for (size_t step = 1; step < sums.size(); step *= 2)
    for (size_t i = 0; i + step < sums.size(); i += 2 * step) sums[i] += sums[i + step];
  return sums.empty() ? 0 : sums[0];
}

}  // namespace

Result<float*> Replica::keep(Vault& vault, const char* what, uint64_t elements) {
  TRY(const VaultTensor tensor,
      vault.tensor(fmt::format("{}.{}", options_.name, what), DType::f32, {elements}));
  return reinterpret_cast<float*>(tensor.data);
}

Result<std::unique_ptr<Replica>> Replica::open(Fabric& fabric, Vault& vault,
                                               ReplicaOptions options) {
  auto replica = std::unique_ptr<Replica>(new Replica(std::move(options)));
  const uint64_t elements = replica->options_.elements;
  if (elements == 0) return fail(Code::invalid, "a replica has weights");
  replica->fabric_ = &fabric;
  TRY_DO(replica->keep_form(vault));
  StepState& state = replica->state_;
  state.elements = elements;
  TRY(const VaultTensor words,
      vault.tensor(replica->options_.name + ".words", DType::i64, {sizeof(StepWords) / 8}));
  state.words = reinterpret_cast<StepWords*>(words.data);
  TRY(state.weights, replica->keep(vault, "weights", elements));
  TRY(state.undo, replica->keep(vault, "undo", 2 * kAdamWBlock));
  TRY(state.first, replica->keep(vault, "first", elements + kAdamWBlock));
  TRY(state.second, replica->keep(vault, "second", elements + kAdamWBlock));
  TRY(replica->reduced_, replica->keep(vault, "gradient", elements));
  state.gradient = replica->reduced_;
  TRY(const uint64_t local, fabric.heap().allocate(elements * sizeof(float)));
  replica->local_ = reinterpret_cast<float*>(fabric.heap().at(local));
  return replica;
}

// Kept as text, so that what differs can be told; its first byte is written last, since a process
// may be killed while it writes.
Result<void> Replica::keep_form(Vault& vault) {
  const std::string& form = options_.form;
  const std::string name = options_.name + ".form";
  const auto known = vault.find(name);
  const bool whole = known && known->bytes != 0 && *known->data != std::byte{0};
  const std::string_view kept =
      whole ? std::string_view(reinterpret_cast<const char*>(known->data), known->bytes) : form;
  if (kept != form) {
    const auto [ours, theirs] = std::ranges::mismatch(form, kept);
    size_t from = form.rfind(';', static_cast<size_t>(ours - form.begin()));
    from = from == std::string::npos || ours == form.begin() ? 0 : from + 1;
    const auto part = [&](std::string_view text) {
      text.remove_prefix(std::min(from, text.size()));
      while (text.starts_with(' ')) text.remove_prefix(1);
      const auto end = text.substr(0, text.find(';'));
      return end.empty() ? std::string("nothing more") : std::string(end);
    };
    return fail(Code::invalid,
                "the vault has {} with {} where this program has {}; open it with the shapes that "
                "it was made with, or under another name",
                options_.name, part(kept), part(form));
  }
  if (!whole && !form.empty()) {
    TRY(const VaultTensor made, vault.tensor(name, DType::u8, {form.size()}));
    std::memcpy(made.data + 1, form.data() + 1, form.size() - 1);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    *made.data = static_cast<std::byte>(form[0]);
  }
  TRY(const VaultTensor birth,
      vault.tensor(options_.name + ".birth", DType::u64, {sizeof(Birth) / 8}));
  birth_ = reinterpret_cast<Birth*>(birth.data);
  return {};
}

// Ranks whose weights began differently would take the same steps and never meet again.
Result<void> Replica::check_alike(Group& group) {
  if (compared_epoch_ == fabric_->epoch()) return {};
  // Others' answers may come when we do not wait for them any more.
  struct Births {
    Birth mine;
    std::vector<Birth> all;
  };
  const auto births = std::make_shared<Births>(
      Births{.mine = born() ? *birth_ : Birth(), .all = std::vector<Birth>(group.size())});
  const Birth& mine = births->mine;
  std::vector<Birth>& all = births->all;
  TRY_DO(group.run({.kind = CallKind::all_gather,
                    .type = DType::u64,
                    .elements = sizeof(Birth) / 8,
                    .input = reinterpret_cast<const std::byte*>(&mine),
                    .output = reinterpret_cast<std::byte*>(all.data()),
                    .output_elements = all.size() * sizeof(Birth) / 8,
                    .keeps = births,
                    .site = options_.name + ": compare"}));
  const Birth* first = nullptr;  // of those who are born
  for (const Birth& theirs : all) {
    if (theirs.form == 0) continue;
    if (first == nullptr) first = &theirs;
    const auto ranks = [&] {
      return fmt::format("ranks {} and {}", group.rank_of(static_cast<uint32_t>(first - &all[0])),
                         group.rank_of(static_cast<uint32_t>(&theirs - &all[0])));
    };
    if (theirs.form != first->form)
      return fail(Code::invalid,
                  "{} was opened with different names or shapes by {}; give the same on all ranks",
                  options_.name, ranks());
    if (theirs.weights != first->weights)
      return fail(Code::invalid,
                  "{} began with different weights on {} ({:016x} and {:016x}); write the same on "
                  "all ranks before set_born(), from one seed or by a broadcast",
                  options_.name, ranks(), first->weights, theirs.weights);
  }
  compared_epoch_ = fabric_->epoch();
  return {};
}

void Replica::set_born() {
  // Not 0, which is whoever was born before there was a birth to compare.
  birth_->form = hash64(std::as_bytes(std::span(options_.form))) | 1;
  birth_->weights = hash64(std::as_bytes(weights()));
  std::atomic_signal_fence(std::memory_order_seq_cst);
  DirectStore store;
  store.publish(state_.words->born, 1);
}

std::span<const float> Replica::first_moment() const {
  return {state_.first + state_.slid(step()), options_.elements};
}
std::span<const float> Replica::second_moment() const {
  return {state_.second + state_.slid(step()), options_.elements};
}

// Each rank sums its share of the chunks; nobody has the norm before all are ready.
Result<double> Replica::meet_for_norm(Group& group) {
  const uint64_t chunks = (options_.elements + kChunk - 1) / kChunk;
  const uint64_t begin = chunks * group.index() / group.size();
  const uint64_t end = chunks * (group.index() + 1) / group.size();
  std::vector<double> mine;
  for (uint64_t k = begin; k < end; ++k)
    mine.push_back(
        square_sum(reduced_ + k * kChunk, std::min(kChunk, options_.elements - k * kChunk)));
  std::vector<double> all(chunks);
  TRY_DO(group.run({.kind = CallKind::all_gather,
                    .type = DType::f64,
                    .elements = mine.size(),
                    .input = reinterpret_cast<const std::byte*>(mine.data()),
                    .output = reinterpret_cast<std::byte*>(all.data()),
                    .output_elements = all.size(),
                    .site = options_.name + ": decide"}));
  return std::sqrt(tree_sum(std::move(all)));
}

double Replica::whole_norm() const {
  std::vector<double> sums;
  for (uint64_t begin = 0; begin < options_.elements; begin += kChunk)
    sums.push_back(square_sum(reduced_ + begin, std::min(kChunk, options_.elements - begin)));
  return std::sqrt(tree_sum(std::move(sums)));
}

void Replica::commit_with(double norm) {
  norm_ = norm;
  const bool clipped = options_.max_norm > 0 && norm > options_.max_norm;
  const auto scale = static_cast<float>(clipped ? options_.max_norm / norm : 1);
  DirectStore store;
  commit(store, state_, adamw_step(options_.adamw, step() + 1, scale));
}

Result<void> Replica::step_with(Group& group) {
  if (!born())
    return fail(Code::invalid, "{} has no weights yet; write them, then set_born()", options_.name);
  TRY_DO(check_alike(group));
  TRY_DO(group.run({.kind = CallKind::all_reduce,
                    .op = ReduceOp::mean,
                    .elements = options_.elements,
                    .input = reinterpret_cast<const std::byte*>(local_),
                    .output = reinterpret_cast<std::byte*>(reduced_),
                    .site = options_.name + ": reduce"}));
  DirectStore store;
  say_ready(store, state_);
  TRY(const double norm, meet_for_norm(group));
  say_decided(store, state_);
  commit_with(norm);
  return {};
}

Result<uint64_t> Replica::recover(Group& group) {
  TRY_DO(check_alike(group));
  struct Reports {
    StepReport mine;
    std::vector<StepReport> all;
  };
  const auto reports = std::make_shared<Reports>(
      Reports{.mine = report_of(*state_.words), .all = std::vector<StepReport>(group.size())});
  const StepReport& mine = reports->mine;
  std::vector<StepReport>& all = reports->all;
  TRY_DO(group.run({.kind = CallKind::all_gather,
                    .type = DType::i64,
                    .elements = sizeof(StepReport) / 8,
                    .input = reinterpret_cast<const std::byte*>(&mine),
                    .output = reinterpret_cast<std::byte*>(all.data()),
                    .output_elements = all.size() * sizeof(StepReport) / 8,
                    .keeps = reports,
                    .site = options_.name + ": recover"}));
  TRY(const uint64_t target, step_after_loss(all));
  if (step() == target) return target;
  DirectStore store;
  if (state_.words->decided.load() < target) say_decided(store, state_);
  commit_with(whole_norm());
  return target;
}

uint64_t Replica::digest() const {
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(state_.weights, options_.elements)));
  hasher.update(std::as_bytes(first_moment()));
  hasher.update(std::as_bytes(second_moment()));
  return hasher.digest64();
}

}  // namespace tutti
