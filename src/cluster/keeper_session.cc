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
    KeeperFrame frame = std::move(*received);
    if (frame.kind == KeeperMessage::welcome) {
      (void)frame.parse(welcome_);
    } else if (user_ != nullptr) {
      user_->on_keeper_frame(std::move(frame));
    }
  }
}

void KeeperSession::end(const Error& why) {
  gone_ = true;
  strands_.cancel();
  if (user_ != nullptr) std::exchange(user_, nullptr)->on_keeper_gone(why);
  if (over_) over_();
}

}  // namespace tutti
