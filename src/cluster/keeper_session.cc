#include "cluster/keeper_session.h"

namespace tutti {

KeeperSession::KeeperSession(std::unique_ptr<KeeperStream> stream, std::unique_ptr<Process> process,
                             std::string path)
    : stream_(std::move(stream)), process_(std::move(process)), path_(std::move(path)) {}

void KeeperSession::start(std::function<void()> over) {
  over_ = std::move(over);
  send(KeeperMessage::hello, make_hello());
  strands_.spawn(converse());
}

void KeeperSession::send(KeeperMessage kind, const google::protobuf::MessageLite& message) {
  if (gone_) return;
  if (std::exchange(must_reset_, false)) {
    is_resetting_ = true;
    encode_keeper_frame(KeeperMessage::reset, keeper::Reset(), 0, outbox_);
  }
  if (kind == KeeperMessage::spawn) ++spawns_;
  encode_keeper_frame(kind, message, 0, outbox_);
  if (std::exchange(is_writing_, true)) return;
  strands_.spawn(write_out());
}

Task<void> KeeperSession::write_out() {
  while (!outbox_.empty()) {
    std::string frames = std::exchange(outbox_, {});
    auto sent = co_await stream_->send_encoded(std::move(frames));
    if (!sent) co_return;  // converse() finds out too
  }
  is_writing_ = false;
}

Task<void> KeeperSession::converse() {
  while (true) {
    auto received = co_await stream_->receive();
    if (!received) {
      end(received.error());
      co_return;
    }
    take(std::move(*received));
    if (gone_) co_return;
  }
}

void KeeperSession::take(KeeperFrame frame) {
  if (frame.kind == KeeperMessage::welcome) {
    (void)frame.parse(welcome_);
    return;
  }
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
