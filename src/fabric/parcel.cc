#include "fabric/parcel.h"

#include <algorithm>

#include "base/hash.h"
#include "fabric/fold.h"
#include "world/scope.h"

namespace tutti {

namespace {

// Before looking whether the epoch is over: a millisecond or two.
constexpr uint64_t kCopyBytes = 8 << 20;
// Told one by one that we leave, whether there is a connection or not.
constexpr size_t kFewRanks = 16;

std::string name_of(Parcel::What what, uint32_t rank, uint64_t tag) {
  switch (what) {
    case Parcel::What::send: return fmt::format("rank {} to receive tag {}", rank, tag);
    case Parcel::What::receive: return fmt::format("a message of rank {} with tag {}", rank, tag);
    case Parcel::What::put: return fmt::format("rank {}, to which bytes are put", rank);
    default: return fmt::format("rank {}, from which bytes are got", rank);
  }
}

Task<void> refuse_at(Transport& transport, uint32_t rank, Refusal refusal) {
  std::vector<uint32_t> ranks = {rank};
  co_await transport.refuse(std::move(ranks), std::move(refusal));
}

using Scopes = std::vector<std::pair<uint32_t, uint64_t>>;  // rank, and of messages with it

Task<Result<void>> refuse_all(Transport& transport, Scopes scopes, uint32_t left) {
  const auto linked = transport.linked();
  const auto gone = transport.left();
  const bool few = scopes.size() <= kFewRanks;
  Scope strands;
  for (const auto& [rank, scope] : scopes) {
    const bool waits = few || std::ranges::binary_search(linked, rank);
    if (!waits || std::ranges::count(gone, rank) != 0) continue;
    strands.spawn(refuse_at(transport, rank, {{scope, 0}, left_error(left), left}));
  }
  (void)co_await strands.join();
  co_return Result<void>{};
}

}  // namespace

Parcel::~Parcel() {
  abandon();
  if (staged_) fabric_.heap().free(offset_);
}

// Nobody uses our memory from here on.
void Parcel::abandon() {
  if (job_ != nullptr && !job_->done()) {
    job_->cancel();
    job_->wait();
  }
  let_go();
}

Task<void> Parcel::abandon(World& world) {
  if (job_ != nullptr && !job_->done()) {
    job_->cancel();
    while (!job_->done()) (void)co_await world.clock().sleep(1us);
  }
  let_go();
}

// Of the letter: one who has begun to copy finds it gone, and takes what it copied for nothing.
void Parcel::let_go() {
  if (letter_ != nullptr && epoch_ == fabric_.epoch() && letter_->number == number_) {
    auto taking = LetterState::taking;  // another may receive it
    if (what_ == What::send) letter_->state.store(LetterState::none);
    if (what_ == What::receive) letter_->state.compare_exchange_strong(taking, LetterState::shown);
  }
  letter_ = nullptr;
  copying_ = false;
}

Result<void> Parcel::begin(const Work& work) {
  from_ = work.from;
  into_ = work.into;
  place_ = work.region.place;
  noted_ = {.tag = tag_,
            .bytes = std::max(from_.size(), into_.size()),
            .began_ns = fabric_.flight_.now_ns(),
            .rank = rank_,
            .site = static_cast<uint16_t>(fabric_.flight_.site(work.site)),
            .kind = what_};
  if (rank_ >= fabric_.world_size())
    return fail(Code::invalid, "there is no rank {} among {}", rank_, fabric_.world_size());
  if (fabric_.world_ == nullptr) return fail(Code::invalid, "join() comes first");
  const bool one_sided = what_ == What::put || what_ == What::get;
  if (one_sided && place_.bytes() != std::max(from_.size(), into_.size()))
    return fail(Code::invalid, "the region has {} bytes, not {}", place_.bytes(),
                std::max(from_.size(), into_.size()));
  if (what_ == What::put && place_.loop_count != 0)
    return fail(Code::invalid, "bytes are put to a region that is contiguous");
  if (!fabric_.here(rank_)) {
    begin_far(work.priority);
    return {};
  }
  if (one_sided) {
    copying_ = true;
    return check_place();
  }
  if (what_ != What::send || from_.empty()) return {};
  if (const auto known = fabric_.heap().find(from_.data(), from_.size())) {
    offset_ = *known;
    return {};
  }
  TRY(offset_, fabric_.heap().allocate(from_.size()));
  staged_ = true;
  copy_bytes(fabric_.heap().at(offset_), from_.data(), from_.size(), false);
  return {};
}

// As a transport does for others: within the heap, and put only past the board of the rank.
Result<void> Parcel::check_place() const {
  const Heap& heap = fabric_.heap();
  const auto [begin, end] = heap.part_of(fabric_.peers_[rank_].slot);
  const uint64_t least = begin + kBoardBytes;
  const bool fits = what_ == What::get ? place_.fits(heap.size(), into_.size())
                                       : place_.offset >= least && place_.offset <= end &&
                                             from_.size() <= end - place_.offset;
  if (fits) return {};
  return fail(Code::invalid, "the region is not within the heap of rank {}", rank_);
}

void Parcel::begin_far(Priority priority) {
  Transport* transport = &fabric_.transport();
  const Tag tag{fabric_.parcel_scope(rank_), tag_};
  job_ = fabric_.on_engine([transport, tag, priority, what = what_, rank = rank_, from = from_,
                            into = into_, place = place_] -> Task<Result<void>> {
    switch (what) {
      case What::send: return transport->send(rank, tag, from, priority);
      case What::receive: return transport->receive(rank, tag, into);
      case What::put: return transport->put(rank, place.offset, from, priority);
      default: return transport->get(rank, place, into, priority, tag);
    }
  });
}

Result<bool> Parcel::advance() {
  if (done_) return true;
  // The end of an epoch counts before anything that is found in memory.
  if (epoch_ != fabric_.epoch() || fabric_.over()) return fail(fabric_.epoch_error());
  if (job_ != nullptr) return advance_far();
  if (what_ == What::send) return advance_send();
  return what_ == What::receive ? advance_receive() : advance_copy();
}

Result<bool> Parcel::finished() {
  letter_ = nullptr;
  copying_ = false;
  done_ = true;
  return true;
}

Result<bool> Parcel::advance_far() {
  if (!job_->done()) return false;
  const Result<void> outcome = job_->result();
  if (outcome) return finished();
  if (outcome.error().code() == Code::unavailable && !fabric_.over()) fabric_.heard_left(rank_);
  return fail(outcome.error());
}

// Whoever has left takes and sends no letters any more.
bool Parcel::has_left() const {
  const uint32_t slot = fabric_.peers_[rank_].slot;
  return fabric_.heap().board(slot).left.load() != 0 || fabric_.ended(slot);
}

Result<void> Parcel::look_for_left() {
  if (!has_left()) return {};
  if (fabric_.over()) return fail(fabric_.epoch_error());
  fabric_.heard_left(rank_);
  return fail(left_error(rank_));
}

bool Parcel::show() {
  for (Letter& letter : fabric_.board().letters) {
    if (letter.state.load() != LetterState::none) continue;
    letter.to = rank_;
    letter.tag = tag_;
    letter.number = number_ = ++fabric_.letters_;
    letter.place = offset_;
    letter.bytes = from_.size();
    letter.state.store(LetterState::shown);
    letter_ = &letter;
    fabric_.ring(fabric_.peers_[rank_].slot);
    return true;
  }
  return false;
}

Result<bool> Parcel::advance_send() {
  if (letter_ == nullptr && !show()) return false;
  const bool gone = has_left();  // asked first: who leaves may have taken it just before
  const LetterState state = letter_->state.load();
  if (state == LetterState::taken || state == LetterState::refused) {
    const uint64_t wanted = letter_->wanted;
    letter_->state.store(LetterState::none);
    letter_ = nullptr;
    if (state == LetterState::refused) return fail(size_error(from_.size(), wanted));
    return finished();
  }
  if (gone) TRY_DO(look_for_left());
  return false;
}

Letter* Parcel::find_letter() const {
  Letter* first = nullptr;
  for (Letter& letter : fabric_.heap().board(fabric_.peers_[rank_].slot).letters) {
    if (letter.state.load() != LetterState::shown || letter.to != fabric_.rank() ||
        letter.tag != tag_)
      continue;
    if (first == nullptr || letter.number < first->number) first = &letter;
  }
  return first;
}

Result<bool> Parcel::advance_receive() {
  const uint32_t slot = fabric_.peers_[rank_].slot;
  if (letter_ == nullptr) {
    Letter* letter = find_letter();
    if (letter == nullptr) {
      TRY_DO(look_for_left());
      return false;
    }
    number_ = letter->number;
    auto shown = LetterState::shown;
    if (!letter->state.compare_exchange_strong(shown, LetterState::taking)) return false;
    letter_ = letter;
    copying_ = true;
    copied_ = 0;
  }
  const uint64_t bytes = letter_->bytes;
  const uint64_t place = letter_->place;
  const bool fits = bytes == into_.size() && place <= fabric_.heap().size() &&
                    bytes <= fabric_.heap().size() - place;
  if (fits && copied_ < bytes) {
    const uint64_t some = std::min(kCopyBytes, bytes - copied_);
    copy_bytes(into_.data() + copied_, fabric_.heap().at(place + copied_), some, false);
    copied_ += some;
    if (copied_ < bytes) return false;
  }
  letter_->wanted = into_.size();
  auto taking = LetterState::taking;
  const bool ours =
      letter_->number == number_ && letter_->state.compare_exchange_strong(
                                        taking, fits ? LetterState::taken : LetterState::refused);
  letter_ = nullptr;
  copying_ = false;
  if (!ours) return false;  // its sender gave it up
  fabric_.ring(slot);
  if (!fits) return fail(size_error(bytes, into_.size()));
  return finished();
}

Result<bool> Parcel::advance_copy() {
  const uint64_t bytes = place_.bytes();
  const uint64_t some = std::min(kCopyBytes, bytes - copied_);
  std::byte* heap = fabric_.heap().at(0);
  if (what_ == What::put)
    copy_bytes(heap + place_.offset + copied_, from_.data() + copied_, some, false);
  else
    place_.gather(heap, copied_, into_.subspan(copied_, some));
  copied_ += some;
  if (copied_ < bytes) return false;
  // What a rank that died meanwhile had begun to write is not given to anybody.
  if (fabric_.over()) return fail(fabric_.epoch_error());
  TRY_DO(look_for_left());
  return finished();
}

std::string Parcel::missing() const { return name_of(what_, rank_, tag_); }

Error Parcel::size_error(uint64_t sent, uint64_t wanted) const {
  return {Code::invalid,
          fmt::format("{} is {} bytes for who sends it, and {} for who receives it",
                      name_of(What::receive, what_ == What::send ? fabric_.rank() : rank_, tag_),
                      sent, wanted)};
}

// The fabric's part.

Result<std::shared_ptr<Parcel>> Parcel::begun(std::shared_ptr<Parcel> parcel, const Work& work) {
  TRY_DO(parcel->begin(work));
  TRY_DO(parcel->advance());  // what waits for nobody is done at once
  return parcel;
}

Result<std::shared_ptr<Parcel>> Fabric::send(const SendOptions& options) {
  std::shared_ptr<Parcel> made(new Parcel(*this, ParcelKind::send, options.rank, options.tag));
  return Parcel::begun(made,
                       {.from = options.bytes, .priority = options.priority, .site = options.site});
}

Result<std::shared_ptr<Parcel>> Fabric::receive(const ReceiveOptions& options) {
  std::shared_ptr<Parcel> made(new Parcel(*this, ParcelKind::receive, options.rank, options.tag));
  return Parcel::begun(made, {.into = options.into, .site = options.site});
}

Result<std::shared_ptr<Parcel>> Fabric::put(const PutOptions& options) {
  std::shared_ptr<Parcel> made(new Parcel(*this, ParcelKind::put, options.to.rank, 0));
  return Parcel::begun(made, {.from = options.bytes,
                              .region = options.to,
                              .priority = options.priority,
                              .site = options.site});
}

Result<std::shared_ptr<Parcel>> Fabric::get(const GetOptions& options) {
  std::shared_ptr<Parcel> made(new Parcel(*this, ParcelKind::get, options.from.rank, 0));
  return Parcel::begun(made, {.into = options.into,
                              .region = options.from,
                              .priority = options.priority,
                              .site = options.site});
}

Result<void> Fabric::wait(Parcel& parcel, Duration timeout) {
  return wait(static_cast<Pending&>(parcel), parking_.now() + timeout);
}

Task<Result<void>> Fabric::wait(World& world, std::shared_ptr<Parcel> parcel, Duration timeout) {
  const Instant deadline = parking_.now() + timeout;
  auto waited = co_await wait(world, *parcel, deadline);
  co_return waited;
}

Result<bool> Fabric::poll(Parcel& parcel) { return parcel.advance(); }

Result<Region> Fabric::region(const Strides& place) const {
  const auto [begin, end] = heap_->part_of(options_.slot);
  const uint64_t bytes = place.bytes();
  if (place.offset < begin + kBoardBytes || !place.fits(end, bytes))
    return fail(Code::invalid, "only what lies in this rank's part of the heap can be shown");
  return Region{options_.rank, place};
}

uint64_t Fabric::parcel_scope(uint32_t rank) const {
  const uint64_t words[] = {std::min(rank, options_.rank), std::max(rank, options_.rank)};
  return hash64(std::as_bytes(std::span(words)));
}

void Fabric::refuse_parcels() {
  Scopes scopes;
  for (uint32_t rank = 0; rank < world_size(); ++rank)
    if (!here(rank)) scopes.emplace_back(rank, parcel_scope(rank));
  telling_.push_back(
      on_engine([transport = &transport(), scopes = std::move(scopes), left = rank()] mutable {
        return refuse_all(*transport, std::move(scopes), left);
      }));
}

}  // namespace tutti
