#include "cluster/keeper_session.h"

#include "base/queue_mark.h"

namespace tutti {

KeeperSession::KeeperSession(std::unique_ptr<KeeperStream> stream, std::unique_ptr<Process> process,
                             std::string path)
    : stream_(std::move(stream)), process_(std::move(process)), path_(std::move(path)) {}

void KeeperSession::start(std::function<void()> over, uint32_t highest) {
  over_ = std::move(over);
  strands_.spawn(say_hello(highest));
  stream_->stream().serve(*this, strands_, nullptr);
}

Task<void> KeeperSession::say_hello(uint32_t highest) {
  std::string hello;
  encode_keeper_frame(KeeperMessage::hello, make_hello(highest, kKeeperVersionOfSpares), 0, hello);
  (void)co_await stream_->send_encoded(std::move(hello));  // on_end() comes too
}

void KeeperSession::send(KeeperMessage kind, const google::protobuf::MessageLite& message) {
  if (gone_) return;
  // One that does not read, since it is stopped perhaps, is as good as dead. Whoever has it hears
  // of that soon, and not in the middle of what it does.
  if (outbox_.size() + message.ByteSizeLong() > kMaxKeeperOutbox) {
    strands_.cancel();
    if (!std::exchange(is_deaf_, true)) strands_.spawn(give_up());
    return;
  }
  if (std::exchange(must_reset_, false)) {
    is_resetting_ = true;
    encode_keeper_frame(KeeperMessage::reset, keeper::Reset(), 0, outbox_);
  }
  if (kind == KeeperMessage::spawn) ++spawns_;
  encode_keeper_frame(kind, message, 0, outbox_);
  TUTTI_QUEUE("keeper session: bytes that wait for a keeper", outbox_.size(),
              kMaxKeeperOutbox + kMaxKeeperMessage);
  if (std::exchange(is_writing_, true)) return;
  strands_.spawn(write_out());
}

Task<void> KeeperSession::write_out() {
  while (!outbox_.empty()) {
    std::string frames = std::exchange(outbox_, {});
    auto sent = co_await stream_->send_encoded(std::move(frames));
    if (!sent) co_return;  // on_end() comes too
  }
  is_writing_ = false;
}

Task<void> KeeperSession::give_up() {
  if (!gone_) end(Error(Code::exhausted, "it does not read what it is told"));
  co_return;
}

void KeeperSession::on_end(Result<void> why) {
  if (!gone_) end(stream_->end_error(why));
}

void KeeperSession::on_bytes(Bytes bytes, std::vector<Handle> handles) {
  if (gone_) return;
  stream_->take_in(bytes, std::move(handles));
  while (!gone_) {
    auto frame = stream_->next();
    if (frame && !*frame) return;
    if (frame) {
      take(std::move(**frame));
    } else {
      end(frame.error());
    }
  }
}

// Its welcome, or why we cannot speak with it.
void KeeperSession::take_first(const KeeperFrame& frame) {
  keeper::Failure refusal;
  if (frame.kind == KeeperMessage::failure && frame.parse(refusal)) return end(to_error(refusal));
  keeper::Welcome welcome;
  if (frame.kind != KeeperMessage::welcome || !frame.parse(welcome) || welcome.version() == 0)
    return end(Error(Code::corrupt, "it does not say welcome"));
  version_ = welcome.version();
  pid_ = static_cast<pid_t>(welcome.pid());
  if (expected_job_ != 0 && welcome.job() != 0 && welcome.job() != expected_job_) {
    is_resetting_ = true;
    std::string reset;
    encode_keeper_frame(KeeperMessage::reset, keeper::Reset(), 0, reset);
    outbox_.insert(0, reset);
  }
  is_writing_ = !outbox_.empty();
  if (is_writing_) strands_.spawn(write_out());
}

void KeeperSession::take(KeeperFrame frame) {
  if (version_ == 0) return take_first(frame);
  if (is_resetting_) {
    if (frame.kind == KeeperMessage::done) is_resetting_ = false;
    // It was empty, and cannot be emptied: no job can rely on it.
    if (frame.kind == KeeperMessage::failure) end(Error(Code::internal, "it cannot be reset"));
    return;
  }
  if (frame.kind == KeeperMessage::exited) {
    keeper::Exited exited;
    if (frame.parse(exited)) empty_after_ = exited.empty_after_spawns();
  }
  if (user_ != nullptr) user_->on_keeper_frame(std::move(frame));
}

void KeeperSession::end(const Error& why) {
  gone_ = true;
  strands_.cancel();
  if (user_ != nullptr) std::exchange(user_, nullptr)->on_keeper_gone(why);
  if (over_) over_();
}

}  // namespace tutti
