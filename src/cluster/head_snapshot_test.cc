#include "cluster/head_snapshot.h"

#include <doctest/doctest.h>

#include "cluster/event_log.h"
#include "world/sim/random.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

using Records = std::vector<cluster::HeadRecord>;

constexpr NodeId kHosts = 6;

job::Spec spec_of(SimRandom& random) {
  job::Spec spec;
  spec.set_name("job");
  spec.add_environment("PATH=/bin");
  job::Role& role = *spec.add_roles();
  role.set_name("worker");
  role.set_count(static_cast<uint32_t>(1 + random.below(5)));
  role.set_slots(1);
  role.add_environment("WHO=worker");
  return spec;
}

cluster::Row left_on(NodeId node) {
  cluster::Row row;
  row.set_what(cluster::Row::LEFT_BEHIND);
  set_pairs(RangeSet(node), row.mutable_hosts());
  row.set_message("stuck");
  return row;
}

// Draws records that a head could have posted in this state.
class Author {
 public:
  explicit Author(uint64_t seed) : random_(seed) {}

  cluster::HeadRecord next(const HeadState& state) {
    ++now_;
    while (true) {
      const uint64_t what = random_.below(20);
      auto record = what < 2    ? host()
                    : what < 8  ? submitted(state)
                    : what < 12 ? placed(state)
                    : what < 18 ? changed(state)
                    : what < 19 ? end(state)
                                : forgotten(state);
      if (record) return *record;
    }
  }
  uint64_t below(uint64_t bound) { return random_.below(bound); }

 private:
  using Maybe = std::optional<cluster::HeadRecord>;

  const HeadJob* some(const HeadState& state) {
    if (state.jobs.empty()) return nullptr;
    auto job = state.jobs.begin();
    std::advance(job, random_.below(state.jobs.size()));
    return job->second.get();
  }
  Maybe host() {
    cluster::HeadRecord record;
    cluster::HostAbout& about = *record.mutable_host()->mutable_about();
    about.set_node(static_cast<NodeId>(1 + random_.below(kHosts)));
    about.set_name(fmt::format("host{}", about.node()));
    about.set_address(fmt::format("10.0.0.{}:{}", about.node(), now_));
    about.set_slots(static_cast<uint32_t>(2 + random_.below(6)));
    return record;
  }
  Maybe submitted(const HeadState& state) {
    HeadJob job;
    job.id = state.next_job;
    job.spec = spec_of(random_);
    job.user = random_.below(2) == 0 ? "ann" : "bob";
    if (random_.below(4) != 0) job.key = fmt::format("key {}", job.id);
    job.submitted_ns = now_;
    cluster::HeadRecord record;
    *record.mutable_submitted() = submitted_of(job);
    return record;
  }
  // The first time, or with another coordinator or layout.
  Maybe placed(const HeadState& state) {
    const HeadJob* job = some(state);
    if (job == nullptr || is_over(job->state)) return {};
    Placement room = state.placement;
    for (NodeId node = 1; node <= kHosts; ++node) room.set_alive(node, room.slots(node) != 0);
    auto layout = room.place(job->spec);
    if (!layout) return {};
    cluster::HeadRecord record;
    *record.mutable_placed() = placed_of(*job);
    record.mutable_placed()->set_term(job->term + 1);
    record.mutable_placed()->set_coordinator(layout->Get(0).first_node());
    *record.mutable_placed()->mutable_layout() = std::move(*layout);
    record.mutable_placed()->set_fresh(!job->placed);
    if (!job->placed) record.mutable_placed()->set_started_unix_ns(now_);
    RangeSet given_up = job->given_up;
    if (job->placed) given_up.add(nodes_of(job->layout).front());
    set_pairs(given_up, record.mutable_placed()->mutable_given_up());
    return record;
  }
  Maybe changed(const HeadState& state) {
    const HeadJob* job = some(state);
    if (job == nullptr) return {};
    cluster::HeadRecord record;
    cluster::JobChanged& changed = *record.mutable_changed();
    changed = changed_of(*job);
    if (random_.below(2) == 0) changed.clear_given_up();
    if (is_over(job->state)) {
      changed.clear_leftovers();  // they have gone at last
      return record;
    }
    const bool killed = !job->placed;
    const auto state_now =
        killed ? cluster::KILLED_BY_USER : static_cast<cluster::JobState>(1 + random_.below(8));
    changed.set_state(state_now);
    changed.set_epoch(job->epoch + 1);
    changed.set_restarts(static_cast<uint32_t>(random_.below(3)));
    changed.set_why(fmt::format("because {}", now_));
    if (!is_over(state_now)) return record;
    changed.set_at_unix_ns(now_);
    if (!killed && random_.below(3) == 0)
      *changed.add_leftovers() = left_on(nodes_of(job->layout).front());
    return record;
  }
  Maybe end(const HeadState& state) {
    const HeadJob* job = some(state);
    if (job == nullptr || is_over(job->state) || !job->placed) return {};
    cluster::HeadRecord record;
    record.mutable_end()->set_job(job->id);
    record.mutable_end()->set_why("killed");
    record.mutable_end()->set_grace_ns(now_);
    return record;
  }
  Maybe forgotten(const HeadState& state) {
    if (state.over.empty()) return {};
    const uint64_t id = state.over[random_.below(std::min<size_t>(state.over.size(), 3))];
    if (!state.find(id)->leftovers.empty() || !state.find(id)->given_up.empty()) return {};
    cluster::HeadRecord record;
    record.set_forgotten(id);
    return record;
  }

  SimRandom random_;
  int64_t now_ = 1'000;
};

uint64_t job_of(const cluster::HeadRecord& record) {
  if (record.has_submitted()) return record.submitted().job();
  if (record.has_placed()) return record.placed().job();
  if (record.has_changed()) return record.changed().job();
  return record.has_end() ? record.end().job() : record.forgotten();
}

// Everything that is to survive.
std::string text_of(const HeadState& state) {
  std::string text = fmt::format("next {}\n", state.next_job);
  for (const auto& [id, job] : state.jobs) {
    cluster::JobInfo info = brief_info(*job);
    add_roles(*job, info);
    text +=
        fmt::format("job {} {} {} {} {} {} [{}] [{}] [{}]\n", id, job->key, job->term, job->fresh,
                    job->placed, job->heard, info.SerializeAsString(),
                    job->spec.SerializeAsString(), job->end ? job->end->SerializeAsString() : "");
  }
  for (const cluster::HostAbout& about : state.hosts) text += about.SerializeAsString() + "\n";
  for (const auto& [name, node] : state.numbers) text += fmt::format("{} is {}\n", name, node);
  for (const auto& [key, job] : state.keys) text += fmt::format("key {} is {}\n", key, job);
  for (const uint64_t id : state.queue.all()) {
    const HeadJob* job = state.find(id);
    if (job != nullptr && job->state == cluster::QUEUED) text += fmt::format("{} waits\n", id);
  }
  for (const uint64_t id : state.over) text += fmt::format("{} is over\n", id);
  for (const auto& [node, jobs] : state.given_up)
    text += fmt::format("{} gave up {}\n", fmt::join(jobs, ", "), node);
  for (NodeId node = 1; node <= kHosts; ++node)
    text += fmt::format("{}: {} of {}\n", node, state.placement.free(node),
                        state.placement.slots(node));
  return text;
}

void replay(HeadState& state, const cluster::HeadRecord& record) { state.replay(1, record, {}); }

HeadState restored(const std::vector<std::string>& pieces) {
  std::string bytes;
  for (const std::string& piece : pieces) bytes += piece;
  HeadState state;
  REQUIRE(restore_snapshot(1, bytes, state).has_value());
  return state;
}

TEST_CASE("a snapshot and the records after it are the whole log") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Author author(seed);
    HeadState whole;
    const uint64_t before = author.below(200);
    for (uint64_t i = 0; i < before; ++i) replay(whole, author.next(whole));
    HeadSnapshotTaker taker(whole);
    HeadState other = restored(taker.finish());
    CHECK(text_of(other) == text_of(whole));
    for (int i = 0; i < 100; ++i) {
      const cluster::HeadRecord record = author.next(whole);
      replay(whole, record);
      replay(other, record);
    }
    CHECK(text_of(other) == text_of(whole));
  }
}

TEST_CASE("what happens while a snapshot is taken is in it") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Author author(seed);
    HeadState state;
    for (int i = 0; i < 150; ++i) replay(state, author.next(state));
    HeadSnapshotTaker taker(state);
    const size_t slice = 1 + author.below(400);
    while (!taker.take_some(slice)) {
      for (uint64_t i = author.below(3); i > 0; --i) {
        const cluster::HeadRecord record = author.next(state);
        replay(state, record);
        if (job_of(record) != 0) taker.note(job_of(record));
      }
    }
    CHECK(text_of(restored(taker.finish())) == text_of(state));
  }
}

TEST_CASE("a job that is forgotten frees its key") {
  HeadState state;
  cluster::HeadRecord record;
  record.mutable_submitted()->set_job(1);
  record.mutable_submitted()->set_key("key");
  replay(state, record);
  record.mutable_changed()->set_job(1);
  record.mutable_changed()->set_state(cluster::KILLED_BY_USER);
  replay(state, record);
  CHECK(state.keys.size() == 1);
  record.set_forgotten(1);
  replay(state, record);
  CHECK(state.keys.empty());
  CHECK(state.jobs.empty());
  CHECK(state.over.empty());
  CHECK(state.next_job == 2);
}

TEST_CASE("a snapshot that is none is refused") {
  HeadState state;
  auto refused = restore_snapshot(1, "\xff\xff\xff", state);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code() == Code::corrupt);
}

// A log on a simulated disk, and the state it stands for.
struct Book final : EventLogReader {
  HeadState state;
  Result<void> on_snapshot(uint64_t sequence, std::string_view bytes) override {
    return restore_snapshot(sequence, bytes, state);
  }
  Result<void> on_record(uint64_t sequence, std::string_view bytes) override {
    cluster::HeadRecord record;
    if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return fail(Code::corrupt, "no record");
    state.replay(sequence, record, {});
    return {};
  }
};

// Appends, takes a snapshot in slices between more records, appends; `states` has what was true
// after each record.
Task<Result<void>> write_all(World& world, uint64_t seed, std::vector<std::string>& states,
                             bool& finished) {
  Book book;
  EventLogOptions options{.folder = "/log"};
  CO_TRY(auto log, co_await EventLog::open(world, std::move(options), book));
  Author author(seed);
  std::optional<HeadSnapshotTaker> taker;
  for (int i = 0; i < 24; ++i) {
    const cluster::HeadRecord record = author.next(book.state);
    replay(book.state, record);
    if (taker && job_of(record) != 0) taker->note(job_of(record));
    states.push_back(text_of(book.state));
    std::string bytes = record.SerializeAsString();
    CO_TRY_DO(co_await log->append(std::move(bytes)));
    if (i == 10) taker.emplace(book.state);
    if (!taker || !taker->take_some(1)) continue;
    const uint64_t sequence = log->last_sequence();
    std::vector<std::string> state = taker->finish();
    taker.reset();
    CO_TRY_DO(co_await log->snapshot(sequence, std::move(state)));
  }
  finished = true;
  co_return co_await log->close();
}

Task<Result<void>> read_all(World& world, std::string& text, uint64_t& last) {
  Book book;
  EventLogOptions options{.folder = "/log"};
  CO_TRY(auto log, co_await EventLog::open(world, std::move(options), book));
  text = text_of(book.state);
  last = log->last_sequence();
  co_return {};
}

TEST_CASE("power is lost at any step of a log and its snapshot, and the state is one that was") {
  bool finished = false;
  for (uint64_t step = 1; !finished; ++step) {
    CAPTURE(step);
    Simulator sim({.seed = step, .hosts = 1});
    std::vector<std::string> states = {text_of(HeadState())};
    sim.host(0).scope().spawn(write_all(sim.host(0), 7, states, finished));
    sim.run_for(step * 50us);
    sim.crash(0);
    sim.run_for(1s);
    sim.reboot(0);
    sim.run_for(1s);
    std::string text;
    uint64_t last = 0;
    auto read = sim.run(read_all(sim.host(0), text, last), 1min);
    REQUIRE_MESSAGE(read.has_value(), (read ? "" : read.error().text()));
    REQUIRE(last < states.size());
    CHECK(text == states[last]);
  }
}

}  // namespace
}  // namespace tutti
