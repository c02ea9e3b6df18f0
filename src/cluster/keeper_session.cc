#include "cluster/keeper_session.h"

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "base/queue_mark.h"

namespace tutti {
namespace {

// A spare that does not take its rank, or what does not end, holds up a keeper for ten seconds.
constexpr int kSilentLooks = 30;
// Later than that, we did not run when we should have: the keeper's words may be there, unread.
constexpr Duration kLateLook = 1500ms;
constexpr char kUninterruptible = 'D';  // the kernel's letter
// Between looks at one that has a job and of which nothing is expected: it may have been stopped.
constexpr Duration kIdleLook = 10s;
// It is no rank's: what is sent to it reaches nobody, and the keeper says so.
constexpr uint32_t kNobody = UINT32_MAX;

}  // namespace

KeeperSession::KeeperSession(World& world, std::unique_ptr<KeeperStream> stream,
                             std::unique_ptr<Process> process, std::string path)
    : world_(world),
      stream_(std::move(stream)),
      process_(std::move(process)),
      path_(std::move(path)) {
  // It may be stopped, and not say so itself.
  const auto other = stream_->stream().peer_credentials();
  if (other) pid_ = other->pid;
}

void KeeperSession::start(std::function<void()> over, uint32_t highest) {
  over_ = std::move(over);
  strands_.spawn(say_hello(highest));
  stream_->stream().serve(*this, strands_, nullptr);
  look_closely();
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
  if (kind == KeeperMessage::signal) ++signals_;
  if (kind == KeeperMessage::shutdown) is_leaving_ = true;
  if (kind != KeeperMessage::acknowledge) look_closely();
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
  if (!gone_) end_from_outside("it did not read what it was told, and was killed");
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
  silent_looks_ = 0;
  silence_told_ = false;
  if (version_ == 0) return take_first(frame);
  if (frame.kind == KeeperMessage::signalled) ++signals_heard_;
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

KeeperOwes KeeperSession::owes() const {
  // One that we have just started has nothing that could be lost with it.
  const bool is_mute = version_ == 0 && process_ != nullptr;
  if (is_mute || is_resetting_ || is_leaving_) return KeeperOwes::end;
  const KeeperOwes asked = user_ != nullptr ? user_->keeper_owes() : KeeperOwes::nothing;
  const bool answers = version_ != 0 && signals_heard_ >= word_;
  return asked == KeeperOwes::nothing && !answers ? KeeperOwes::answer : asked;
}

bool KeeperSession::is_heard() const {
  return signals_heard_ >= word_ && world_.clock().now() <= look_due_ + kLateLook;
}

void KeeperSession::look_at(Instant due) {
  look_due_ = due;
  world_.clock().arm(looking_, due);
}

void KeeperSession::look_closely() {
  if (std::exchange(looks_closely_, true)) return;
  look_at(world_.clock().now() + kKeeperLook);
}

void KeeperSession::look() {
  looks_closely_ = false;
  // Of one that has ended we hear by its stream; its number may be another's by then.
  if (gone_ || (process_ != nullptr && !process_->signal(0))) return;
  const Instant now = world_.clock().now();
  const bool punctual = now <= look_due_ + kLateLook;
  const StopWatch::Seen seen = stop_watch_.look(world_.processes(), pid());
  if (seen == StopWatch::Seen::hopeless)
    return end_from_outside("it was stopped again and again, and was killed");
  if (seen == StopWatch::Seen::woken) {
    TUTTI_LOG(warn, "a keeper was stopped; it goes on", {{"keeper", path_}, {"pid", pid()}});
    look_closely();
  }
  if (owes() != KeeperOwes::nothing) {
    count_silence(punctual);
    if (!gone_) ask_for_a_word();
    return;
  }
  silent_looks_ = 0;
  end_awaited_ = false;
  if (!looking_.armed() && user_ != nullptr) look_at(now + kIdleLook);
}

// It had a second for a word since the last look, and we had one to read it.
void KeeperSession::count_silence(bool punctual) {
  const bool ends = owes() >= KeeperOwes::stop;
  if (!punctual || (ends && !end_awaited_)) silent_looks_ = 0;
  end_awaited_ = ends;
  if (signals_heard_ >= word_) return;
  if (punctual) ++silent_looks_;
  if (silent_looks_ < kSilentLooks) return;
  give_up_after(kSilentLooks);
  if (gone_ || user_ == nullptr || std::exchange(silence_told_, true)) return;
  user_->on_keeper_silent();
}

void KeeperSession::give_up_after(int silent_looks) {
  const KeeperOwes owed = owes();
  if (gone_ || owed < KeeperOwes::stop || !end_awaited_ || silent_looks_ < silent_looks) return;
  // It waits for a device or a file system, and would not end either.
  const bool hangs = world_.processes().state_of(pid()) == kUninterruptible;
  if (owed == KeeperOwes::end || !hangs) end_from_outside("it did not answer, and was killed");
}

// It answers in turn, so what it is busy with is over by then.
void KeeperSession::ask_for_a_word() {
  look_closely();
  if (signals_heard_ < word_) return;
  keeper::Signal nothing;
  nothing.add_ranks(kNobody);
  send(KeeperMessage::signal, nothing);
  word_ = signals_;
}

void KeeperSession::end_from_outside(const std::string& why) {
  if (gone_) return;
  TUTTI_LOG(error, "a keeper is ended from outside",
            {{"keeper", path_}, {"pid", pid()}, {"why", why}});
  Processes& processes = world_.processes();
  if (process_ != nullptr) {
    (void)process_->signal(SIGKILL);
  } else if (pid_ > 1 && pid_ != processes.own_pid()) {
    (void)processes.signal(pid_, SIGKILL);
  }
  end(Error(Code::unavailable, why));
}

void KeeperSession::end(const Error& why) {
  gone_ = true;
  world_.clock().disarm(looking_);
  strands_.cancel();
  if (user_ != nullptr) std::exchange(user_, nullptr)->on_keeper_gone(why);
  if (over_) over_();
}

}  // namespace tutti
