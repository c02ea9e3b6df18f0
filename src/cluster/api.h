// What head and agents can be asked for, by everyone who is not one of them. Messages are in
// head.proto; client.h is the convenient way to ask.
#pragma once

#include "cluster/head.pb.h"
#include "cluster/look.pb.h"
#include "wire/limits.h"
#include "wire/method.h"

namespace tutti::api {

inline constexpr wire::Method<cluster::SubmitRequest, cluster::SubmitReply> kSubmit{"head.submit"};
// Submits with its first message and watches: one round trip to the first news.
inline constexpr wire::StreamMethod<cluster::SubmitRequest, cluster::JobInfo> kRun{"head.run"};
// Many jobs over one stream: each is answered when it is kept, and when it is over if that was
// asked for.
inline constexpr wire::StreamMethod<cluster::SubmitRequest, cluster::SubmittedMany> kSubmitMany{
    "head.submit_many"};
// The job as it is, then each change, until it is over.
inline constexpr wire::StreamMethod<cluster::JobRequest, cluster::JobInfo> kWatch{"head.watch"};
inline constexpr wire::Method<cluster::JobRequest, cluster::JobInfo> kJob{"head.job"};
inline constexpr wire::Method<cluster::JobsRequest, cluster::JobsReply> kJobs{"head.jobs"};
inline constexpr wire::Method<cluster::KillRequest, cluster::Empty> kKill{"head.kill"};
inline constexpr wire::Method<cluster::SignalRequest, cluster::Empty> kSignal{"head.signal"};
inline constexpr wire::Method<cluster::StatusRequest, cluster::StatusReply> kStatus{"head.status"};
inline constexpr wire::Method<cluster::PsRequest, cluster::PsReply> kPs{"head.ps"};
inline constexpr wire::Method<cluster::ForgetRequest, cluster::Empty> kForget{"head.forget"};
// An agent that was started anew is elsewhere than it was.
inline constexpr wire::Method<cluster::HostRequest, cluster::HostAbout> kHost{"head.host"};
// A secret for one host that wants to join.
inline constexpr wire::Method<cluster::TokenRequest, cluster::TokenReply> kToken{"head.token"};
inline constexpr wire::Method<cluster::JoinRequest, cluster::JoinReply> kJoin{"head.join"};
// For agents too: another certificate of the same role and name.
inline constexpr wire::Method<cluster::RenewRequest, cluster::RenewReply> kRenew{"head.renew"};

inline constexpr wire::StreamMethod<cluster::OutputRequest, cluster::OutputPiece> kOutput{
    "agent.output"};
inline constexpr wire::Method<cluster::PsRequest, cluster::HostInfos> kAgentPs{"agent.ps"};

// What the job's processes do there; the answer comes in pieces, since records may be many.
inline constexpr wire::StreamMethod<cluster::LookRequest, cluster::LookPiece> kAgentLook{
    "agent.look"};

// A job has 1 MiB at most, and a list of jobs or processes is cut before it is larger.
inline wire::Limits limits() {
  wire::Limits limits;
  limits.max_calls = 256;
  limits.max_message = 8_MiB;
  limits.receive_budget = 16_MiB;
  limits.handling_budget = 16_MiB;
  return limits;
}

}  // namespace tutti::api
