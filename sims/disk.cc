// Each host appends records to a log, syncs, and counts the record as safe; hosts lose power at any
// moment, read their log back and go on.
//
// What must hold: every record that was called safe is there after a crash, and no record is
// accepted that is not exactly what was written.
#include <cstring>
#include <memory>

#include "base/hash.h"
#include "sims/scenarios.h"

namespace tutti::sims {

namespace {

constexpr uint64_t kLargestLog = 256 << 20;
constexpr uint64_t kLargestPayload = 3000;  // several sectors, so that records can be torn
constexpr Duration kPause = 50ms;
constexpr Duration kRecovery = 20s;

struct Header {
  uint64_t number;
  uint64_t size;
  uint64_t checksum;
};

struct Ledger {
  std::vector<uint64_t> safe;  // records by host
};
using LedgerPtr = std::shared_ptr<Ledger>;

// The payload of a record is a function of who wrote it and which it is.
std::string payload_of(uint32_t host, uint64_t number) {
  SimRandom random(random_key(number, host, RandomStream::program));
  std::string payload(random.below(kLargestPayload), '\0');
  random.fill(as_mutable_bytes(payload));
  return payload;
}

std::string record_of(uint32_t host, uint64_t number) {
  const std::string payload = payload_of(host, number);
  const Header header{number, payload.size(), hash64(as_bytes(payload), number)};
  std::string record(sizeof header, '\0');
  std::memcpy(record.data(), &header, sizeof header);
  return record + payload;
}

struct Recovered {
  uint64_t records = 0;
  uint64_t bytes = 0;
};

// Whole records from the beginning, up to the first that is not.
Recovered scan(SimHost& host, const std::string& log) {
  Recovered found;
  while (log.size() - found.bytes >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, log.data() + found.bytes, sizeof header);
    const uint64_t rest = log.size() - found.bytes - sizeof header;
    if (header.number != found.records || header.size > std::min(rest, kLargestPayload)) break;
    const std::string payload = log.substr(found.bytes + sizeof header, header.size);
    if (hash64(as_bytes(payload), header.number) != header.checksum) break;
    host.simulator().check(payload == payload_of(host.index(), header.number),
                           "record {} is not what was written", header.number);
    found.bytes += sizeof header + header.size;
    ++found.records;
  }
  if (found.bytes < log.size()) TUTTI_PROBE("disk: a torn record was cut off");
  return found;
}

Task<Result<void>> append(SimHost& host, LedgerPtr ledger, File& file, Recovered& at) {
  const std::string record = record_of(host.index(), at.records);
  const Bytes bytes = as_bytes(record);
  CO_TRY_DO(co_await file.write(at.bytes, bytes));
  CO_TRY_DO(co_await file.sync());
  at.bytes += record.size();
  ++at.records;
  ledger->safe[host.index()] = at.records;
  co_return {};
}

Task<Result<void>> recover_and_append(SimHost& host, LedgerPtr ledger) {
  Disk& disk = host.disk();
  const OpenOptions options{.write = true, .create = true};
  const std::string path = "/log";
  CO_TRY(auto file, co_await disk.open(path, options));
  const std::string folder = "/";
  CO_TRY_DO(co_await disk.sync_directory(folder));
  CO_TRY(const std::string log, co_await read_file(disk, path, kLargestLog));
  Recovered at = scan(host, log);
  host.simulator().check(at.records >= ledger->safe[host.index()],
                         "{} of {} records are left of host{}", at.records,
                         ledger->safe[host.index()], host.index());
  CO_TRY_DO(co_await file->truncate(at.bytes));
  CO_TRY_DO(co_await file->sync());
  for (;;) {
    // A name that nobody syncs: a crash may undo it, and nothing else.
    const std::string scratch = fmt::format("/scratch-{}", at.records % 8);
    auto opened = co_await disk.open(scratch, options);
    auto removed = co_await disk.remove(scratch);
    auto appended = co_await append(host, ledger, *file, at);
    if (!appended && appended.error().code() == Code::cancelled) co_return appended;
    // After an error the bytes on the disk are unknown: the record is written again, at its place.
    if (!appended) TUTTI_PROBE("disk: a record was written again after an error");
    CO_TRY_DO(co_await host.clock().sleep(kPause));
  }
}

Task<Result<void>> keep_log(SimHost& host, LedgerPtr ledger) {
  for (;;) {
    auto ended = co_await recover_and_append(host, ledger);
    if (ended.error().code() == Code::cancelled) co_return ended;
    CO_TRY_DO(co_await host.clock().sleep(kPause));
  }
}

Task<Result<void>> lose_power(Simulator& sim) {
  SimRandom random = sim.random(RandomStream::luck);
  for (;;) {
    const Duration quiet = Duration(static_cast<int64_t>(random.below(3'000'000'000)));
    CO_TRY_DO(co_await sim.clock().sleep(quiet));
    const auto host = static_cast<uint32_t>(random.below(sim.hosts()));
    sim.crash(host);
    CO_TRY_DO(co_await sim.clock().sleep(50ms));
    sim.reboot(host);
  }
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  auto ledger = std::make_shared<Ledger>();
  ledger->safe.resize(sim.hosts());
  sim.set_program([ledger](SimHost& host) { return keep_log(host, ledger); });
  sim.start_all();
  Scope scope;
  scope.spawn(lose_power(sim));
  auto suffered = co_await suffer(sim, length);
  scope.cancel();
  auto joined = co_await scope.join();
  if (!suffered) co_return suffered;
  if (!joined) co_return joined;
  sim.heal_all();
  const std::vector<uint64_t> before = ledger->safe;
  CO_TRY_DO(co_await sim.clock().sleep(kRecovery));
  for (uint32_t host = 0; host < sim.hosts(); ++host)
    sim.check(ledger->safe[host] > before[host], "host{} writes no more though all is well", host);
  co_return {};
}

}  // namespace

const Scenario kDisk = {"disk", "a log that is synced, crashed and recovered", 3, 1, 30s, run};

}  // namespace tutti::sims
