#include "cluster/gang.h"

#include <csignal>

#include "cluster/control_pages.h"
#include "cluster/end_descendants.h"
#include "cluster/keeper_messages.h"
#include "cluster/output_readers.h"
#include "cluster/stop_watch.h"

namespace tutti {
namespace {

constexpr int kTimedOutCode = 124;       // as timeout(1)
constexpr int kNotExecutableCode = 126;  // as shells
constexpr int kNotFoundCode = 127;
constexpr int kSignalBase = 128;

// How long a keeper may take to end what it was told to end, beyond the ranks' grace: as long as it
// tries itself, and a little for its own exit. One that is stuck (stopped, say) is killed then.
constexpr Duration kKeeperPatience = kEndPatience + 2s;
// And after a person asked twice.
constexpr Duration kHurriedPatience = 2s;

class Gang {
 public:
  Gang(World& world, GangOptions options, GangListener& listener, Channel<int>& signals)
      : world_(world), options_(std::move(options)), listener_(listener), signals_(signals) {
    report_.ranks.resize(options_.size);
  }

  Task<GangReport> run();

 private:
  Task<Result<void>> start();
  Result<std::string> first_frames(uint16_t master_port) const;
  Task<Result<void>> converse(OutputReaders& readers);
  Result<void> on_spawned(KeeperFrame frame, OutputReaders& readers);
  Result<void> on_exited(const KeeperFrame& frame);
  std::string replies(uint64_t acknowledged);
  Task<void> finish_with_keeper(Result<void> conversation);

  void begin_end(GangEnd why);
  void note_running();
  keeper::End end_message() const;
  Task<void> limit_time();
  Task<void> obey_signals(OutputReaders& readers);
  Task<void> signal_ranks(int number);
  Task<void> pause();
  Task<void> insist(Duration patience);
  void kill_keeper(std::string why);
  Task<void> watch_keeper();
  Task<void> watch_output(OutputReaders& readers);
  Task<void> tell_keeper_to_end();

  World& world_;
  GangOptions options_;
  GangListener& listener_;
  Channel<int>& signals_;
  GangReport report_;
  StartedKeeper keeper_;
  std::vector<pid_t> strangers_;  // our descendants before there was a gang
  Scope* control_ = nullptr;
  Channel<char> signalled_{1};  // the keeper's answer to signal_ranks
  bool pausing_ = false;
  uint32_t exited_ = 0;
  bool spawned_ = false;
  bool ending_ = false;
  bool told_shutdown_ = false;
  std::string killed_because_;  // the keeper, by us
};

// Chosen by the kernel, and free a moment ago; nobody can promise more to a rank that will bind it.
Task<Result<uint16_t>> free_port(World& world) {
  Address any = Address::tcp("0.0.0.0", 0);  // as torch binds it
  auto listener = co_await world.network().listen(std::move(any));
  if (!listener) co_return fail(listener.error().context("find a free port for MASTER_PORT"));
  co_return (*listener)->address().port;
}

// Hello and the order go out together: the keeper finds both when it has started.
Result<std::string> Gang::first_frames(uint16_t master_port) const {
  keeper::Spawn spawn;
  for (const std::string& argument : options_.command) spawn.add_arguments(argument);
  for (const std::string& setting : options_.environment) spawn.add_environment(setting);
  spawn.set_folder(options_.folder);
  spawn.set_open_files(options_.open_files);
  keeper::CreateArena pages;
  pages.set_name("control");
  pages.set_size_bytes(options_.size * kControlPageBytes);
  spawn.set_control_arena(pages.name());
  const std::string address = fmt::format("MASTER_ADDR={}", options_.master_address);
  const std::string port = fmt::format("MASTER_PORT={}", master_port);
  for (uint32_t rank = 0; rank < options_.size; ++rank) {
    keeper::Spawn::Rank& one = *spawn.add_ranks();
    one.set_rank(rank);
    one.set_control_offset(rank * kControlPageBytes);
    for (std::string& setting : rank_environment(rank, options_.size))
      one.add_environment(std::move(setting));
    one.add_environment(address);
    one.add_environment(port);
  }
  if (spawn.ByteSizeLong() > kMaxKeeperMessage)
    return fail(Code::invalid,
                "the command and environment of {} ranks take {} bytes; {} is the most",
                options_.size, spawn.ByteSizeLong(), kMaxKeeperMessage);
  std::string frames;
  encode_keeper_frame(KeeperMessage::hello, make_hello(), 0, frames);
  encode_keeper_frame(KeeperMessage::create_arena, pages, 0, frames);
  encode_keeper_frame(KeeperMessage::spawn, spawn, 0, frames);
  return frames;
}

Task<Result<void>> Gang::start() {
  Processes& processes = world_.processes();
  CO_TRY_DO(processes.become_subreaper());
  CO_TRY(strangers_, processes.descendants());
  uint16_t port = options_.master_port;
  if (port == 0) {
    auto chosen = co_await free_port(world_);
    if (!chosen) co_return fail(std::move(chosen).error());
    port = *chosen;
  }
  CO_TRY(std::string frames, first_frames(port));
  CO_TRY(keeper_, start_keeper(world_, options_.keeper));
  // One that died already is found out by receiving from it.
  (void)co_await keeper_.stream->send_encoded(std::move(frames));
  co_return {};
}

Task<GangReport> Gang::run() {
  const Instant began = world_.clock().now();
  auto started = co_await start();
  if (!started) {
    report_.end = GangEnd::not_started;
    report_.error = std::move(started).error();
    co_return std::move(report_);
  }
  {
    Scope control;
    control_ = &control;
    OutputReaders readers(world_, listener_);
    control.spawn(limit_time());
    control.spawn(obey_signals(readers));
    control.spawn(watch_keeper());
    world_.processes().sweep_groups();
    auto conversation = co_await converse(readers);
    co_await finish_with_keeper(std::move(conversation));
    const bool patient = report_.end == GangEnd::finished || report_.end == GangEnd::rank_failed;
    report_.output = co_await readers.finish(patient && !report_.hurried);
    control.cancel();
    (void)co_await control.join();
    control_ = nullptr;
  }
  report_.elapsed = world_.clock().now() - began;
  co_return std::move(report_);
}

// Until the keeper closes its end, which it does when it has ended everything.
Task<Result<void>> Gang::converse(OutputReaders& readers) {
  while (true) {
    auto frame = co_await keeper_.stream->receive();
    if (!frame) co_return fail(std::move(frame).error());
    std::string answer;
    if (frame->kind == KeeperMessage::spawned) {
      CO_TRY_DO(on_spawned(std::move(*frame), readers));
      if (spawned_) control_->spawn(watch_output(readers));
    } else if (frame->kind == KeeperMessage::exited) {
      CO_TRY_DO(on_exited(*frame));
      answer = replies(report_.ranks.size());
    } else if (frame->kind == KeeperMessage::failure) {
      keeper::Failure failure;
      CO_TRY_DO(frame->parse(failure));
      report_.end = GangEnd::not_started;
      report_.error = to_error(failure);
      ending_ = true;
      answer = replies(0);
    } else if (frame->kind == KeeperMessage::signalled) {
      char done = 1;
      signalled_.try_send(done);
    }
    if (answer.empty()) continue;
    // A keeper that has closed its end is seen by the next receive.
    (void)co_await keeper_.stream->send_encoded(std::move(answer));
  }
}

Result<void> Gang::on_spawned(KeeperFrame frame, OutputReaders& readers) {
  keeper::Spawned spawned;
  TRY_DO(frame.parse(spawned));
  size_t next = 0;
  for (const keeper::Spawned::Rank& rank : spawned.ranks()) {
    if (rank.rank() >= options_.size || rank.handles() != 2 || next + 2 > frame.handles.size())
      return fail(Code::corrupt, "the keeper answers for a rank it was not asked to start");
    report_.ranks[rank.rank()].pid = static_cast<pid_t>(rank.pid());
    listener_.on_started(rank.rank(), static_cast<pid_t>(rank.pid()), false);
    for (const RankStream stream : {RankStream::output, RankStream::error})
      TRY_DO(readers.add(rank.rank(), stream, std::move(frame.handles[next++])));
  }
  spawned_ = spawned.last();
  return {};
}

Result<void> Gang::on_exited(const KeeperFrame& frame) {
  keeper::Exited exited;
  TRY_DO(frame.parse(exited));
  for (const keeper::Exited::Rank& rank : exited.ranks()) {
    if (rank.rank() >= options_.size || report_.ranks[rank.rank()].exit)
      return fail(Code::corrupt, "the keeper reports the exit of a rank that does not run");
    RankReport& report = report_.ranks[rank.rank()];
    report.exit = to_exit(rank);
    report.sequence = rank.sequence();
    report.last_signal_sent = rank.last_signal_sent();
    report.outlived_grace = rank.outlived_grace();
    report.lived = Duration(rank.lived_ns());
    ++exited_;
    listener_.on_exit(rank.rank(), report);
    if (report.exit->ok() || ending_) continue;
    report_.culprit = rank.rank();
    begin_end(GangEnd::rank_failed);
  }
  return {};
}

// What the keeper shall know after some exits, in one write.
std::string Gang::replies(uint64_t acknowledged) {
  std::string frames;
  if (exited_ == options_.size || report_.end == GangEnd::not_started) {
    told_shutdown_ = true;
    encode_keeper_frame(KeeperMessage::shutdown, keeper::Shutdown(), 0, frames);
  } else if (acknowledged > 0) {
    keeper::Acknowledge message;
    message.set_sequence(exited_);
    encode_keeper_frame(KeeperMessage::acknowledge, message, 0, frames);
  }
  return frames;
}

keeper::End Gang::end_message() const {
  keeper::End end;
  end.set_grace_ns(report_.hurried ? 0 : to_ns(options_.grace));
  // Who presses Ctrl-C expects the ranks to see what they would see without us.
  end.set_number(report_.signal == SIGINT ? SIGINT : SIGTERM);
  return end;
}

Task<void> Gang::tell_keeper_to_end() {
  const keeper::End end = end_message();
  (void)co_await keeper_.stream->send(KeeperMessage::end, end);
}

void Gang::note_running() {
  for (uint32_t rank = 0; rank < options_.size; ++rank)
    if (report_.ranks[rank].pid != 0 && !report_.ranks[rank].exit) report_.running.push_back(rank);
}

// The first reason is the one that is told.
void Gang::begin_end(GangEnd why) {
  if (ending_) return;
  ending_ = true;
  report_.end = why;
  note_running();
  listener_.on_ending(report_);
  control_->spawn(tell_keeper_to_end());
  control_->spawn(insist(options_.grace + kKeeperPatience));
}

Task<void> Gang::limit_time() {
  if (!options_.timeout) co_return;
  auto slept = co_await world_.clock().sleep(*options_.timeout);
  if (slept) begin_end(GangEnd::timed_out);
}

Task<void> Gang::obey_signals(OutputReaders& readers) {
  while (true) {
    auto signal = co_await signals_.recv();
    if (!signal) co_return;
    if (*signal == SIGTSTP) {
      if (!ending_ && !std::exchange(pausing_, true)) control_->spawn(pause());
      continue;
    }
    if (!ending_) {
      report_.signal = *signal;
      begin_end(GangEnd::interrupted);
      continue;
    }
    report_.hurried = true;
    listener_.on_hurried();
    readers.hurry();
    control_->spawn(tell_keeper_to_end());
    control_->spawn(insist(kHurriedPatience));
  }
}

Task<void> Gang::signal_ranks(int number) {
  keeper::Signal message;
  message.set_number(number);
  (void)co_await keeper_.stream->send(KeeperMessage::signal, message);
  (void)co_await signalled_.recv();
}

// Whoever presses Ctrl-Z wants the work to stop, not only its output.
Task<void> Gang::pause() {
  co_await signal_ranks(SIGSTOP);
  listener_.on_paused();
  co_await signal_ranks(SIGCONT);
  pausing_ = false;
}

// A keeper that does not do what it was told is killed, and its work done by us.
Task<void> Gang::insist(Duration patience) {
  auto slept = co_await world_.clock().sleep(patience);
  if (slept) kill_keeper("did not do what it was told");
}

// Its ranks may stop it: then nobody would hear of their ends, or end them.
Task<void> Gang::watch_keeper() {
  StopWatch watch;
  auto seen = StopWatch::Seen::going;
  while (seen != StopWatch::Seen::hopeless) {
    auto slept = co_await world_.clock().sleep(kKeeperLook);
    const bool lives = slept && keeper_.process->signal(0);
    if (!lives) co_return;
    seen = watch.look(world_.processes(), keeper_.process->pid());
  }
  kill_keeper("was stopped again and again");
}

void Gang::kill_keeper(std::string why) {
  if (keeper_.process->signal(SIGKILL) && killed_because_.empty()) killed_because_ = std::move(why);
}

Task<void> Gang::watch_output(OutputReaders& readers) {
  auto lost = co_await readers.failure();
  if (!lost) co_return;
  report_.error = *lost;
  begin_end(GangEnd::output_lost);
}

// The conversation is over: whatever the keeper did not end is ended here.
Task<void> Gang::finish_with_keeper(Result<void> conversation) {
  // A keeper we no longer understand must not go on; the stream's end tells it to clean up.
  (void)keeper_.stream->stream().shutdown_write();
  control_->spawn(insist(kKeeperPatience));
  auto exit = co_await keeper_.process->wait();
  if (told_shutdown_ && exit && exit->ok()) co_return;

  auto group = world_.processes().open_group(options_.keeper.group);
  EndDescendantsOptions rest{.group = group ? group->get() : nullptr, .spare = strangers_};
  auto ended = co_await end_descendants(world_, std::move(rest));
  if (!ended) report_.not_ended = ended.error();
  // A keeper that left by itself did what it could, and all there was to know is known.
  if (told_shutdown_ && exit && exit->signal == 0) co_return;
  const bool broke_off = conversation.error().code() == Code::unavailable;
  const std::string how = exit ? exit->text() : exit.error().text();
  const std::string what = killed_because_.empty()
                               ? fmt::format("ended: {}", how)
                               : fmt::format("{}, and was killed", killed_because_);
  const bool gone = broke_off || !killed_because_.empty();
  Error error(Code::unavailable,
              gone ? fmt::format("the keeper (process {}) {}", keeper_.process->pid(), what)
                   : conversation.error().text());
  if (!report_.error) report_.error = std::move(error);
  if (ending_) co_return;  // the reason for ending came first
  report_.end = GangEnd::keeper_lost;
  note_running();
}

}  // namespace

Task<GangReport> run_gang(World& world, GangOptions options, GangListener& listener,
                          Channel<int>& signals) {
  Gang gang(world, std::move(options), listener, signals);
  co_return co_await gang.run();
}

int GangReport::exit_code() const {
  switch (end) {
    case GangEnd::finished: return not_ended ? 1 : 0;
    case GangEnd::rank_failed: return ranks[*culprit].exit->shell_code();
    case GangEnd::timed_out: return kTimedOutCode;
    case GangEnd::interrupted: return kSignalBase + signal;
    case GangEnd::output_lost: return kSignalBase + SIGPIPE;
    case GangEnd::not_started:
      if (error->code() == Code::not_found) return kNotFoundCode;
      return error->code() == Code::denied || error->code() == Code::invalid ? kNotExecutableCode
                                                                             : 1;
    case GangEnd::keeper_lost: return 1;
    case GangEnd::killed:
    case GangEnd::preempted: return kSignalBase + SIGTERM;
  }
  return 1;
}

std::vector<std::string> rank_environment(uint32_t rank, uint32_t size) {
  std::vector<std::string> settings = {
      fmt::format("RANK={}", rank),
      fmt::format("LOCAL_RANK={}", rank),
      fmt::format("ROLE_RANK={}", rank),
  };
  for (const char* key : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"})
    settings.push_back(fmt::format("{}={}", key, size));
  settings.insert(settings.end(),
                  {"GROUP_RANK=0", "NODE_RANK=0", "GROUP_WORLD_SIZE=1", "ROLE_NAME=default"});
  return settings;
}

}  // namespace tutti
