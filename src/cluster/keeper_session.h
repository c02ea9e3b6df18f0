// An agent's conversation with one of its keepers, for as long as either lives. Frames are put in
// line and written by a strand that lives only while there is something to write; what comes is
// given to the job that has the keeper at the time.
//
// While something is expected of the keeper it is looked at once a second, and asked for a word.
// One that was stopped has to go on; one that is kept from its work is ended from outside with all
// that it has. So is one that says nothing for long while an end is waited for; of any other that
// is only told, since a file system that hangs holds it up as long as it likes. Silence is counted
// in looks: while we do not run ourselves, stopped perhaps, nobody is silent.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cluster/keeper_client.h"
#include "cluster/keeper_messages.h"
#include "cluster/stop_watch.h"
#include "world/scope.h"
#include "world/timer.h"
#include "world/world.h"

namespace tutti {

// Of what waits for a keeper: some orders as large as they may be.
constexpr size_t kMaxKeeperOutbox = 4 * kMaxKeeperMessage;

class KeeperSession;

// What a keeper is to do next.
enum class KeeperOwes : uint8_t {
  nothing,
  answer,
  stop,  // of some of its ranks, in whose place others wait
  end,   // of everything
};

// Whoever has the keeper. Calls must not wait, nor destroy the session.
class KeeperUser {
 public:
  virtual void on_keeper_frame(KeeperFrame frame) = 0;
  virtual void on_keeper_gone(const Error& why) = 0;
  virtual KeeperOwes keeper_owes() const { return KeeperOwes::nothing; }
  // It says nothing for long, and is waited for. Once for each silence.
  virtual void on_keeper_silent() {}

 protected:
  ~KeeperUser() = default;
};

class KeeperSession final : private ByteTaker {
 public:
  // A keeper that was started, or one whose socket was connected to; `path` is that socket.
  KeeperSession(World& world, std::unique_ptr<KeeperStream> stream,
                std::unique_ptr<Process> process, std::string path);

  // Says hello; the welcome is kept to itself. Until it comes nothing else is sent: a keeper that
  // does not listen yet could not be found by the agent after us, and must not start anything.
  void start(std::function<void()> over, uint32_t highest = kHighestKeeperVersion);
  // Of a keeper that is found: should it have another job's ranks, it is reset before anything.
  void expect_job(uint64_t job) { expected_job_ = job; }
  void set_user(KeeperUser* user) { user_ = user; }

  void send(KeeperMessage kind, const google::protobuf::MessageLite& message);
  // The keeper has said that nothing is left of what it was told to start.
  bool is_empty() const { return spawns_ != 0 && empty_after_ == spawns_; }
  // Whether it may have another job: only one that says whose ranks it has can be found again.
  bool is_reusable() const { return !gone_ && version_ >= kKeeperVersionOfJobs; }
  // Of a keeper that is empty: its next user begins with a Reset, and hears nothing of before.
  void forget_job() { must_reset_ = true; }

  const std::string& path() const { return path_; }
  pid_t pid() const { return process_ != nullptr ? process_->pid() : pid_; }
  bool gone() const { return gone_; }
  // Whether it said a word when it was looked at last, and that was not long ago. Else we may know
  // less than it has told: we did not run.
  bool is_heard() const;
  // Ends it from outside if an end is waited for, for so many silent looks.
  void give_up_after(int silent_looks);
  // It does not do its work, and is killed. Its user ends what it leaves, as of any that is gone.
  void end_from_outside(const std::string& why);
  // Nothing of it runs any more; then it may be destroyed.
  bool over() const { return strands_.size() == 0; }
  // Breaks the conversation off; the keeper lingers.
  void leave() {
    gone_ = true;
    world_.clock().disarm(looking_);
    strands_.cancel();
  }
  Scope& strands() { return strands_; }

 private:
  void on_bytes(Bytes bytes, std::vector<Handle> handles) override;
  void on_end(Result<void> why) override;
  Task<void> give_up();
  void take(KeeperFrame frame);
  void take_first(const KeeperFrame& frame);
  Task<void> say_hello(uint32_t highest);
  Task<void> write_out();
  void end(const Error& why);
  KeeperOwes owes() const;
  void look_at(Instant due);
  void look_closely();
  void look();
  void count_silence(bool punctual);
  void ask_for_a_word();

  class Looking final : public Timer {
   public:
    explicit Looking(KeeperSession& session) : session_(session) {}

   private:
    void fire() override { session_.look(); }
    KeeperSession& session_;
  };

  World& world_;
  std::unique_ptr<KeeperStream> stream_;
  std::unique_ptr<Process> process_;
  std::string path_;
  std::string outbox_;
  uint32_t version_ = 0;  // 0: it has not said welcome yet
  pid_t pid_ = 0;         // of one that we have not started
  KeeperUser* user_ = nullptr;
  std::function<void()> over_;
  uint64_t expected_job_ = 0;
  uint64_t spawns_ = 0;
  uint64_t empty_after_ = 0;
  uint64_t signals_ = 0;        // that it was sent; each is answered
  uint64_t signals_heard_ = 0;  // of these
  uint64_t word_ = 0;           // the last that only asks for a word, among them
  int silent_looks_ = 0;        // punctual ones in a row that found it owing a word
  bool silence_told_ = false;
  bool end_awaited_ = false;  // at the last look
  Instant look_due_{};
  StopWatch stop_watch_;
  Looking looking_{*this};
  bool looks_closely_ = false;
  bool must_reset_ = false;
  bool is_resetting_ = false;  // by ourselves: what comes until it is answered is of the job before
  bool is_writing_ = true;     // until the keeper has answered, nothing is written but hello
  bool is_deaf_ = false;
  bool is_leaving_ = false;  // it was told to
  bool gone_ = false;
  Scope strands_{Scope::Root{}};
};

}  // namespace tutti
