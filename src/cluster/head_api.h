// The head's server for everyone who is not an agent: users on its machine over a Unix socket,
// users elsewhere over TCP with certificates. Hosts that want to join come to the TCP port without
// one and can do nothing but that.
#pragma once

#include "cluster/api.h"
#include "cluster/head.h"
#include "cluster/join_desk.h"
#include "wire/methods.h"
#include "wire/server.h"

namespace tutti {

class HeadApi {
 public:
  // All of them outlive it.
  HeadApi(World& world, wire::Seals& seals, Head& head, JoinDesk& desk, wire::Identity self,
          std::string owner);

  // Until cancelled, on as many listeners as there are calls.
  Task<Result<void>> serve(Listener& listener);

 private:
  using Context = wire::CallContext;
  template <class MethodType, class Member>
  void add_for_users(const MethodType& method, Member member);

  Task<Result<cluster::SubmitReply>> submit(Context& call, const cluster::SubmitRequest& request);
  Task<Result<void>> run(Context& call,
                         wire::ServerStream<cluster::SubmitRequest, cluster::JobInfo>& stream);
  Task<Result<void>> submit_many(
      Context& call, wire::ServerStream<cluster::SubmitRequest, cluster::SubmittedMany>& stream);
  Task<Result<void>> watch(Context& call,
                           wire::ServerStream<cluster::JobRequest, cluster::JobInfo>& stream);
  Task<Result<cluster::JobInfo>> job(Context& call, const cluster::JobRequest& request);
  Task<Result<cluster::JobsReply>> jobs(Context& call, const cluster::JobsRequest& request);
  Task<Result<cluster::Empty>> kill(Context& call, const cluster::KillRequest& request);
  Task<Result<cluster::Empty>> signal(Context& call, const cluster::SignalRequest& request);
  Task<Result<cluster::StatusReply>> status(Context& call, const cluster::StatusRequest& request);
  Task<Result<cluster::PsReply>> ps(Context& call, const cluster::PsRequest& request);
  Task<Result<cluster::Empty>> forget(Context& call, const cluster::ForgetRequest& request);
  Task<Result<cluster::HostAbout>> host(Context& call, const cluster::HostRequest& request);
  Task<Result<cluster::TokenReply>> token(Context& call, const cluster::TokenRequest& request);
  Task<Result<cluster::JoinReply>> join(Context& call, const cluster::JoinRequest& request);
  Task<Result<cluster::RenewReply>> renew(Context& call, const cluster::RenewRequest& request);
  // The owner of the cluster and root may do what they like.
  bool rules(const Context& call) const;
  Result<void> check_free(const std::string& host) const;
  Result<void> check_owner(const Context& call, uint64_t job) const;
  template <class Stream>
  Task<Result<void>> tell_changes(uint64_t job, Stream& stream);

  World& world_;
  wire::Seals& seals_;
  Head& head_;
  JoinDesk& desk_;
  wire::Identity self_;
  std::string owner_;  // who runs the head
  wire::Methods methods_;
};

}  // namespace tutti
