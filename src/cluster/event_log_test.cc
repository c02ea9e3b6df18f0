#include "cluster/event_log.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>

#include "base/hash.h"
#include "base/log.h"
#include "cluster/event_log_format.h"
#include "world/real/real_world.h"
#include "world/sim/disk.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

using event_log::FileKind;
using Records = std::vector<std::string>;

struct Book final : EventLogReader {
  std::string state;
  Records records;
  uint64_t first = 0;  // sequence of the first record
  std::optional<Error> refuse;

  Result<void> on_snapshot(uint64_t sequence, std::string_view text) override {
    state = fmt::format("{}:{}", sequence, text);
    return {};
  }
  Result<void> on_record(uint64_t sequence, std::string_view record) override {
    if (refuse) return fail(*refuse);
    if (records.empty()) first = sequence;
    CHECK(sequence == first + records.size());
    records.emplace_back(record);
    return {};
  }
};

Task<Result<void>> keep_log(World& world, EventLogOptions options, Book& book,
                            std::unique_ptr<EventLog>& log) {
  CO_TRY(log, co_await EventLog::open(world, options, book));
  co_return {};
}

Task<Result<void>> append_all(EventLog& log, Records records) {
  for (const std::string& record : records) CO_TRY_DO(co_await log.append(record));
  co_return {};
}

Task<Result<void>> append_one(EventLog& log, std::string record,
                              std::optional<Result<uint64_t>>& out) {
  out.emplace(co_await log.append(std::move(record)));
  co_return {};
}

Task<Result<void>> list_names(Disk& disk, std::string folder, Records& names) {
  CO_TRY(names, co_await disk.list(folder));
  co_return {};
}

Task<Result<void>> read_whole(Disk& disk, std::string path, std::string& text) {
  CO_TRY(text, co_await read_file(disk, path, 64_MiB));
  co_return {};
}

// One simulated host with a log in /data/log.
struct Machine {
  explicit Machine(uint64_t seed = 1, uint64_t segment_bytes = 64_MiB)
      : sim({.seed = seed, .hosts = 1}), options{"/data/log", segment_bytes} {
    set_log_level(LogLevel::warn);
  }
  ~Machine() {
    log.reset();
    set_log_level(LogLevel::info);
  }

  Result<void> run(Task<Result<void>> task) { return sim.run(std::move(task), 1min); }
  void must(Task<Result<void>> task) {
    auto done = run(std::move(task));
    REQUIRE_MESSAGE(done.has_value(), (done ? "" : done.error().text()));
  }
  Result<void> try_open(Book& book) {
    log.reset();
    return run(keep_log(sim.host(0), options, book, log));
  }
  Book open() {
    Book book;
    auto opened = try_open(book);
    REQUIRE_MESSAGE(opened.has_value(), (opened ? "" : opened.error().text()));
    return book;
  }
  void append(Records records) { must(append_all(*log, std::move(records))); }
  void snapshot(uint64_t sequence, std::string state) { must(log->snapshot(sequence, state)); }
  void lose_power() {
    sim.crash(0);
    sim.run_for(1s);
    log.reset();
    sim.reboot(0);
    sim.run_for(1s);
  }
  SimDisk& disk() { return sim.host(0).sim_disk(); }
  Records names() {
    Records found;
    must(list_names(disk(), options.folder, found));
    return found;
  }
  std::string path(FileKind kind, uint64_t number) const {
    return options.folder + "/" + event_log::file_name({kind, number});
  }
  std::string read(std::string file) {
    std::string text;
    must(read_whole(disk(), std::move(file), text));
    return text;
  }
  void write(std::string file, const std::string& text) {
    must(write_file_atomically(disk(), std::move(file), as_bytes(text)));
  }

  Simulator sim;
  EventLogOptions options;
  std::unique_ptr<EventLog> log;
};

Records numbered(int from, int to) {
  Records records;
  for (int i = from; i <= to; ++i) records.push_back(fmt::format("record {}", i));
  return records;
}

TEST_CASE("a log that was never written to leaves nothing on disk") {
  Machine machine;
  CHECK(machine.open().records.empty());
  machine.must(machine.log->close());
  Records names;
  CHECK(machine.run(list_names(machine.disk(), "/data", names)).error().code() == Code::not_found);
}

TEST_CASE("what was appended is replayed in order, and the log goes on") {
  Machine machine;
  machine.open();
  machine.append({"one", "", std::string(3000, 'x')});
  CHECK(machine.log->last_sequence() == 3);
  CHECK(machine.log->bytes_since_snapshot() == 3003);
  CHECK(machine.open().records == Records{"one", "", std::string(3000, 'x')});
  CHECK(machine.log->last_sequence() == 3);
  CHECK(machine.log->bytes_since_snapshot() == 3003);
  machine.append({"four"});
  machine.lose_power();
  CHECK(machine.open().records == Records{"one", "", std::string(3000, 'x'), "four"});
  CHECK(machine.names() == Records{"segment-00000000000000000001"});
}

TEST_CASE("those who wait together share a write and a sync") {
  Machine machine;
  machine.open();
  machine.append({"first"});
  std::vector<std::optional<Result<uint64_t>>> results(100);
  for (auto& result : results)
    machine.sim.host(0).scope().spawn(append_one(*machine.log, "together", result));
  machine.sim.run_for(1s);
  for (size_t i = 0; i < results.size(); ++i) CHECK(**results[i] == i + 2);
  // The first of them writes its own; the others meanwhile gather behind it.
  const std::string file = machine.read(machine.path(FileKind::segment, 1));
  auto header = event_log::decode_file_header(FileKind::segment, as_bytes(file));
  const auto ignore = [](uint64_t, std::string_view) -> Result<void> { return {}; };
  auto scan = event_log::scan_segment(as_bytes(file), *header, ignore);
  CHECK(scan->next_sequence == 102);
  const size_t one = event_log::kBatchHeaderBytes + 16;
  CHECK(scan->last_batch == event_log::kFileHeaderBytes + 2 * one);
}

TEST_CASE("what is only posted is written by whoever writes next, or by closing") {
  Machine machine;
  machine.open();
  CHECK(machine.log->post("a") == 1);
  CHECK(machine.log->post("b") == 2);
  machine.append({"c"});
  CHECK(machine.open().records == Records{"a", "b", "c"});
  machine.log->post("d");
  machine.must(machine.log->close());
  machine.lose_power();
  CHECK(machine.open().records == Records{"a", "b", "c", "d"});
}

Task<Result<void>> append_and_cancel(World& world, EventLog& log, Duration when) {
  std::vector<std::optional<Result<uint64_t>>> results(6);
  Scope first;
  for (size_t i = 0; i < 3; ++i) first.spawn(append_one(log, "given up", results[i]));
  Scope second;
  for (size_t i = 3; i < 6; ++i) second.spawn(append_one(log, "kept", results[i]));
  CO_TRY_DO(co_await world.clock().sleep(when));
  first.cancel();
  auto first_joined = co_await first.join();
  auto second_joined = co_await second.join();
  for (size_t i = 0; i < 3; ++i)
    CHECK((*results[i] || results[i]->error().code() == Code::cancelled));
  for (size_t i = 3; i < 6; ++i) CHECK(results[i]->has_value());
  co_return second_joined;
}

TEST_CASE("whoever is cancelled takes nobody's record along") {
  for (int step = 0; step < 80; ++step) {
    Machine machine;
    machine.open();
    const Duration when = step * 50us;
    machine.must(append_and_cancel(machine.sim.host(0), *machine.log, when));
    machine.lose_power();
    const Records found = machine.open().records;
    CHECK(std::ranges::count(found, "kept") == 3);
    CHECK(found.size() == 6);
  }
}

Task<Result<void>> append_then_cancel(EventLog& log, Scope& other) {
  CO_TRY_DO(co_await log.append("first"));
  other.cancel();
  co_return {};
}
Task<Result<void>> cancel_next(World& world, EventLog& log,
                               std::vector<std::optional<Result<uint64_t>>>& results) {
  Scope others;
  Scope next;
  others.spawn(append_then_cancel(log, next));
  CO_TRY_DO(co_await world.clock().sleep(200us));
  next.spawn(append_one(log, "second", results[0]));
  CO_TRY_DO(co_await world.clock().sleep(100us));
  others.spawn(append_one(log, "third", results[1]));
  auto next_joined = co_await next.join();
  co_return co_await others.join();
}

TEST_CASE("whoever is cancelled when it is its turn to write leaves that to the next") {
  Machine machine;
  machine.open();
  machine.append({"zeroth"});  // so that the next batch is written at once
  std::vector<std::optional<Result<uint64_t>>> results(2);
  machine.must(cancel_next(machine.sim.host(0), *machine.log, results));
  CHECK(results[0]->error().code() == Code::cancelled);
  CHECK(results[1]->has_value());
  CHECK(machine.open().records == Records{"zeroth", "first", "second", "third"});
}

Task<Result<void>> append_cancelled(EventLog& log, Code& code) {
  auto appended = co_await log.append("too late");
  code = appended ? Code::internal : appended.error().code();
  co_return {};
}
Task<Result<void>> cancel_before(EventLog& log, Code& code) {
  Scope scope;
  scope.cancel();
  scope.spawn(append_cancelled(log, code));
  co_return co_await scope.join();
}

TEST_CASE("whoever was cancelled before does not begin to write") {
  Machine machine;
  machine.open();
  Code code = Code::internal;
  machine.must(cancel_before(*machine.log, code));
  CHECK(code == Code::cancelled);
  CHECK(machine.log->durable_sequence() == 0);
}

TEST_CASE("a log cut at any byte has the batches before the cut, and goes on from there") {
  Machine machine;
  machine.open();
  std::vector<size_t> ends = {event_log::kFileHeaderBytes};
  const std::string path = machine.path(FileKind::segment, 1);
  for (int i = 1; i <= 4; ++i) {
    machine.log->post(fmt::format("record {}", 2 * i - 1));
    machine.append({fmt::format("record {}", 2 * i)});
    ends.push_back(machine.read(path).size());
  }
  const std::string whole = machine.read(path);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    CAPTURE(cut);
    machine.log.reset();
    machine.write(path, whole.substr(0, cut));
    const auto batches = std::ranges::count_if(ends, [&](size_t end) { return end <= cut; }) - 1;
    const int left = 2 * static_cast<int>(std::max<ptrdiff_t>(batches, 0));
    CHECK(machine.open().records == numbered(1, left));
    machine.append({fmt::format("record {}", left + 1)});
    CHECK(machine.open().records == numbered(1, left + 1));
  }
}

TEST_CASE("a changed bit is corrupt, or in the last batch is a torn tail") {
  Machine machine(1, 200);
  machine.open();
  machine.append(numbered(1, 9));
  machine.snapshot(3, "state");
  machine.append(numbered(10, 11));
  machine.log.reset();
  const Records names = machine.names();
  REQUIRE(names.size() >= 4);
  const std::string last = names[names.size() - 2];
  REQUIRE(last.starts_with("segment-"));
  for (const std::string& name : names) {
    const std::string path = machine.options.folder + "/" + name;
    const std::string whole = machine.read(path);
    for (size_t byte = 0; byte < whole.size(); ++byte) {
      CAPTURE(name);
      CAPTURE(byte);
      std::string flipped = whole;
      flipped[byte] = static_cast<char>(flipped[byte] ^ 1 << byte % 8);
      machine.write(path, flipped);
      Book book;
      auto opened = machine.try_open(book);
      if (opened) {
        CHECK(name == last);
        CHECK(book.state == "3:state");
        CHECK(book.records == numbered(4, 10));
        CHECK(byte >= whole.size() - event_log::kBatchHeaderBytes - 16);
      } else {
        CHECK(opened.error().code() == Code::corrupt);
        CHECK(opened.error().text().find(path + " is damaged at byte ") != std::string::npos);
      }
      machine.log.reset();
    }
    machine.write(path, whole);
  }
  CHECK(machine.open().records == numbered(4, 11));
}

TEST_CASE("a torn batch is cut off even when its later records are whole") {
  Machine machine;
  machine.open();
  machine.append({"safe"});
  const std::string path = machine.path(FileKind::segment, 1);
  const size_t safe = machine.read(path).size();
  for (int i = 0; i < 4; ++i) machine.log->post(std::string(1000, 'x'));
  machine.append({"last"});
  std::string file = machine.read(path);
  std::fill_n(file.begin() + static_cast<ptrdiff_t>(safe) + 512, 512, '\0');
  machine.write(path, file);
  CHECK(machine.open().records == Records{"safe"});
  CHECK(machine.read(path).size() == safe);
}

TEST_CASE("a missing segment is corrupt, a newer format unsupported") {
  Machine machine(1, 100);
  machine.open();
  machine.append(numbered(1, 5));
  machine.log.reset();
  const Records names = machine.names();
  REQUIRE(names.size() == 3);
  for (const std::string& name : {names[0], names[1]}) {
    const std::string path = machine.options.folder + "/" + name;
    const std::string file = machine.read(path);
    machine.must(machine.disk().remove(path));
    Book without;
    CHECK(machine.try_open(without).error().code() == Code::corrupt);
    machine.write(path, file.substr(0, event_log::kFileHeaderBytes));
    Book cut;
    CHECK(machine.try_open(cut).error().code() == Code::corrupt);
    std::string newer = file;
    newer[8] = 2;
    store_le(as_mutable_bytes(newer).data() + 32, hash64(as_bytes(newer).first(32)));
    machine.write(path, newer);
    Book book;
    auto opened = machine.try_open(book);
    CHECK(opened.error().code() == Code::unsupported);
    machine.write(path, file);
  }
  CHECK(machine.open().records == numbered(1, 5));
}

TEST_CASE("a file that is longer than its records has zeros behind them, until it is closed") {
  Machine machine;
  machine.options.reserve = true;
  const std::string path = machine.path(FileKind::segment, 1);
  machine.open();
  machine.append(numbered(1, 2));
  const size_t size = machine.read(path).size();
  CHECK(size > kMinReservedBytes);
  machine.append(numbered(3, 9));
  CHECK(machine.read(path).size() == size);
  machine.lose_power();
  CHECK(machine.open().records == numbered(1, 9));
  CHECK(machine.read(path).size() < kMinReservedBytes);
  machine.append(numbered(10, 10));
  CHECK(machine.read(path).size() > kMinReservedBytes);
  machine.must(machine.log->close());
  CHECK(machine.read(path).size() < kMinReservedBytes);
  CHECK(machine.open().records == numbered(1, 10));
}

TEST_CASE("zeros in place of a record that others follow are damage, also between two files") {
  Machine machine(1, 100);
  machine.options.reserve = true;
  machine.open();
  machine.append(numbered(1, 9));
  const std::string first = machine.path(FileKind::segment, 1);
  const std::string whole = machine.read(first);
  machine.write(first, whole + std::string(5000, '\0'));
  CHECK(machine.open().records == numbered(1, 9));
  const size_t some = event_log::kFileHeaderBytes + event_log::kBatchHeaderBytes + 16;
  machine.write(first, whole.substr(0, some) + std::string(5000, '\0'));
  Book book;
  CHECK(machine.try_open(book).error().code() == Code::corrupt);
  machine.write(first, whole.substr(0, some) + std::string(some, '\0') + whole.substr(some));
  Book again;
  CHECK(machine.try_open(again).error().code() == Code::corrupt);
}

TEST_CASE("files of another log are not believed") {
  std::string foreign;
  for (const uint64_t seed : {1, 2}) {
    Machine machine(seed, 100);
    machine.open();
    machine.append(numbered(1, 5));
    const std::string path = machine.options.folder + "/" + machine.names()[1];
    if (seed == 1) foreign = machine.read(path);
    if (seed == 1) continue;
    machine.write(path, foreign);
    Book book;
    auto opened = machine.try_open(book);
    CHECK(opened.error().code() == Code::corrupt);
    CHECK(opened.error().text().find("it belongs to another log") != std::string::npos);
  }
}

TEST_CASE("a snapshot stands for what came before, which is removed") {
  Machine machine(1, 100);
  machine.open();
  machine.append(numbered(1, 7));
  machine.snapshot(7, "seven");
  CHECK(machine.log->bytes_since_snapshot() == 0);
  CHECK(machine.names() == Records{"snapshot-00000000000000000007"});
  CHECK(machine.open().state == "7:seven");
  CHECK(machine.log->last_sequence() == 7);
  machine.append(numbered(8, 12));
  machine.snapshot(9, "nine");
  machine.lose_power();
  const Book book = machine.open();
  CHECK(book.state == "9:nine");
  CHECK(book.first == 10);
  CHECK(book.records == numbered(10, 12));
  CHECK(std::ranges::count(machine.names(), "snapshot-00000000000000000007") == 0);
  CHECK(std::ranges::count(machine.names(), "segment-00000000000000000008") == 0);
}

TEST_CASE("a snapshot can be the first thing in a log, and be replaced") {
  Machine machine;
  machine.open();
  machine.snapshot(0, "nothing yet");
  machine.lose_power();
  CHECK(machine.open().state == "0:nothing yet");
  machine.snapshot(0, "nothing at all");
  machine.append({"one"});
  machine.lose_power();
  const Book book = machine.open();
  CHECK(book.state == "0:nothing at all");
  CHECK(book.records == Records{"one"});
}

Task<Result<void>> live(EventLog& log, int from, uint64_t& acknowledged) {
  for (int i = from; i < from + 4; ++i) {
    const std::string record = fmt::format("record {}", i);
    CO_TRY(acknowledged, co_await log.append(record));
  }
  const uint64_t sequence = log.last_sequence();
  const std::string state = fmt::format("to {}", sequence);
  CO_TRY_DO(co_await log.snapshot(sequence, state));
  const std::string record = fmt::format("record {}", from + 4);
  CO_TRY(acknowledged, co_await log.append(record));
  co_return {};
}

// Opens the log and checks that it holds records 1 to n, by itself or by its snapshot; gives n.
uint64_t check_whole(Machine& machine) {
  const Book book = machine.open();
  uint64_t before = 0;
  if (!book.state.empty()) {
    before = std::stoull(book.state);
    CHECK(book.state == fmt::format("{}:to {}", before, before));
  }
  const auto last = static_cast<int>(machine.log->last_sequence());
  CHECK(book.records == numbered(static_cast<int>(before) + 1, last));
  return machine.log->last_sequence();
}

TEST_CASE("a crash at any moment, also of a snapshot, loses nothing that was acknowledged") {
  constexpr int kSteps = 500;
  for (int step = 0; step < kSteps; ++step) {
    CAPTURE(step);
    Machine machine(static_cast<uint64_t>(step), 100);
    machine.options.reserve = step % 2 == 1;
    machine.open();
    uint64_t acknowledged = 0;
    // Two lives, so that the second snapshot has a first one to replace.
    machine.must(live(*machine.log, 1, acknowledged));
    machine.sim.host(0).scope().spawn(live(*machine.log, 6, acknowledged));
    machine.sim.run_for(step * 50us);
    machine.lose_power();
    const uint64_t left = check_whole(machine);
    CHECK(left >= acknowledged);
    CHECK(left <= acknowledged + 1);
    machine.append({fmt::format("record {}", left + 1)});
    machine.lose_power();
    CHECK(check_whole(machine) == left + 1);
    if (step == kSteps - 1) CHECK(acknowledged == 10);
  }
}

TEST_CASE("a failed write or sync breaks the log for good, and opening it again mends it") {
  for (int step = 0; step < 100; ++step) {
    CAPTURE(step);
    Machine machine(static_cast<uint64_t>(step), 100);
    machine.options.reserve = step % 2 == 1;
    machine.open();
    machine.append(numbered(1, 2));
    std::optional<Result<uint64_t>> third;
    machine.sim.host(0).scope().spawn(append_one(*machine.log, "record 3", third));
    machine.sim.run_for(step * 40us);
    machine.disk().set_error_probability(1);
    machine.sim.run_for(1s);
    machine.disk().mend();
    REQUIRE(third.has_value());
    if (!*third) {
      CHECK(third->error().code() == Code::io);
      auto again = machine.run(append_all(*machine.log, {"record 4"}));
      CHECK(again.error().text() == third->error().text());
      CHECK(machine.run(machine.log->snapshot(2, "to 2")).error().code() == Code::io);
      CHECK(machine.run(machine.log->durable(2)));
    }
    const uint64_t left = check_whole(machine);
    CHECK(left >= (*third ? 3 : 2));
    // What was replayed is on disk, though its sync failed the first time.
    machine.lose_power();
    CHECK(check_whole(machine) == left);
  }
}

TEST_CASE("a full disk breaks the log with Code::exhausted, a full snapshot leaves it as it was") {
  Machine machine;
  machine.open();
  machine.append(numbered(1, 2));
  machine.disk().set_full(true);
  CHECK(machine.run(machine.log->snapshot(2, "to 2")).error().code() == Code::exhausted);
  machine.disk().mend();
  machine.append({"record 3"});
  machine.disk().set_full(true);
  CHECK(machine.run(append_all(*machine.log, {"record 4"})).error().code() == Code::exhausted);
  CHECK(machine.run(machine.log->close()).error().code() == Code::exhausted);
  machine.disk().mend();
  CHECK(check_whole(machine) == 3);
  machine.append({"record 4"});
  CHECK(check_whole(machine) == 4);
}

TEST_CASE("a second writer of the same folder is refused when it would begin a segment") {
  Machine machine;
  machine.open();
  std::unique_ptr<EventLog> second;
  Book book;
  machine.must(keep_log(machine.sim.host(0), machine.options, book, second));
  machine.append({"mine"});
  CHECK(machine.run(append_all(*second, {"yours"})).error().code() == Code::exists);
}

TEST_CASE("an event that is too large is refused, and a reader's error ends the opening") {
  Machine machine;
  machine.open();
  const std::string large(kMaxEventBytes + 1, 'x');
  CHECK(machine.run(append_all(*machine.log, {large})).error().code() == Code::invalid);
  CHECK(machine.log->last_sequence() == 0);
  machine.append({std::string(kMaxEventBytes, 'x')});
  Book book;
  book.refuse = Error(Code::corrupt, "not one of mine");
  auto opened = machine.try_open(book);
  CHECK(opened.error().message() == "not one of mine");
}

TEST_CASE("more events than may wait break the log, and it says so") {
  Machine machine;
  machine.open();
  const std::string large(kMaxEventBytes, 'x');
  for (uint64_t i = 0; i < kMaxPendingEventBytes / kMaxEventBytes; ++i) machine.log->post(large);
  auto done = machine.run(append_all(*machine.log, {"one more"}));
  CHECK(done.error().code() == Code::exhausted);
  CHECK(machine.open().records.empty());
}

Task<Result<void>> use_real(World& world, std::string folder, Book& book) {
  const EventLogOptions options{.folder = folder + "/a/b", .segment_bytes = 1000, .reserve = true};
  Book empty;
  CO_TRY(auto log, co_await EventLog::open(world, options, empty));
  for (int i = 1; i <= 50; ++i) {
    const std::string record = fmt::format("record {}", i);
    CO_TRY_DO(co_await log->append(record));
    if (i == 30) CO_TRY_DO(co_await log->snapshot(30, "to 30"));
  }
  CO_TRY_DO(co_await log->close());
  CO_TRY(log, co_await EventLog::open(world, options, book));
  co_return {};
}

TEST_CASE("an event log works on a real disk") {
  std::string folder = "/tmp/tutti-event-log-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  Book book;
  RealWorld world;
  auto used = world.run(use_real(world, folder, book));
  CHECK_MESSAGE(used.has_value(), (used ? "" : used.error().text()));
  CHECK(book.state == "30:to 30");
  CHECK(book.records == numbered(31, 50));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti
