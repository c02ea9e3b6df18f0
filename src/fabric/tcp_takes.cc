// Large messages of ours, and who takes them: the part of Answerer that matches the two.
#include "fabric/tcp_answerer.h"
#include "fabric/tcp_caller.h"

namespace tutti::tcp {

// ---- Ours ----

void Answerer::start(LargeSend& send) {
  send.serial = next_serial_++;
  sends_.emplace(Place(send.tag, send.serial), &send);
  by_serial_.emplace(send.serial, &send);
  offer(send);
}

// To the first who waits for it.
void Answerer::offer(LargeSend& send) {
  const auto waiting = untaken_.lower_bound({send.tag, 0});
  if (waiting == untaken_.end() || waiting->first != send.tag) return;
  Take& take = takes_.at(waiting->second);
  untaken_.erase(waiting);
  match(take, send);
}

void Answerer::remove(LargeSend& send) {
  if (bundle_ != nullptr) bundle_->withdraw(send.flow);
  by_serial_.erase(send.serial);
  sends_.erase({send.tag, send.serial});
}

// Its receiver waits for the next with the tag, and hears by its serial that it is another one.
void Answerer::withdraw(LargeSend& send) {
  remove(send);
  const auto found = takes_.find(send.taken_by);
  if (found == takes_.end() || found->second.send != &send) return;
  Take& take = found->second;
  take.send = nullptr;
  if (LargeSend* other = find_send(take.frame)) return match(take, *other);
  untaken_.emplace(take.frame.tag(), take.frame.id);
}

void Answerer::refused(uint64_t serial, const Error& why) {
  const auto found = by_serial_.find(serial);
  if (found == by_serial_.end()) return;
  LargeSend& send = *found->second;
  remove(send);
  send.finish(fail(why));
}

void Answerer::doubted(uint64_t serial) {
  const auto found = by_serial_.find(serial);
  if (found == by_serial_.end() || found->second->taken_by != 0) return;
  epoch_.caller(rank_).tell(FrameType::still, *found->second);
}

void Answerer::tell_waiting() {
  for (const auto& [serial, send] : by_serial_)
    if (send->taken_by == 0) epoch_.caller(rank_).tell(FrameType::waiting, *send);
}

// ---- Theirs ----

// What the take had before, if the link broke meanwhile; or the first that nobody else takes. Takes
// are asked for again before new ones are, so what is stale by then is free.
LargeSend* Answerer::find_send(const Frame& take) {
  LargeSend* free = nullptr;
  for (auto at = sends_.lower_bound({take.tag(), 0});
       at != sends_.end() && at->first.first == take.tag(); ++at) {
    LargeSend* send = at->second;
    if (send->taken_by == take.id && send->stale) return send;
    if (free == nullptr && (send->taken_by == 0 || send->stale)) free = send;
  }
  return free;
}

Result<void> Answerer::take_take(const Frame& frame) {
  if (takes_.size() >= kMaxOperations) return fail(Code::exhausted, "too many takes at once");
  const auto [added, is_new] = takes_.try_emplace(frame.id, Take{.frame = frame});
  if (!is_new) return fail(Code::corrupt, "take {} came twice", frame.id);
  Take& take = added->second;
  if (LargeSend* send = find_send(frame)) {
    match(take, *send);
  } else {
    untaken_.emplace(frame.tag(), frame.id);
  }
  return {};
}

void Answerer::match(Take& take, LargeSend& send) {
  const Frame frame = take.frame;
  if (frame.total != send.flow.bytes.size()) {
    const Error why =
        misfit(send.tag, context_.options.rank, send.flow.bytes.size(), rank_, frame.total);
    refuse(Refused::pull, frame.id, why);
    takes_.erase(frame.id);
    remove(send);
    return send.finish(fail(why));
  }
  const bool goes_on = send.taken_by == frame.id && send.stale;
  take.send = &send;
  send.taken_by = frame.id;
  send.stale = false;
  Flow& flow = send.flow;
  flow.frame.type = FrameType::data;
  flow.frame.id = frame.id;
  flow.frame.number = send.serial;
  flow.frame.total = frame.total;
  flow.next = goes_on ? frame.offset : 0;
  if (bundle_ != nullptr) bundle_->start(flow);
}

void Answerer::take_stop(uint64_t id) {
  gets_.erase(id);
  const auto found = takes_.find(id);
  if (found == takes_.end()) return;
  const Take take = found->second;
  takes_.erase(found);
  if (take.send == nullptr) {
    untaken_.erase({take.frame.tag(), id});
    return;
  }
  bundle_->withdraw(take.send->flow);
  take.send->taken_by = 0;
  offer(*take.send);
}

void Answerer::take_received(const Frame& frame) {
  const auto take = takes_.find(frame.id);
  if (take != takes_.end() && take->second.send != nullptr &&
      take->second.send->serial == frame.number) {
    takes_.erase(take);
  } else {
    take_stop(frame.id);  // its send was given up when it was there already
  }
  if (const auto found = by_serial_.find(frame.number); found != by_serial_.end()) {
    LargeSend& send = *found->second;
    remove(send);
    send.finish({});
  }
  answer(FrameType::released, frame.id);
}

// It may have been taken since this was said, and the receive be for what comes next: so we ask.
void Answerer::take_waiting(const Frame& frame) {
  if (const auto kept = kept_sends_.find(frame.id); kept != kept_sends_.end())
    return refuse(Refused::send, frame.id, Error(kept->second));
  const Receive* receive = first_expected(frame.tag());
  if (receive == nullptr || !receive->small()) return;
  if (doubts_.size() >= kMaxOperations) doubts_.clear();
  doubts_.insert_or_assign(frame.id, receive->order);
  answer(FrameType::doubt, frame.id);
}

// It had not been taken when we asked, so the same receive is for it, and cannot have it.
void Answerer::take_still(const Frame& frame) {
  const auto doubt = doubts_.find(frame.id);
  Receive* receive = first_expected(frame.tag());
  if (doubt == doubts_.end() || receive == nullptr || receive->order != doubt->second) return;
  doubts_.erase(doubt);
  const Error why =
      misfit(frame.tag(), rank_, frame.total, context_.options.rank, receive->into.size());
  forget(*receive);
  refuse(Refused::send, frame.id, why);
  receive->fail_with(why);
}

LargeSend::~LargeSend() {
  if (!done()) withdraw();
}
void LargeSend::withdraw() { answerer.withdraw(*this); }

}  // namespace tutti::tcp
