// Submitting many jobs at once.
#include "cluster/client.h"
#include "world/scope.h"

namespace tutti {
namespace {

constexpr Duration kShortestPause = 50ms;
constexpr Duration kLongestPause = 1s;

using ManyStream = wire::ClientStream<cluster::SubmitRequest, cluster::SubmittedMany>;

// What is left to do, whichever head is asked for it.
struct Left {
  ManyJobs& jobs;
  std::string key;              // of all, with the place of each behind it
  std::vector<bool> submitted;  // told to the jobs already
  std::vector<bool> done;
  size_t count;
};

// What one stream was asked for: its places are those of the head's answers.
struct Asked {
  std::vector<size_t> places;
  std::vector<bool> tell_end;
};

Task<Result<void>> ask_for_all(ManyStream& stream, Left& left, Asked& asked) {
  for (size_t place = 0; place < left.done.size(); ++place) {
    if (left.done[place]) continue;
    cluster::SubmitRequest request = left.jobs.request(place);
    request.set_key(fmt::format("{}-{}", left.key, place));
    asked.places.push_back(place);
    asked.tell_end.push_back(request.tell_end());
    auto sent = co_await stream.send(request);
    if (!sent) co_return fail(std::move(sent).error());
  }
  co_return co_await stream.finish();
}

void note(const cluster::Submitted& answer, Left& left, const Asked& asked) {
  if (answer.place() >= asked.places.size()) return;
  const size_t place = asked.places[answer.place()];
  if (left.done[place]) return;
  if (answer.job() != 0 && !left.submitted[place]) {
    left.submitted[place] = true;
    left.jobs.on_submitted(place, answer.job());
  }
  if (answer.job() == 0)
    left.jobs.on_refused(place, Error(static_cast<Code>(answer.code()), answer.refused()));
  if (answer.has_over()) left.jobs.on_over(place, answer.over());
  if (answer.job() != 0 && asked.tell_end[answer.place()] && !answer.has_over()) return;
  left.done[place] = true;
  --left.count;
}

Task<Result<void>> hear_of_all(ManyStream& stream, Left& left, const Asked& asked) {
  while (left.count != 0) {
    auto many = co_await stream.recv();
    if (!many) co_return fail(std::move(many).error());
    if (!*many) co_return fail(Code::unavailable, "the head stopped telling of the jobs");
    for (const cluster::Submitted& answer : (*many)->jobs()) note(answer, left, asked);
  }
  co_return {};
}

Task<Result<void>> submit_once(wire::Connection& connection, Left& left) {
  auto opened = co_await connection.open(api::kSubmitMany);
  if (!opened) co_return fail(std::move(opened).error());
  ManyStream& stream = *opened;
  Asked asked;
  Scope strands;
  strands.spawn(ask_for_all(stream, left, asked));
  strands.spawn(hear_of_all(stream, left, asked));
  co_return co_await strands.join();
}

bool may_come_back(const Error& why) {
  return why.code() == Code::unavailable || why.code() == Code::deadline || why.code() == Code::io;
}

}  // namespace

Task<Result<void>> ClusterClient::submit_many(ManyJobs& jobs) {
  const size_t count = jobs.count();
  Left left{.jobs = jobs,
            .key = fmt::format("{:016x}{:016x}", world_.random().next(), world_.random().next()),
            .submitted = std::vector<bool>(count),
            .done = std::vector<bool>(count),
            .count = count};
  Duration pause = kShortestPause;
  while (left.count != 0) {
    const size_t before = left.count;
    auto connection = co_await head_.connected();
    Result<void> told = fail(Code::unavailable, "no connection");
    if (connection) {
      told = co_await submit_once(**connection, left);
      if (!told && !may_come_back(told.error())) co_return told;
    } else if (may_come_back(connection.error()) || connection.error().code() == Code::not_found) {
      jobs.on_head_away(connection.error());
    } else {
      co_return fail(std::move(connection).error());
    }
    if (told) break;
    if (left.count != before) pause = kShortestPause;
    auto slept = co_await world_.clock().sleep(pause);
    if (!slept) co_return fail(std::move(slept).error());
    pause = std::min(2 * pause, kLongestPause);
  }
  co_return {};
}

}  // namespace tutti
