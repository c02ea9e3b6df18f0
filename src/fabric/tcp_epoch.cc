#include "fabric/tcp_epoch.h"

namespace tutti::tcp {

Epoch::Epoch(Context& context, uint64_t number) : context_(context) {
  this->number = number;
  session = context.world().random().next();
  callers_.resize(context.options.world_size);
  answerers_.resize(context.options.world_size);
  scope.spawn(tell_waiting());
}

// Strands are left only when a crash destroys frames without running them.
Epoch::~Epoch() { scope.kill(); }

Caller& Epoch::caller(uint32_t rank) {
  auto& caller = callers_[rank];
  if (caller == nullptr) caller = std::make_unique<Caller>(context_, *this, rank);
  return *caller;
}

Answerer& Epoch::answerer(uint32_t rank) {
  auto& answerer = answerers_[rank];
  if (answerer == nullptr) answerer = std::make_unique<Answerer>(context_, *this, rank);
  return *answerer;
}

Result<void> Epoch::admit(const Introduction& who) {
  const TcpOptions& options = context_.options;
  if (who.epoch != number)
    return fail(Code::denied, "rank {} is in epoch {}, we are in {}", who.from, who.epoch, number);
  if (who.to != options.rank || who.from >= options.world_size)
    return fail(Code::denied, "rank {} looks for rank {}; we are rank {} of {}", who.from, who.to,
                options.rank, options.world_size);
  if (who.protection != context_.protection())
    return fail(Code::denied,
                "rank {} has other settings of checksums and encrypt; set them alike everywhere",
                who.from);
  if (who.carried != (options.carrier != nullptr))
    return fail(Code::denied, "rank {} uses another transport; choose one for all ranks", who.from);
  return answerer(who.from).admit(who);
}

// Of two for one scope, that which says more counts.
void Epoch::refuse_here(const Refusal& refusal) {
  if (refusal.left) left_.insert(*refusal.left);
  const Tag from = refusal.from;
  const auto [known, added] = refused_.emplace(from.scope, refusal);
  if (!added && known->second.from.number <= from.number) return;
  known->second = refusal;
  if (refused_.size() > kMaxKeptErrors) refused_.erase(refused_.begin());
  std::vector<Errand*> ending;
  const auto end = calls_->upper_bound({from.scope, ~uint64_t{0}});
  for (auto call = calls_->lower_bound(from); call != end; ++call) ending.push_back(call->second);
  for (Errand* errand : ending) errand->end_with(refusal.why);
}

const Error* Epoch::refusal(Tag tag) const {
  const auto found = refused_.find(tag.scope);
  if (found == refused_.end() || tag.number < found->second.from.number) return nullptr;
  return &found->second.why;
}

std::optional<uint32_t> Epoch::left_in(uint64_t scope) const {
  const auto found = refused_.find(scope);
  return found == refused_.end() ? std::nullopt : found->second.left;
}

std::vector<uint32_t> Epoch::linked() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < callers_.size(); ++rank)
    if ((callers_[rank] && callers_[rank]->up()) || (answerers_[rank] && answerers_[rank]->up()))
      ranks.push_back(rank);
  return ranks;
}

bool Epoch::quiet() const {
  for (const auto& caller : callers_)
    if (caller && !caller->quiet()) return false;
  for (const auto& answerer : answerers_)
    if (answerer && !answerer->quiet()) return false;
  return true;
}

void Epoch::end(const Error& why) {
  for (const auto& caller : callers_)
    if (caller) caller->end(why);
  for (const auto& answerer : answerers_)
    if (answerer) answerer->end(why);
  scope.cancel();
}

Task<void> Epoch::join() {
  auto joined = co_await scope.join();
  static_cast<void>(joined);
}

Task<void> Epoch::tell_waiting() {
  for (;;) {
    auto slept = co_await context_.clock().sleep(kProbeInterval);
    if (!slept) co_return;
    for (const auto& answerer : answerers_)
      if (answerer) answerer->tell_waiting();
  }
}

}  // namespace tutti::tcp
