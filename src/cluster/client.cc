#include "cluster/client.h"

#include <algorithm>

#include "cluster/output_spool.h"
#include "wire/failure.h"
#include "world/scope.h"

namespace tutti {
namespace {

// Between tries to reach one that was there before.
constexpr Duration kShortestPause = 50ms;
constexpr Duration kLongestPause = 1s;
// For the last words of a connection that we close.
constexpr Duration kClosePatience = 1s;
constexpr Duration kConnectPatience = 5s;
// For a head to say where an agent is now, before that is tried again where it was.
constexpr Duration kFindPatience = 2s;

bool is_over(cluster::JobState state) { return state >= cluster::SUCCEEDED; }

// Another try may reach it, or one that was started in its place.
bool may_come_back(const Error& why) {
  return why.code() == Code::unavailable || why.code() == Code::not_found ||
         why.code() == Code::deadline || why.code() == Code::io;
}

// How it ended is told to the calls that were on it.
Task<void> run_to_end(wire::Connection& connection) { (void)co_await connection.run(); }

// Moves on with each that was taken: what was not comes again.
Task<Result<void>> tell_pieces(Bytes bytes, cluster::OutputRequest& next,
                               OutputListener& listener) {
  while (bytes.size() >= kSpoolHeaderBytes) {
    const auto process = load_le<uint32_t>(bytes.data());
    const auto stream = static_cast<uint8_t>(load_le<uint32_t>(bytes.data() + 4));
    const auto size = load_le<uint32_t>(bytes.data() + 8);
    if (bytes.size() - kSpoolHeaderBytes < size) break;
    const Bytes piece = bytes.subspan(kSpoolHeaderBytes, size);
    auto taken = co_await listener.on_output(process, stream, piece);
    if (!taken) co_return taken;
    bytes = bytes.subspan(kSpoolHeaderBytes + size);
    next.set_place(next.place() + kSpoolHeaderBytes + size);
  }
  co_return {};
}

// Streams that ended without a word end like all others.
Task<Result<void>> tell_events(const cluster::OutputPiece& piece, OutputListener& listener) {
  for (const cluster::ProcessEvent& event : piece.events()) {
    if (event.silent_stream() == 0) {
      listener.on_event(event);
      continue;
    }
    const auto stream = static_cast<uint8_t>(event.silent_stream());
    auto taken = co_await listener.on_output(event.process(), stream, Bytes());
    if (!taken) co_return taken;
  }
  co_return {};
}

// One conversation with an agent.
Task<Result<void>> follow_once(ApiCaller& agent, OutputPlace& place, OutputListener& listener,
                               std::optional<Error>& refused) {
  auto connection = co_await agent.connected();
  if (!connection) co_return fail(std::move(connection).error());
  auto stream = co_await (*connection)->open(api::kOutput);
  if (!stream) co_return fail(std::move(stream).error());
  cluster::OutputRequest& next = place.next;
  auto sent = co_await stream->send(next);
  if (!sent) co_return fail(std::move(sent).error());
  while (true) {
    auto piece = co_await stream->recv();
    if (!piece) co_return fail(std::move(piece).error());
    if (!*piece) co_return fail(Code::unavailable, "the agent stopped telling of the job");
    place.trouble.reset();
    const Bytes bytes = as_bytes((*piece)->pieces());
    auto told = co_await tell_events(**piece, listener);
    if (told) {
      next.set_event((*piece)->event());
      next.set_life((*piece)->life());
      next.set_place((*piece)->place() - bytes.size());
      told = co_await tell_pieces(bytes, next, listener);
    }
    if (!told) {
      refused = told.error();
      co_return fail(std::move(told).error());
    }
    next.set_place((*piece)->place());
    if (!(*piece)->over()) continue;
    place.epoch = std::max(place.epoch, (*piece)->epoch());
    co_return {};
  }
}

}  // namespace

ApiCaller::ApiCaller(World& world, Address address, wire::MakeSeal make_seal, wire::Identity self)
    : world_(world),
      address_(std::move(address)),
      make_seal_(std::move(make_seal)),
      self_(std::move(self)) {}

ApiCaller::~ApiCaller() = default;

Task<Result<wire::Connection*>> ApiCaller::connected() {
  if (connection_ != nullptr && connection_->usable()) co_return connection_.get();
  auto turn = co_await connecting_.acquire();
  if (!turn) co_return fail(std::move(turn).error());
  auto made = co_await connect();
  connecting_.release();
  co_return made;
}

Task<Result<wire::Connection*>> ApiCaller::connect() {
  if (connection_ != nullptr && connection_->usable()) co_return connection_.get();
  co_await close();
  Address address = address_;
  Task<Result<std::unique_ptr<Stream>>> connecting = world_.network().connect(std::move(address));
  const Instant patience = world_.clock().now() + kConnectPatience;
  auto stream = co_await with_deadline(world_.clock(), patience, std::move(connecting));
  if (!stream) co_return fail(std::move(stream).error());
  CO_TRY(auto seal, make_seal_());
  wire::ConnectionOptions options{
      .self = self_, .limits = api::limits(), .address = address_.text()};
  auto greeted =
      co_await wire::Connection::greet(world_.clock(), std::move(*stream), std::move(seal),
                                       wire::Side::connecting, nullptr, std::move(options));
  if (!greeted) co_return fail(std::move(greeted).error());
  connection_ = std::move(*greeted);
  running_.spawn(run_to_end(*connection_));
  co_return connection_.get();
}

Task<void> ApiCaller::close() {
  if (connection_ == nullptr) co_return;
  const Shield until_done;
  connection_->close(world_.clock().now() + kClosePatience);
  (void)co_await running_.join();
  connection_.reset();
}

ClusterClient::ClusterClient(World& world, wire::Seals& seals, ClientOptions options)
    : world_(world),
      seals_(seals),
      options_(std::move(options)),
      head_(world_, options_.head, seal_for(options_.head.kind, {wire::Role::head}),
            options_.self) {}

wire::MakeSeal ClusterClient::seal_for(Address::Kind kind, wire::Roles roles) {
  return [this, kind, roles] {
    wire::SealRequest request{.kind = kind, .side = wire::Side::connecting, .expected = {}};
    request.expected.roles = roles;
    return seals_.make(std::move(request));
  };
}

Task<Result<void>> ClusterClient::connect() {
  auto connection = co_await head_.connected();
  if (!connection) co_return fail(std::move(connection).error());
  co_return {};
}

template <class Request>
Task<Result<cluster::JobInfo>> ClusterClient::watch_once(
    const wire::StreamMethod<Request, cluster::JobInfo>& method, const Request& request,
    JobListener& listener) {
  auto connection = co_await head_.connected();
  if (!connection) co_return fail(std::move(connection).error());
  auto stream = co_await (*connection)->open(method);
  if (!stream) co_return fail(std::move(stream).error());
  auto sent = co_await stream->send(request);
  if (!sent) co_return fail(std::move(sent).error());
  while (true) {
    auto info = co_await stream->recv();
    if (!info) co_return fail(wire::as_said(info.error()));
    if (!*info) co_return fail(Code::unavailable, "the head stopped telling of the job");
    listener.on_change(**info);
    if (is_over((*info)->state())) co_return std::move(**info);
  }
}

template <class Request>
Task<Result<cluster::JobInfo>> ClusterClient::watch_with(
    const wire::StreamMethod<Request, cluster::JobInfo>& method, Request request,
    JobListener& listener) {
  CO_TRY_DO(co_await connect());
  Duration pause = kShortestPause;
  while (true) {
    const Instant asked = world_.clock().now();
    auto info = co_await watch_once(method, request, listener);
    if (info || !may_come_back(info.error())) co_return info;
    // A job that is gone is not a head that is.
    auto again = co_await connect();
    if (again && info.error().code() == Code::not_found) co_return info;
    if (world_.clock().now() - asked > kLongestPause) pause = kShortestPause;
    if (!again) listener.on_head_away(info.error());
    auto slept = co_await world_.clock().sleep(pause);
    if (!slept) co_return fail(std::move(slept).error());
    pause = std::min(2 * pause, kLongestPause);
  }
}

Task<Result<cluster::JobInfo>> ClusterClient::run(cluster::SubmitRequest request,
                                                  JobListener& listener) {
  if (request.key().empty())
    request.set_key(fmt::format("{:016x}{:016x}", world_.random().next(), world_.random().next()));
  return watch_with(api::kRun, std::move(request), listener);
}

Task<Result<cluster::JobInfo>> ClusterClient::watch(uint64_t job, JobListener& listener) {
  cluster::JobRequest request;
  request.set_job(job);
  return watch_with(api::kWatch, std::move(request), listener);
}

Result<std::unique_ptr<ApiCaller>> ClusterClient::agent_of(const cluster::HostAbout& host) {
  Address address = options_.own_agent;
  if (host.name() != options_.own_host) {
    TRY(address, Address::parse(host.api()));
  }
  wire::MakeSeal seal = seal_for(address.kind, {wire::Role::agent});
  return std::make_unique<ApiCaller>(world_, std::move(address), std::move(seal), options_.self);
}

// Whether it is elsewhere than it was.
Task<Result<bool>> ClusterClient::find_again(OutputPlace& place) {
  if (place.host.name() == options_.own_host) co_return false;
  cluster::HostRequest request;
  request.set_name(place.host.name());
  const Instant patience = world_.clock().now() + kFindPatience;
  Task<Result<cluster::HostAbout>> asking = head_.ask(api::kHost, std::move(request));
  auto host = co_await with_deadline(world_.clock(), patience, std::move(asking));
  if (!host) co_return fail(std::move(host).error());
  const bool moved = host->api() != place.host.api();
  place.host = std::move(*host);
  co_return moved;
}

Task<Result<void>> ClusterClient::follow(OutputPlace& place, OutputListener& listener) {
  CO_TRY(std::unique_ptr<ApiCaller> agent, agent_of(place.host));
  Duration pause = kShortestPause;
  std::optional<Error> refused;
  Result<void> outcome;
  while (true) {
    const uint64_t before = place.next.place();
    auto told = co_await follow_once(*agent, place, listener, refused);
    if (told) break;
    // One that ends cancels its calls: another may come in its place.
    const bool ended_there = told.error().code() == Code::cancelled;
    if (!ended_there) place.trouble = told.error();
    if (refused || (!may_come_back(told.error()) && !ended_there)) {
      outcome = fail(told.error());
      break;
    }
    if (place.next.place() != before) pause = kShortestPause;
    auto slept = co_await world_.clock().sleep(pause);
    if (!slept) {
      outcome = fail(slept.error());
      break;
    }
    pause = std::min(2 * pause, kLongestPause);
    auto moved = co_await find_again(place);
    if (!moved || !*moved) continue;
    co_await agent->close();
    auto there = agent_of(place.host);
    if (!there) {
      outcome = fail(there.error());
      break;
    }
    agent = std::move(*there);
    pause = kShortestPause;
  }
  co_await agent->close();
  co_return outcome;
}

}  // namespace tutti
