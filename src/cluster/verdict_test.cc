#include "cluster/verdict.h"

#include <doctest/doctest.h>

#include <csignal>

namespace tutti {
namespace {

RankReport ended(Exit exit, uint64_t sequence, int signal_sent = 0) {
  return {
      .pid = 100, .exit = exit, .sequence = sequence, .last_signal_sent = signal_sent, .lived = 1s};
}
RankReport killed_after_grace(uint64_t sequence) {
  RankReport report = ended({.signal = SIGKILL}, sequence, SIGKILL);
  report.outlived_grace = true;
  return report;
}

struct Case {
  GangReport report;
  std::vector<RankTail> tails;
  VerdictOptions options{.grace = 5s, .timeout = 10min, .colour = false};

  explicit Case(GangEnd end, std::vector<RankReport> ranks) : tails(ranks.size()) {
    report.end = end;
    report.ranks = std::move(ranks);
    report.elapsed = 1500ms;
  }
  std::string text() const { return verdict_text(report, tails, options); }
};

TEST_CASE("a gang that finished needs no verdict") {
  const Case all_well(GangEnd::finished, {ended({}, 1), ended({}, 2)});
  CHECK(all_well.text().empty());
  CHECK(all_well.report.exit_code() == 0);
}

TEST_CASE("a failure names the culprit, its last words, and who was ended because of it") {
  Case failed(GangEnd::rank_failed, {ended({.signal = SIGTERM}, 3, SIGTERM), ended({.code = 3}, 1),
                                     killed_after_grace(4), ended({.code = 1}, 2)});
  failed.report.culprit = 1;
  failed.report.running = {0, 2, 3};
  failed.tails[1].output.add("step 7", LineEnd::newline);
  failed.tails[1].error.add("ValueError: no", LineEnd::newline);
  CHECK(failed.text() ==
        "tutti: rank 1 failed first: exit code 3, after 1.00 s\n"
        "  its last lines (stderr):\n"
        "    | ValueError: no\n"
        "  failed next: rank 3: exit code 1\n"
        "  ended because of it: rank 2 (SIGKILL, still there 5.00 s after being asked to end)\n"
        "  ended because of it: rank 0 (SIGTERM)\n"
        "  elapsed: 1.50 s; exit code 3\n");
  const Json json = verdict_json(failed.report, failed.tails);
  CHECK(json["culprit"] == 1);
  CHECK(json["last_lines"] == Json::array({"ValueError: no"}));
  CHECK(json["exit_code"] == 3);
}

TEST_CASE("nobody is told as ended because of itself, nor of a grace that it never had") {
  Case failed(GangEnd::rank_failed,
              {ended({.signal = SIGKILL}, 1, SIGKILL), ended({.signal = SIGKILL}, 2, SIGKILL)});
  failed.report.culprit = 0;
  failed.report.ranks[0].signalled_by = "ann";
  failed.report.running = {0, 1};
  CHECK(failed.text() ==
        "tutti: rank 0 failed first: killed by SIGKILL (killed), after 1.00 s\n"
        "  its last lines: none, it printed nothing\n"
        "  who killed it: ann, with `tutti signal`\n"
        "  ended because of it: rank 1 (SIGKILL)\n"
        "  elapsed: 1.50 s; exit code 137\n");
  CHECK(verdict_json(failed.report, failed.tails)["signalled_by"] == "ann");
}

TEST_CASE("a rank that only printed to standard output is quoted from there") {
  Case failed(GangEnd::rank_failed, {ended({.signal = SIGSEGV}, 1)});
  failed.report.culprit = 0;
  failed.tails[0].output.add("step 7", LineEnd::newline);
  CHECK(failed.text().find("its last lines (stdout):\n    | step 7\n") != std::string::npos);
  CHECK(failed.report.exit_code() == 128 + SIGSEGV);
}

TEST_CASE("last lines are quoted without what they tell a terminal") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\033[1;4mbold\033[0m plain", "bold plain"},
      {"\033]0;title\aone", "one"},
      {"\033]8;;http://x\033\\link\033]8;;\033\\ two", "link two"},
      {"\033(B\0337three\0338\033=", "three"},
      {"cut \033[1;", "cut "},
      {"cut \033]0;tit", "cut "},
      {"cut \033", "cut "},
      {"cut \033[1;…", "cut …"},
      {"\033]0;no end \033[1mfour", "four"},
      {"\033\033[1mfive", "five"},
  };
  for (const auto& [printed, quoted] : cases) {
    Case failed(GangEnd::rank_failed, {ended({.code = 1}, 1)});
    failed.report.culprit = 0;
    failed.tails[0].error.add(printed, LineEnd::newline);
    CHECK(failed.text().find("    | " + quoted + "\n") != std::string::npos);
  }
}

TEST_CASE("seconds are told to the millisecond") {
  CHECK(dump_json(rounded_seconds(19'981'818ns)) == "0.02");
  CHECK(dump_json(rounded_seconds(1'234'567'890ns)) == "1.235");
}

TEST_CASE("a timeout tells who still ran") {
  Case late(GangEnd::timed_out, {ended({}, 1), ended({.signal = SIGTERM}, 2, SIGTERM)});
  late.report.running = {1};
  CHECK(late.text() ==
        "tutti: the time of 10 min 0 s is up; rank 1 still ran\n"
        "  had finished: rank 0\n"
        "  ended: rank 1 (SIGTERM)\n"
        "  elapsed: 1.50 s; exit code 124\n");
  late.options.timeout.reset();
  CHECK(late.text().starts_with("tutti: its time is up; rank 1 still ran\n"));
}

TEST_CASE("who killed or preempted a job is named, and the notice that it had") {
  Case killed(GangEnd::killed, {ended({.signal = SIGTERM}, 1, SIGTERM)});
  CHECK(killed.text().starts_with("tutti: killed by somebody else, with `tutti kill`"));
  killed.report.ended_by = "ann";
  CHECK(killed.text().starts_with("tutti: killed by ann, with `tutti kill`"));
  Case preempted(GangEnd::preempted, {ended({}, 1)});
  CHECK(preempted.text().starts_with("tutti: preempted, with `tutti kill --notice`;"));
  preempted.report.ended_by = "ann";
  preempted.report.notice = 30s;
  CHECK(preempted.text().starts_with(
      "tutti: preempted by ann, with `tutti kill --notice`, which gave it 30"));
  const Json json = verdict_json(preempted.report, preempted.tails);
  CHECK(json["ended_by"] == "ann");
  CHECK(json["notice_s"] == 30);
}

TEST_CASE("who asked twice is not told of a grace that nobody had") {
  Case twice(GangEnd::interrupted, {ended({.signal = SIGKILL}, 1, SIGKILL)});
  twice.report.signal = SIGINT;
  twice.report.running = {0};
  twice.report.hurried = true;
  CHECK(twice.text().find("ended: rank 0 (SIGKILL, when a second signal came)\n") !=
        std::string::npos);
}

TEST_CASE("what could not be ended is told however the gang ended") {
  for (const GangEnd end : {GangEnd::finished, GangEnd::timed_out, GangEnd::keeper_lost}) {
    Case left(end, {ended({}, 1)});
    left.report.error = Error(Code::unavailable, "the keeper ended");
    left.report.not_ended = Error(Code::deadline, "processes 7 do not end even when killed");
    CHECK(left.text().find("  still alive: processes 7 do not end") != std::string::npos);
    CHECK(left.report.exit_code() != 0);
    CHECK(verdict_json(left.report, left.tails)["still_alive"] ==
          "processes 7 do not end even when killed");
  }
}

TEST_CASE("a keeper that had to be killed is told of, whatever the run ended for") {
  Case late(GangEnd::timed_out, {ended({}, 1)});
  late.report.error = Error(Code::unavailable, "the keeper was stopped again and again");
  CHECK(late.text().find("  trouble: the keeper was stopped again and again\n") !=
        std::string::npos);
}

TEST_CASE("a command that cannot be run has the exit code of shells") {
  Case missing(GangEnd::not_started, {RankReport{}});
  missing.report.error = Error(Code::not_found, "nope: no such command");
  CHECK(missing.text() == "tutti: nope: no such command\n");
  CHECK(missing.report.exit_code() == 127);
  missing.report.error = Error(Code::denied, "x: not executable");
  CHECK(missing.report.exit_code() == 126);
}

TEST_CASE("when the keeper is lost, its ranks are told as ended") {
  Case lost(GangEnd::keeper_lost, {RankReport{.pid = 1}, RankReport{.pid = 2}});
  lost.report.running = {0, 1};
  lost.report.error = Error(Code::unavailable, "the keeper ended");
  CHECK(lost.text() ==
        "tutti: the keeper ended; ranks 0-1 still ran\n"
        "  ended: ranks 0-1 (SIGKILL)\n"
        "  elapsed: 1.50 s; exit code 1\n");
}

}  // namespace
}  // namespace tutti
