#include "cluster/keeper.h"

#include <csignal>

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

Task<void> accept_next(Listener& listener, std::unique_ptr<Stream>& next, Scope& session) {
  auto accepted = co_await listener.accept();
  if (!accepted) co_return;
  next = std::move(*accepted);
  session.cancel();
}

Task<std::unique_ptr<Stream>> accept_only(Listener& listener) {
  auto accepted = co_await listener.accept();
  co_return accepted ? std::move(*accepted) : nullptr;
}

}  // namespace

// There may be very many keepers in one simulation, and most of them wait in keep_lingering() for a
// controller: what is needed before, after and with a controller has frames of its own.
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
  while (!keeper->leaving_) {
    controller = co_await keeper->serve_and_accept(std::move(controller), **listener);
    if (Strand::current()->cancelled()) keeper->leaving_ = true;
  }
  co_return co_await keeper->finish({});
}

Keeper::Keeper(World& world, KeeperOptions options) : world_(world), options_(std::move(options)) {}

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

// Gives the next controller, if it came before this one left.
Task<std::unique_ptr<Stream>> Keeper::serve_and_accept(std::unique_ptr<Stream> stream,
                                                       Listener& listener) {
  if (stream == nullptr && keeps_nothing()) return accept_soon(listener);
  if (stream == nullptr) return accept_only(listener);
  return serve_while_accepting(std::move(stream), listener);
}

Task<std::unique_ptr<Stream>> Keeper::accept_soon(Listener& listener) {
  const Instant patience = world_.clock().now() + kIdlePatience;
  Task<Result<std::unique_ptr<Stream>>> accepting = listener.accept();
  auto accepted = co_await with_deadline(world_.clock(), patience, std::move(accepting));
  if (!accepted && accepted.error().code() == Code::deadline) leaving_ = true;
  co_return accepted ? std::move(*accepted) : nullptr;
}

// What a session has while it lasts is all in this frame and in that of read_commands().
Task<std::unique_ptr<Stream>> Keeper::serve_while_accepting(std::unique_ptr<Stream> stream,
                                                            Listener& listener) {
  std::unique_ptr<Stream> next;
  Session session(std::move(stream));
  session_ = &session;
  session.strands.spawn(begin_session(session));
  session.strands.spawn(accept_next(listener, next, session.strands));
  (void)co_await session.strands.join();
  session_ = nullptr;
  co_return next;
}

Task<Result<void>> Keeper::serve_one(std::unique_ptr<Stream> stream) {
  Session session(std::move(stream));
  session_ = &session;
  session.strands.spawn(begin_session(session));
  auto served = co_await session.strands.join();
  session_ = nullptr;
  co_return served;
}

// What nobody acknowledged is told before anything is answered.
Task<Result<void>> Keeper::begin_session(Session& session) {
  auto greeted = co_await greet(session.stream);
  if (!greeted) co_return greeted;
  session.strands.spawn(send_exits(session));
  session.strands.spawn(read_commands(session));
  co_return {};
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

// Most of a keeper's life is spent in here: what is not needed while waiting is elsewhere.
Task<void> Keeper::read_commands(Session& session) {
  while (true) {
    auto handled = co_await handle_all(session);
    if (!handled) break;
    const Result<size_t> count = co_await session.stream.read_more();
    if (!session.stream.note_read(count)) break;
  }
  session.strands.cancel();
}

// Those commands that have come.
Task<Result<void>> Keeper::handle_all(Session& session) {
  while (true) {
    auto frame = session.stream.next();
    if (!frame) co_return fail(std::move(frame).error());
    if (!*frame) co_return {};
    const bool was_leaving = leaving_;
    Task<Result<void>> handling = handle(session.stream, std::move(**frame));
    auto handled = co_await std::move(handling);
    if (!handled) co_return handled;
    // It reads on meanwhile: the controller may want no more grace.
    if (leaving_ && !was_leaving) session.strands.spawn(leave_after_grace(session.strands));
  }
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
    if (!written) co_return;  // read_commands sees the end of the stream too
  }
  session.is_sending = false;
}

}  // namespace tutti
