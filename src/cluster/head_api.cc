#include "cluster/head_api.h"

#include <algorithm>

#include "base/log.h"
#include "cluster/submissions.h"
#include "wire/connection.h"

namespace tutti {
namespace {

// Some megabytes; whoever has more wants the newest.
constexpr uint32_t kMostJobsAtOnce = 5'000;
// Of one head. A person opens a few, a script some.
constexpr uint32_t kMostClients = 1'024;

constexpr std::string_view kRoot = "root";

template <class T>
Task<Result<T>> refuse(std::string who) {
  co_return fail(Code::denied, "{} may not ask this of the head; it serves users of the cluster",
                 who);
}

template <class>
struct AnswerOf;
template <class T>
struct AnswerOf<Task<Result<T>>> {
  using Type = T;
};

}  // namespace

// Everything but joining and renewing is for users: an agent's certificate starts no jobs.
template <class MethodType, class Member>
void HeadApi::add_for_users(const MethodType& method, Member member) {
  methods_.add(method, [this, member](Context& call, auto& argument) {
    using Answer = decltype((this->*member)(call, argument));
    const wire::Peer& peer = call.connection.peer();
    if (peer.identity.role == wire::Role::user) return (this->*member)(call, argument);
    return refuse<typename AnswerOf<Answer>::Type>(peer.text());
  });
}

HeadApi::HeadApi(World& world, wire::Seals& seals, Head& head, JoinDesk& desk, wire::Identity self,
                 std::string owner)
    : world_(world),
      seals_(seals),
      head_(head),
      desk_(desk),
      self_(std::move(self)),
      owner_(std::move(owner)) {
  add_for_users(api::kSubmit, &HeadApi::submit);
  add_for_users(api::kSubmitMany, &HeadApi::submit_many);
  add_for_users(api::kRun, &HeadApi::run);
  add_for_users(api::kWatch, &HeadApi::watch);
  add_for_users(api::kJob, &HeadApi::job);
  add_for_users(api::kJobs, &HeadApi::jobs);
  add_for_users(api::kKill, &HeadApi::kill);
  add_for_users(api::kSignal, &HeadApi::signal);
  add_for_users(api::kStatus, &HeadApi::status);
  add_for_users(api::kPs, &HeadApi::ps);
  add_for_users(api::kForget, &HeadApi::forget);
  add_for_users(api::kHost, &HeadApi::host);
  add_for_users(api::kToken, &HeadApi::token);
  methods_.add(api::kJoin, *this, &HeadApi::join);
  methods_.add(api::kRenew, *this, &HeadApi::renew);
}

Task<Result<void>> HeadApi::serve(Listener& listener) {
  wire::SealRequest request{
      .kind = listener.address().kind, .side = wire::Side::accepting, .expected = {}};
  request.expected.roles = {wire::Role::user, wire::Role::guest, wire::Role::agent};
  wire::ServerOptions options{.connection = {.self = self_, .limits = api::limits()},
                              .max_connections = kMostClients,
                              .max_greeting = kMostClients / 4};
  wire::Server server(
      world_.clock(), methods_, [this, request] { return seals_.make(request); },
      std::move(options));
  co_return co_await server.serve(listener);
}

Task<Result<cluster::SubmitReply>> HeadApi::submit(Context& call,
                                                   const cluster::SubmitRequest& request) {
  auto id = co_await head_.submit(request, call.connection.peer().identity.name);
  if (!id) co_return fail(std::move(id).error());
  cluster::SubmitReply reply;
  reply.set_job(*id);
  co_return reply;
}

Task<Result<void>> HeadApi::submit_many(
    Context& call, wire::ServerStream<cluster::SubmitRequest, cluster::SubmittedMany>& stream) {
  Submissions submissions(world_, head_, call.connection.peer().identity.name, stream);
  co_return co_await submissions.run();
}

template <class Stream>
Task<Result<void>> HeadApi::tell_changes(uint64_t job, Stream& stream) {
  auto info = co_await head_.any_info(job);
  while (info) {
    auto sent = co_await stream.send(*info);
    if (!sent) co_return fail(std::move(sent).error());
    if (is_over(info->state())) co_return {};
    const uint64_t seen = info->changes();
    auto next = co_await head_.change_of(job, seen);
    info = std::move(next);
  }
  co_return fail(std::move(info).error());
}

Task<Result<void>> HeadApi::run(
    Context& call, wire::ServerStream<cluster::SubmitRequest, cluster::JobInfo>& stream) {
  auto request = co_await stream.recv();
  if (!request) co_return fail(std::move(request).error());
  if (!*request) co_return fail(Code::invalid, "there is no job in the call");
  auto id = co_await head_.submit(std::move(**request), call.connection.peer().identity.name);
  if (!id) co_return fail(std::move(id).error());
  co_return co_await tell_changes(*id, stream);
}

Task<Result<void>> HeadApi::watch(
    Context&, wire::ServerStream<cluster::JobRequest, cluster::JobInfo>& stream) {
  auto request = co_await stream.recv();
  if (!request) co_return fail(std::move(request).error());
  if (!*request) co_return fail(Code::invalid, "there is no job in the call");
  const uint64_t id = (*request)->job();
  co_return co_await tell_changes(id, stream);
}

Task<Result<cluster::JobInfo>> HeadApi::job(Context&, const cluster::JobRequest& request) {
  co_return co_await head_.any_info(request.job());
}

Task<Result<cluster::JobsReply>> HeadApi::jobs(Context&, const cluster::JobsRequest& request) {
  cluster::JobsRequest asked = request;
  const uint32_t most = request.most() == 0 ? kMostJobsAtOnce : request.most();
  asked.set_most(std::min(most, kMostJobsAtOnce));
  co_return co_await head_.all_jobs(std::move(asked));
}

bool HeadApi::rules(const Context& call) const {
  const std::string& name = call.connection.peer().identity.name;
  return name == owner_ || name == kRoot;
}

Result<void> HeadApi::check_owner(const Context& call, uint64_t job) const {
  TRY(const cluster::JobInfo info, head_.info(job));
  const std::string& name = call.connection.peer().identity.name;
  if (name == info.user() || rules(call)) return {};
  return fail(Code::denied, "job {} is {}'s, and you are {}; only {} may do this", job, info.user(),
              name, info.user() == kRoot ? "root" : info.user() + " and root");
}

Task<Result<cluster::Empty>> HeadApi::kill(Context& call, const cluster::KillRequest& request) {
  CO_TRY_DO(check_owner(call, request.job()));
  cluster::KillRequest asked = request;
  std::string user = call.connection.peer().identity.name;
  CO_TRY_DO(co_await head_.kill(std::move(asked), std::move(user)));
  co_return cluster::Empty();
}

Task<Result<cluster::Empty>> HeadApi::signal(Context& call, const cluster::SignalRequest& request) {
  CO_TRY_DO(check_owner(call, request.job()));
  const std::string user = call.connection.peer().identity.name;
  CO_TRY_DO(head_.signal(request, user));
  co_return cluster::Empty();
}

Task<Result<cluster::StatusReply>> HeadApi::status(Context&,
                                                   const cluster::StatusRequest& request) {
  co_return head_.status(request.brief());
}

Task<Result<cluster::PsReply>> HeadApi::ps(Context&, const cluster::PsRequest& request) {
  cluster::PsRequest asked = request;
  co_return co_await head_.processes(std::move(asked));
}

Task<Result<cluster::Empty>> HeadApi::forget(Context& call, const cluster::ForgetRequest& request) {
  if (!rules(call))
    co_return fail(Code::denied, "only {}, whose cluster this is, and root may forget hosts",
                   owner_);
  std::string host = request.host();
  CO_TRY_DO(co_await head_.forget_host(std::move(host)));
  co_return cluster::Empty();
}

Task<Result<cluster::HostAbout>> HeadApi::host(Context&, const cluster::HostRequest& request) {
  co_return head_.host(request.name());
}

Task<Result<cluster::TokenReply>> HeadApi::token(Context& call,
                                                 const cluster::TokenRequest& request) {
  const std::string& asks = call.connection.peer().identity.name;
  const std::string& user = request.user().empty() ? asks : request.user();
  if (user != asks && !rules(call))
    co_return fail(Code::denied,
                   "only {}, whose cluster this is, and root give tokens to others; ask for one "
                   "for yourself",
                   owner_);
  co_return desk_.make_token(Duration(request.lifetime_ns()), user);
}

// A certificate in the name of a host that lives would be good for taking its place.
Result<void> HeadApi::check_free(const std::string& host) const {
  const cluster::StatusReply status = head_.status(false);
  const bool taken = std::ranges::any_of(status.hosts(), [&](const cluster::HostStatus& one) {
    return one.name() == host && (one.alive() || one.away_for_ns() != 0);
  });
  if (!taken) return {};
  TUTTI_LOG(warn, "refused to let a host join under the name of another", {{"name", host}});
  return fail(Code::exists,
              "there is a host {} in this cluster already, and it lives; stop its agent, or join "
              "with another --name",
              host);
}

Task<Result<cluster::JoinReply>> HeadApi::join(Context&, const cluster::JoinRequest& request) {
  CO_TRY_DO(check_free(request.name()));
  co_return desk_.admit(request);
}

Task<Result<cluster::RenewReply>> HeadApi::renew(Context& call,
                                                 const cluster::RenewRequest& request) {
  const wire::Peer& peer = call.connection.peer();
  const wire::Role role = peer.identity.role;
  if (role != wire::Role::user && role != wire::Role::agent)
    co_return fail(Code::denied, "{} has no certificate to be renewed; join with a token",
                   peer.text());
  TUTTI_LOG(info, "renewed a certificate", {{"of", peer.text()}});
  co_return desk_.renew(request, peer.identity);
}

}  // namespace tutti
