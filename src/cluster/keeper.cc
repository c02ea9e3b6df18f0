#include "cluster/keeper.h"

#include <csignal>

#include "base/queue_mark.h"
#include "base/version.h"
#include "cluster/end_descendants.h"
#include "cluster/keeper_messages.h"

namespace tutti {
namespace {

// A controller that says nothing is not one.
constexpr Duration kHelloPatience = 10s;
// For the next controller, of a keeper that has nothing to keep: one whose agent died before it
// could write down that it had started it is found by nobody.
constexpr Duration kIdlePatience = 60s;

// Controllers that wait for the one before them to leave; of more, the oldest give up.
constexpr size_t kMostControllers = 16;
// Commands that came and were not handled.
constexpr size_t kMostUnhandled = 2 * kMaxKeeperMessage;
constexpr Duration kUnhandledPause = 1ms;

}  // namespace

// There may be very many keepers in one simulation, and most of them wait for something to happen:
// what is needed before, after and with a controller has frames of its own.
Task<Result<void>> keep(World& world, KeeperOptions options, std::unique_ptr<Stream> controller) {
  const bool linger = !options.linger.empty();
  auto keeper = std::make_unique<Keeper>(world, std::move(options));
  return linger ? Keeper::keep_lingering(std::move(keeper), std::move(controller))
                : Keeper::keep_once(std::move(keeper), std::move(controller));
}

Task<Result<void>> Keeper::keep_once(std::unique_ptr<Keeper> keeper,
                                     std::unique_ptr<Stream> controller) {
  CO_TRY_DO(keeper->begin());
  auto served = co_await keeper->serve_one(std::move(controller));
  co_return co_await keeper->finish(std::move(served));
}

// The listener stands before the first controller may die, so that the next finds it.
Task<Result<void>> Keeper::keep_lingering(std::unique_ptr<Keeper> keeper,
                                          std::unique_ptr<Stream> controller) {
  auto listener = co_await keeper->begin_lingering();
  if (!listener) co_return fail(std::move(listener).error());
  (*listener)->serve(*keeper, keeper->lives_);
  keeper->controllers_.push_back(std::move(controller));
  while (!keeper->leaving_) {
    controller = co_await keeper->next_controller();
    if (controller != nullptr) (void)co_await keeper->serve_one(std::move(controller));
    if (Strand::current()->cancelled()) keeper->leaving_ = true;
  }
  co_return co_await keeper->finish({});
}

Keeper::Keeper(World& world, KeeperOptions options)
    : world_(world), options_(std::move(options)), controller_came_(world.clock()) {}

Result<void> Keeper::begin() {
  TRY_DO(world_.processes().become_subreaper());
  make_group();
  return {};
}

// For each job a new one: Linux 6.18 kills at birth whoever clone3 starts inside a cgroup that was
// ever ended with cgroup.kill.
void Keeper::make_group() {
  if (options_.group.empty()) return;
  group_.reset();
  auto group = world_.processes().create_group(options_.group);
  if (group) group_ = std::move(*group);
  no_group_because_ = group ? "" : group.error().text();
}

Task<Result<std::unique_ptr<Listener>>> Keeper::begin_lingering() {
  CO_TRY_DO(begin());
  Address address = Address::unix_socket(options_.linger);
  auto listener = co_await world_.network().listen(std::move(address));
  if (!listener) co_return fail(listener.error().context("listen for the next controller"));
  co_return listener;
}

Task<Result<void>> Keeper::finish(Result<void> served) {
  EndDescendantsOptions everything{.group = group_.get(), .spare = {}};
  auto ended = co_await end_descendants(world_, std::move(everything));
  world_.clock().disarm(tending_);
  lives_.cancel();
  (void)co_await lives_.join();
  if (!ended) co_return ended;
  // A session that broke off is how controllers die; one that could not begin is an error.
  if (!served && served.error().code() != Code::unavailable) co_return served;
  co_return {};
}

void Keeper::on_connection(std::unique_ptr<Stream> stream) {
  if (controllers_.size() >= kMostControllers) controllers_.erase(controllers_.begin());
  controllers_.push_back(std::move(stream));
  TUTTI_QUEUE("keeper: controllers that wait", controllers_.size(), kMostControllers);
  if (session_ != nullptr) session_->over.set();
  controller_came_.ring();
}

Task<std::unique_ptr<Stream>> Keeper::next_controller() {
  const Instant patience = keeps_nothing() ? world_.clock().now() + kIdlePatience : Instant(kNever);
  while (controllers_.empty()) {
    if (world_.clock().now() >= patience) leaving_ = true;
    if (leaving_) co_return nullptr;
    auto woken = co_await controller_came_.until(patience);
    if (!woken) co_return nullptr;
  }
  std::unique_ptr<Stream> next = std::move(controllers_.front());
  controllers_.erase(controllers_.begin());
  if (controllers_.empty()) controllers_.shrink_to_fit();
  co_return next;
}

// What a session has while it lasts is all in this frame.
Task<Result<void>> Keeper::serve_one(std::unique_ptr<Stream> stream) {
  Session session(*this, std::move(stream));
  Result<void> begun;
  session_ = &session;
  session.strands.spawn(begin_session(session, begun));
  if (!controllers_.empty()) session.over.set();
  (void)co_await session.over.wait();
  session.strands.cancel();
  (void)co_await session.strands.join();
  session_ = nullptr;
  co_return begun;
}

// What nobody acknowledged is told before anything is answered.
Task<void> Keeper::begin_session(Session& session, Result<void>& begun) {
  begun = co_await greet(session.stream);
  if (!begun) {
    session.over.set();
    co_return;
  }
  session.strands.spawn(send_exits(session));
  session.is_handling = true;
  session.strands.spawn(handle_all(session));
  session.stream.stream().serve(session, session.strands, &world_.clock());
}

void Keeper::Session::on_bytes(Bytes bytes, std::vector<Handle> handles) {
  stream.take_in(bytes, std::move(handles));
  if (!std::exchange(is_handling, true)) strands.spawn(keeper.handle_all(*this));
}

Duration Keeper::Session::pause() {
  return stream.unused_bytes() > kMostUnhandled ? kUnhandledPause : Duration::zero();
}

Task<Result<void>> Keeper::greet(KeeperStream& stream) {
  const Instant patience = world_.clock().now() + kHelloPatience;
  Task<Result<void>> greeting = welcome(stream);
  co_return co_await with_deadline(world_.clock(), patience, std::move(greeting));
}

Task<Result<void>> Keeper::welcome(KeeperStream& stream) {
  auto frame = co_await stream.receive();
  if (!frame) co_return fail(std::move(frame).error());
  keeper::Hello hello;
  if (frame->kind != KeeperMessage::hello)
    co_return fail(Code::invalid, "the first message must be a hello");
  CO_TRY_DO(frame->parse(hello));
  auto version = agree_on_version(hello, options_.speak);
  if (!version) {
    const keeper::Failure failure = to_failure(version.error());
    (void)co_await stream.send(KeeperMessage::failure, failure);
    co_return fail(std::move(version).error());
  }
  version_ = *version;
  spawns_ = 0;
  keeper::Welcome welcome;
  welcome.set_version(version_);
  welcome.set_program(fmt::format("tutti {}", kVersion));
  if (version_ >= kKeeperVersionOfJobs) welcome.set_job(job_);
  welcome.set_pid(world_.processes().own_pid());
  if (group_ != nullptr) welcome.set_group(group_->name());
  welcome.set_no_group_because(options_.group.empty() ? "none was asked for" : no_group_because_);
  co_return co_await stream.send(KeeperMessage::welcome, welcome);
}

// Those commands that have come.
Task<void> Keeper::handle_all(Session& session) {
  while (true) {
    auto frame = session.stream.next();
    if (frame && !*frame) break;
    const bool was_leaving = leaving_;
    Result<void> handled;
    if (frame) {
      Task<Result<void>> handling = handle(session.stream, std::move(**frame));
      handled = co_await std::move(handling);
    }
    if (!frame || !handled) {
      session.over.set();
      co_return;
    }
    // It reads on meanwhile: the controller may want no more grace.
    if (leaving_ && !was_leaving) session.strands.spawn(leave_after_grace(session.over));
  }
  session.is_handling = false;
}

keeper::Exited Keeper::exits_after(uint64_t& sent) {
  keeper::Exited exited;
  if (resetting_) return exited;  // of those nobody needs to hear, unless it fails
  for (auto exit = exits_.upper_bound(sent); exit != exits_.end(); ++exit) {
    sent = exit->first;
    // Version 1 knows no spares; it acknowledges them with the next rank.
    if (version_ < kKeeperVersionOfSpares && exit->second.spare()) continue;
    *exited.add_ranks() = exit->second;
  }
  for (const uint32_t rank : std::exchange(failing_, {})) exited.add_failing(rank);
  if (exited.ranks_size() != 0 && nothing_is_left()) exited.set_empty_after_spawns(spawns_);
  return exited;
}

void Keeper::tell_exits() {
  // One that ends may be over but for whoever waits for it: it takes no strand any more, and the
  // next controller is told.
  if (session_ == nullptr || session_->strands.cancelled()) return;
  if (std::exchange(session_->is_sending, true)) return;
  session_->strands.spawn(send_new_exits(*session_));
}

Task<void> Keeper::send_new_exits(Session& session) {
  co_await yield();  // those that ended at the same time travel together
  co_await send_exits(session);
}

// Everything that it was not told yet, oldest first, many in one message.
Task<void> Keeper::send_exits(Session& session) {
  while (true) {
    const keeper::Exited exited = exits_after(session.sent);
    if (exited.ranks_size() == 0 && exited.failing_size() == 0) break;
    auto written = co_await session.stream.send(KeeperMessage::exited, exited);
    if (!written) co_return;  // the end of the stream is told too
  }
  session.is_sending = false;
}

}  // namespace tutti
