#include "world/sim/simulator.h"

#include "world/sim/packet.h"

namespace tutti {

namespace {
constexpr size_t kNotesKept = 256;  // a report shows the last few; half is forgotten when full
}

// An action that waits for its turn among the events.
class Simulator::Call final : public ListNode, public SimEvent {
 public:
  explicit Call(std::function<void()> action)
      : SimEvent(EventKind::fault), action_(std::move(action)) {}

 private:
  void fire() override {
    auto action = std::move(action_);
    delete this;
    action();
  }
  std::function<void()> action_;
};

Simulator::Simulator(SimulatorOptions options)
    : options_(std::move(options)), links_(options_.costs), director_(*this, kDirector) {
  hosts_.resize(options_.hosts);
  cores_free_at_ns_.resize(options_.cores);
}

Simulator::~Simulator() {
  for (auto& host : hosts_)
    if (host != nullptr) host->core_.up_ = false;
  director_.stop();
  for (auto& host : hosts_)
    if (host != nullptr) host->stop();
  while (!calls_.empty()) delete &calls_.pop_front();
  hosts_.clear();
  program_ = nullptr;  // what it holds may have timers
}

SimHost& Simulator::host(uint32_t index) {
  TUTTI_ASSERT(index < hosts_.size(), "there is no such host");
  if (hosts_[index] == nullptr) hosts_[index] = std::make_unique<SimHost>(*this, index);
  return *hosts_[index];
}

namespace {
Task<void> run_host_program(SimHost& host, Task<Result<void>> program) {
  auto result = co_await std::move(program);
  if (!result) host.simulator().note(host.index(), "program failed: " + result.error().text());
}
}  // namespace

void Simulator::start(uint32_t index) {
  SimHost& starting = host(index);
  if (program_) starting.scope().spawn(run_host_program(starting, program_(starting)));
}

void Simulator::start_all() {
  for (uint32_t index = 0; index < hosts(); ++index) start(index);
}

void Simulator::set_process(std::string name, ProcessProgram program) {
  processes_[std::move(name)] = std::move(program);
}

const Simulator::ProcessProgram* Simulator::find_process(const std::string& name) const {
  auto found = processes_.find(name);
  return found == processes_.end() ? nullptr : &found->second;
}

namespace {
Task<void> run_and_stop(Task<Result<void>> task, std::optional<Result<void>>& out, bool& stop) {
  Result<void> result = co_await std::move(task);
  out.emplace(std::move(result));
  stop = true;
}
}  // namespace

Result<void> Simulator::run(Task<Result<void>> task, Duration limit) {
  std::optional<Result<void>> out;
  stopped_ = false;
  scope().spawn(run_and_stop(std::move(task), out, stopped_));
  run_events(now_ns_ + to_ns(limit));
  const bool done = out.has_value();
  if (!done) director_.scope_.kill();
  if (failure_) return fail(Code::internal, "{}", failure_->what);
  if (!done)
    return fail(Code::deadline, "not done after {} of virtual time", format_duration(limit));
  return std::move(*out);
}

void Simulator::run_for(Duration duration) {
  const int64_t until_ns = now_ns_ + to_ns(duration);
  stopped_ = false;
  run_events(until_ns);
  if (!stopped_) now_ns_ = until_ns;
}

// A million hosts do not fit in any cache: what an event will touch is fetched ahead of it.
void Simulator::prefetch_soon(const Timer& timer) {
  const auto* core = static_cast<const HostCore*>(timer.clock());
  __builtin_prefetch(core);
  __builtin_prefetch(reinterpret_cast<const char*>(core) - sizeof(HostCore));  // of its SimHost
  if (timer.kind() == static_cast<uint16_t>(EventKind::packet))
    static_cast<const Packet&>(timer).prefetch_stream();
}

void Simulator::prefetch_next(const Timer& timer) {
  if (timer.kind() == static_cast<uint16_t>(EventKind::packet))
    static_cast<const Packet&>(timer).prefetch_reader();
}

void Simulator::run_events(int64_t until_ns) {
  executor_.run_ready();
  while (!stopped_) {
    Timer* timer = wheel_.take(until_ns);
    if (timer == nullptr) break;
    now_ns_ = wheel_.taken_at_ns();
    HostCore& core = static_cast<HostCore&>(*timer->clock());
    if (core.ready_at_ns_ > now_ns_ || core.holding_ || core.paused_) {
      core.host().hold(*timer);
      continue;
    }
    handle(core, *timer);
    executor_.run_ready();
  }
  current_host_ = kDirector;
}

void Simulator::handle(HostCore& core, Timer& timer) {
  if (timer.kind() == 0) {
    current_host_ = core.index_;
    trace_.add(now_ns_, core.index_, EventKind::timer, 0);
    core.charge(options_.costs.timer_ns);
    return fire(timer);
  }
  auto& event = static_cast<SimEvent&>(timer);
  const auto kind = static_cast<EventKind>(timer.kind());
  if (kind == EventKind::wake) return fire(timer);  // what it wakes is the event
  if (!core.up_) return event.drop();
  current_host_ = core.index_;
  trace_.add(now_ns_, core.index_, kind, event.detail_);
  if (event.charge_ns_ != 0) core.charge(event.charge_ns_);
  if (core.index_ == steps_of_ && steps_of_ != kDirector && ++steps_ == crash_after_)
    crash(steps_of_);
  fire(timer);
}

void Simulator::schedule(SimEvent& event, HostCore& on, int64_t at_ns) {
  if (event.armed()) event.clock()->disarm(event);
  assign(event, on);
  wheel_.insert(event, at_ns);
}

void Simulator::schedule_again(Timer& timer, HostCore& on) {
  assign(timer, on);
  wheel_.insert(timer, now_ns_);
}

void Simulator::call_soon(std::function<void()> action) {
  auto* call = new Call(std::move(action));
  calls_.push_back(*call);
  schedule(*call, director(), now_ns_);
}

int64_t Simulator::take_core(int64_t from_ns, int64_t ns) {
  int64_t& free_at_ns = *std::ranges::min_element(cores_free_at_ns_);
  const int64_t begin = std::max(from_ns, free_at_ns);
  free_at_ns = begin + ns;
  return begin;
}

double Simulator::setting(const std::string& name, double usual) {
  asked_settings_.insert(name);
  const auto found = options_.settings.find(name);
  return found == options_.settings.end() ? usual : found->second;
}

std::vector<std::string> Simulator::unused_settings() const {
  std::vector<std::string> unused;
  for (const auto& [name, value] : options_.settings)
    if (!asked_settings_.contains(name)) unused.push_back(name);
  return unused;
}

void Simulator::check_failed(std::string what) {
  if (failure_) return;
  failure_ = CheckFailure{std::move(what), now_ns_, current_host_};
  stopped_ = true;
}

void Simulator::note(uint32_t host, std::string text) {
  if (notes_.size() == kNotesKept) notes_.erase(notes_.begin(), notes_.begin() + kNotesKept / 2);
  notes_.push_back(fmt::format("{:>16.9f} s  {:<10} {}", static_cast<double>(now_ns_) * 1e-9,
                               sim_host_name(host), text));
}

void Simulator::crash(uint32_t index) {
  call_soon([this, index] { host(index).crash(); });
}

void Simulator::count_steps(uint32_t index, uint64_t crash_after) {
  steps_of_ = index;
  steps_ = 0;
  crash_after_ = crash_after;
}

void Simulator::reboot(uint32_t index) {
  call_soon([this, index] {
    if (host(index).up()) return;
    host(index).reboot();
    start(index);
  });
}

void Simulator::pause(uint32_t index) { host(index).pause(); }
void Simulator::resume(uint32_t index) { host(index).resume(); }

void Simulator::set_slow(uint32_t index, uint32_t percent) {
  host(index).core_.slow_percent_ = percent;
  note(index, fmt::format("runs at {} % of its costs", percent));
}

void Simulator::heal_all() {
  links_.heal_all();
  note(kDirector, "healed everything");
  for (uint32_t index = 0; index < hosts(); ++index) {
    SimHost* host = hosts_[index].get();
    if (host == nullptr) continue;
    if (!host->up()) reboot(index);
    host->resume();
    host->core_.slow_percent_ = 100;
    host->mend_disk();
  }
}

}  // namespace tutti
