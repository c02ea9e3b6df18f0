#include "cluster/sqlite_jobs.h"

#include <fmt/ranges.h>
#include <sqlite3.h>

#include <algorithm>

#include "cluster/job_index.h"

namespace tutti {
namespace {

constexpr int64_t kApplication = 0x74757474;  // "tutt": whose file it is
constexpr int64_t kVersion = 1;
// A person may look at the file meanwhile.
constexpr int kBusyPatience_ms = 1000;

constexpr const char* kTables = R"(
CREATE TABLE told (log INTEGER NOT NULL, sequence INTEGER NOT NULL);
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  state INTEGER NOT NULL,      -- a JobState of cluster.proto
  user TEXT NOT NULL,
  name TEXT NOT NULL,
  submitted INTEGER NOT NULL,  -- this and what follows in ns since 1970; 0: not yet
  started INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  why TEXT NOT NULL,
  info BLOB NOT NULL           -- a JobInfo of head.proto
);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_time ON jobs (submitted);
)";

void name_fits_in_sql(sqlite3_context* context, int, sqlite3_value** values) {
  const auto text = [](sqlite3_value* value) {
    const auto* bytes = static_cast<const char*>(sqlite3_value_blob(value));
    return std::string_view(bytes, static_cast<size_t>(sqlite3_value_bytes(value)));
  };
  sqlite3_result_int(context, name_fits(text(values[0]), text(values[1])) ? 1 : 0);
}

Code code_of(int result) {
  switch (result & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Code::corrupt;
    case SQLITE_FULL:
    case SQLITE_NOMEM: return Code::exhausted;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH: return Code::denied;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return Code::unavailable;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN: return Code::io;
    default: return Code::internal;
  }
}

}  // namespace

// A prepared statement; parameters are numbered from 1, columns from 0.
class SqliteJobs::Statement {
 public:
  Statement(SqliteJobs& jobs, const std::string& sql) : jobs_(jobs) {
    prepared_ = sqlite3_prepare_v2(jobs.database_, sql.c_str(), static_cast<int>(sql.size() + 1),
                                   &statement_, nullptr) == SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int place, uint64_t number) {
    sqlite3_bind_int64(statement_, place, static_cast<int64_t>(number));
  }
  void bind(int place, std::string_view text) {
    sqlite3_bind_text64(statement_, place, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  void bind_blob(int place, std::string_view bytes) {
    sqlite3_bind_blob64(statement_, place, bytes.data(), bytes.size(), SQLITE_STATIC);
  }
  // True when there is a row.
  Result<bool> step() {
    const int result = prepared_ ? sqlite3_step(statement_) : SQLITE_ERROR;
    if (result == SQLITE_ROW) return true;
    if (result == SQLITE_DONE) return false;
    return jobs_.failure("ask the index of jobs");
  }
  void again() { sqlite3_reset(statement_); }
  int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string_view blob(int column) const {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    return {bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
  }

 private:
  SqliteJobs& jobs_;
  sqlite3_stmt* statement_ = nullptr;
  bool prepared_;
};

SqliteJobs::~SqliteJobs() { sqlite3_close(database_); }

std::unexpected<Error> SqliteJobs::failure(std::string_view doing) const {
  const int result = sqlite3_extended_errcode(database_);
  return fail(code_of(result), "{}: {}", doing, sqlite3_errmsg(database_));
}

Result<std::unique_ptr<SqliteJobs>> SqliteJobs::open(const SqliteJobsOptions& options) {
  std::unique_ptr<SqliteJobs> jobs(new SqliteJobs(options.most));
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(options.path.c_str(), &jobs->database_, flags, nullptr) != SQLITE_OK)
    return jobs->failure("open " + options.path);
  auto prepared = jobs->prepare_file(options);
  if (!prepared) return fail(prepared.error().context("opening " + options.path));
  return jobs;
}

Result<void> SqliteJobs::run(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return failure("the index of jobs");
}

Result<int64_t> SqliteJobs::number(const char* sql) {
  Statement statement(*this, sql);
  TRY(const bool found, statement.step());
  return found ? statement.number(0) : 0;
}

// With a write-ahead log, which is synced when it is taken over into the file and not with each
// transaction, a loss of power costs the last of them and leaves no broken file.
Result<void> SqliteJobs::prepare_file(const SqliteJobsOptions& options) {
  sqlite3_busy_timeout(database_, kBusyPatience_ms);
  TRY_DO(run("PRAGMA journal_mode = WAL"));
  TRY_DO(run("PRAGMA synchronous = NORMAL"));
  sqlite3_create_function(database_, "name_fits", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
                          name_fits_in_sql, nullptr, nullptr);
  TRY(const int64_t tables, number("SELECT count(*) FROM sqlite_schema"));
  if (tables == 0) return make_tables(options.log);
  return check_file(options);
}

Result<void> SqliteJobs::make_tables(uint64_t log) {
  TRY_DO(run("BEGIN"));
  TRY_DO(run(kTables));
  TRY_DO(run(fmt::format("PRAGMA application_id = {}", kApplication).c_str()));
  TRY_DO(run(fmt::format("PRAGMA user_version = {}", kVersion).c_str()));
  Statement told(*this, "INSERT INTO told VALUES (?, 0)");
  told.bind(1, log);
  TRY_DO(told.step());
  return run("COMMIT");
}

Result<void> SqliteJobs::check_file(const SqliteJobsOptions& options) {
  TRY(const int64_t application, number("PRAGMA application_id"));
  if (application != kApplication)
    return fail(Code::corrupt, "it is a database, but not an index of jobs");
  TRY(const int64_t version, number("PRAGMA user_version"));
  if (version != kVersion)
    return fail(Code::corrupt, "it has version {}, and {} is wanted", version, kVersion);
  Statement check(*this, "PRAGMA quick_check(1)");
  TRY_DO(check.step());
  if (check.blob(0) != "ok") return fail(Code::corrupt, "{}", check.blob(0));
  TRY(const int64_t log, number("SELECT log FROM told"));
  if (static_cast<uint64_t>(log) != options.log)
    return fail(Code::corrupt, "it is of another head's log");
  TRY(const int64_t sequence, number("SELECT sequence FROM told"));
  sequence_ = static_cast<uint64_t>(sequence);
  if (sequence_ > options.last_sequence)
    return fail(Code::corrupt, "it knows record {} of the log, which has only {}", sequence_,
                options.last_sequence);
  return {};
}

Result<void> SqliteJobs::put(uint64_t sequence, const std::vector<cluster::JobInfo>& jobs) {
  TRY_DO(run("BEGIN IMMEDIATE"));
  auto put = put_all(sequence, jobs);
  if (put) put = run("COMMIT");
  if (put)
    sequence_ = sequence;
  else
    (void)run("ROLLBACK");
  return put;
}

Result<void> SqliteJobs::put_all(uint64_t sequence, const std::vector<cluster::JobInfo>& jobs) {
  Statement put(*this, "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (const cluster::JobInfo& job : jobs) {
    const std::string info = job.SerializeAsString();
    put.bind(1, job.job());
    put.bind(2, static_cast<uint64_t>(job.state()));
    put.bind(3, job.user());
    put.bind(4, job.name());
    put.bind(5, static_cast<uint64_t>(job.submitted_unix_ns()));
    put.bind(6, static_cast<uint64_t>(job.started_unix_ns()));
    put.bind(7, static_cast<uint64_t>(job.ended_unix_ns()));
    put.bind(8, job.why());
    put.bind_blob(9, info);
    TRY_DO(put.step());
    put.again();
  }
  Statement bound(*this, "DELETE FROM jobs WHERE id <= (SELECT max(id) FROM jobs) - ?");
  bound.bind(1, most_);
  TRY_DO(bound.step());
  Statement told(*this, "UPDATE told SET sequence = ?");
  told.bind(1, sequence);
  TRY_DO(told.step());
  return {};
}

Result<std::vector<cluster::JobInfo>> SqliteJobs::find(const cluster::JobsRequest& wanted,
                                                       uint64_t below) {
  std::string sql = "SELECT info FROM jobs WHERE id < ?1";
  if (!wanted.states().empty())
    sql += fmt::format(" AND state IN ({})", fmt::join(wanted.states(), ", "));
  if (!wanted.user().empty()) sql += " AND user = ?2";
  if (!wanted.name().empty()) sql += " AND name_fits(?3, name)";
  if (wanted.since_unix_ns() != 0) sql += " AND submitted >= ?4";
  sql += " ORDER BY id DESC LIMIT ?5";
  Statement found(*this, sql);
  found.bind(1, below);
  found.bind(2, wanted.user());
  found.bind(3, wanted.name());
  found.bind(4, static_cast<uint64_t>(wanted.since_unix_ns()));
  found.bind(5, wanted.most());
  std::vector<cluster::JobInfo> jobs;
  while (true) {
    TRY(const bool row, found.step());
    if (!row) return jobs;
    const std::string_view info = found.blob(0);
    if (!jobs.emplace_back().ParseFromArray(info.data(), static_cast<int>(info.size())))
      return fail(Code::corrupt, "a job of the index does not parse");
  }
}

}  // namespace tutti
