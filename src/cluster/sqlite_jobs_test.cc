#include "cluster/sqlite_jobs.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "cluster/job_index.h"

namespace tutti {
namespace {

using Numbers = std::vector<uint64_t>;

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-index-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  SqliteJobsOptions options() const {
    return {.path = path + "/jobs.sqlite", .log = 7, .last_sequence = 1000};
  }
  std::unique_ptr<SqliteJobs> open() const {
    auto jobs = SqliteJobs::open(options());
    REQUIRE_MESSAGE(jobs.has_value(), (jobs ? "" : jobs.error().text()));
    return std::move(*jobs);
  }
  Error refused(const SqliteJobsOptions& options) const {
    auto jobs = SqliteJobs::open(options);
    REQUIRE(!jobs.has_value());
    return jobs.error();
  }
  std::string path;
};

cluster::JobInfo job(uint64_t number, cluster::JobState state = cluster::SUCCEEDED,
                     std::string user = "ann", std::string name = "sweep-1") {
  cluster::JobInfo info;
  info.set_job(number);
  info.set_state(state);
  info.set_user(std::move(user));
  info.set_name(std::move(name));
  info.set_submitted_unix_ns(static_cast<int64_t>(number * 100));
  return info;
}

cluster::JobsRequest everything(uint32_t most = 100) {
  cluster::JobsRequest request;
  request.set_all(true);
  request.set_most(most);
  return request;
}

Numbers found(SqliteJobs& jobs, const cluster::JobsRequest& wanted, uint64_t below = 1000) {
  auto list = jobs.find(wanted, below);
  REQUIRE_MESSAGE(list.has_value(), (list ? "" : list.error().text()));
  Numbers numbers;
  for (const cluster::JobInfo& info : *list) numbers.push_back(info.job());
  return numbers;
}

TEST_CASE("jobs are there after it was closed, newest first and as they were last") {
  const Folder folder;
  {
    auto jobs = folder.open();
    CHECK(jobs->sequence() == 0);
    REQUIRE(jobs->put(5, {job(1, cluster::RUNNING), job(2)}).has_value());
    REQUIRE(jobs->put(9, {job(1, cluster::FAILED), job(3)}).has_value());
  }
  auto jobs = folder.open();
  CHECK(jobs->sequence() == 9);
  CHECK(found(*jobs, everything()) == Numbers{3, 2, 1});
  CHECK(found(*jobs, everything(2)) == Numbers{3, 2});
  CHECK(found(*jobs, everything(), 3) == Numbers{2, 1});
  CHECK(jobs->find(everything(), 2)->front().state() == cluster::FAILED);
}

TEST_CASE("a question finds in the index what it finds in memory") {
  const Folder folder;
  auto jobs = folder.open();
  const std::vector<cluster::JobInfo> all = {
      job(1, cluster::FAILED, "ann", "sweep-1"),
      job(2, cluster::FAILED, "bob", "sweep-2"),
      job(3, cluster::TIMED_OUT, "ann", "a'b\"%_?"),
      job(4, cluster::SUCCEEDED, "ann", "sweep"),
      job(5, cluster::FAILED, "ann", ""),
  };
  REQUIRE(jobs->put(1, all).has_value());
  for (const std::string state : {"", "failed", "ended"})
    for (const std::string user : {"", "ann", "bob", "eve", "' OR 1=1 --"})
      for (const std::string name : {"", "sweep*", "*-?", "a'b\"%_?", "?", "**"})
        for (const int64_t since : {0, 300, 100'000}) {
          cluster::JobsRequest wanted = everything();
          if (!state.empty()) wanted.add_states(cluster::FAILED);
          if (state == "ended") wanted.add_states(cluster::TIMED_OUT);
          wanted.set_user(user);
          wanted.set_name(name);
          wanted.set_since_unix_ns(since);
          Numbers expected;
          for (auto info = all.rbegin(); info != all.rend(); ++info)
            if (fits(wanted,
                     {info->state(), info->user(), info->name(), info->submitted_unix_ns()}))
              expected.push_back(info->job());
          CHECK(found(*jobs, wanted) == expected);
        }
}

TEST_CASE("names fit patterns") {
  CHECK(name_fits("*", ""));
  CHECK(name_fits("sweep*", "sweep"));
  CHECK(name_fits("*-lr*", "sweep-lr-3"));
  CHECK(name_fits("a*b*c", "aXbXbc"));
  CHECK(name_fits("?", "a"));
  CHECK(!name_fits("?", ""));
  CHECK(!name_fits("sweep", "sweep-1"));
  CHECK(!name_fits("a*b", "abc"));
  CHECK(name_fits("[a]", "[a]"));
}

TEST_CASE("it keeps the newest of too many jobs") {
  const Folder folder;
  SqliteJobsOptions options = folder.options();
  options.most = 3;
  auto jobs = std::move(*SqliteJobs::open(options));
  for (uint64_t number = 1; number <= 6; ++number)
    REQUIRE(jobs->put(number, {job(number)}).has_value());
  CHECK(found(*jobs, everything()) == Numbers{6, 5, 4});
}

TEST_CASE("a file that is of no use is refused, with the reason") {
  const Folder folder;
  SqliteJobsOptions options = folder.options();
  (void)folder.open()->put(5, {job(1)});
  SUBCASE("of another log") {
    options.log = 8;
    CHECK(folder.refused(options).code() == Code::corrupt);
    CHECK(folder.refused(options).text().find("another head's log") != std::string::npos);
  }
  SUBCASE("of a log that had more records") {
    options.last_sequence = 4;
    CHECK(folder.refused(options).code() == Code::corrupt);
  }
  SUBCASE("no database") {
    std::ofstream(options.path) << std::string(10'000, 'x');
    CHECK(folder.refused(options).code() == Code::corrupt);
  }
  SUBCASE("damaged inside") {
    std::fstream file(options.path, std::ios::in | std::ios::out);
    file.seekp(4096);
    file << std::string(8192, 'x');
    file.close();
    CHECK(folder.refused(options).code() == Code::corrupt);
  }
  SUBCASE("no folder") {
    options.path = folder.path + "/not/there";
    CHECK(folder.refused(options).code() == Code::io);
  }
}

}  // namespace
}  // namespace tutti
