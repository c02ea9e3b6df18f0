#include "cli/head_index.h"

#include "base/log.h"

namespace tutti::cli {

HeadIndex::HeadIndex(RealWorld& world, std::string path)
    : world_(world), path_(std::move(path)), pool_(world.loop(), 1) {}

HeadIndex::~HeadIndex() = default;

Task<Result<uint64_t>> HeadIndex::open(uint64_t log, uint64_t last_sequence) {
  const SqliteJobsOptions options{.path = path_, .log = log, .last_sequence = last_sequence};
  auto opened = co_await try_open(options);
  if (!opened && opened.error().code() == Code::corrupt) {
    TUTTI_LOG(warn, "the index of jobs is of no use and begun anew; what it was stays beside it",
              {{"file", path_ + ".broken"}, {"why", opened.error().text()}});
    auto moved = co_await set_aside();
    if (!moved) co_return fail(std::move(moved).error());
    opened = co_await try_open(options);
  }
  if (!opened) co_return fail(std::move(opened).error());
  co_return jobs_->sequence();
}

Task<Result<void>> HeadIndex::try_open(SqliteJobsOptions options) {
  Result<void> opened;
  BlockingWork work(pool_, [&] {
    jobs_.reset();
    auto jobs = SqliteJobs::open(options);
    if (jobs)
      jobs_ = std::move(*jobs);
    else
      opened = fail(std::move(jobs).error());
  });
  auto done = co_await work;
  if (!done) co_return done;
  co_return opened;
}

Task<Result<void>> HeadIndex::set_aside() {
  for (const char* part : {"-wal", "-shm"}) {
    const std::string beside = path_ + part;
    (void)co_await world_.disk().remove(beside);  // not always there
  }
  const std::string broken = path_ + ".broken";
  co_return co_await world_.disk().rename(path_, broken);
}

Task<Result<void>> HeadIndex::put(uint64_t sequence, std::vector<cluster::JobInfo> jobs) {
  Result<void> put;
  BlockingWork work(pool_, [&] { put = jobs_->put(sequence, jobs); });
  auto done = co_await work;
  if (!done) co_return done;
  co_return put;
}

Task<Result<std::vector<cluster::JobInfo>>> HeadIndex::find(cluster::JobsRequest wanted,
                                                            uint64_t below) {
  Result<std::vector<cluster::JobInfo>> found;
  BlockingWork work(pool_, [&] {
    if (jobs_ == nullptr)
      found = fail(Code::unavailable, "the index of jobs is being opened");
    else
      found = jobs_->find(wanted, below);
  });
  auto done = co_await work;
  if (!done) co_return fail(std::move(done).error());
  co_return found;
}

}  // namespace tutti::cli
