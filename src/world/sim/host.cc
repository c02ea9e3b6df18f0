#include "world/sim/host.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "world/sim/host_parts.h"
#include "world/sim/simulator.h"

namespace tutti {

namespace {

constexpr int64_t kEpochUnixNs = 1'790'000'000'000'000'000;  // when simulations begin: in 2026
constexpr int64_t kLargestOffsetNs = int64_t{1} << 40;       // 18 minutes of uptime, by the seed
constexpr uint64_t kFaultPlacesOn = 4;                       // each seed uses one place in four
constexpr int64_t kBillion = 1'000'000'000;

__extension__ using Wide = __int128;

}  // namespace

std::string sim_host_name(uint32_t index) {
  return index == kDirector ? "director" : fmt::format("host{}", index);
}

HostCore::HostCore(Simulator& simulator, SimHost& host, uint32_t index)
    : simulator_(&simulator), host_(&host), index_(index) {
  if (index == kDirector) return;
  const uint64_t draw = simulator.key(index, RandomStream::clock);
  offset_ns_ = static_cast<int64_t>(draw % kLargestOffsetNs);
  const int64_t most_ppb = int64_t{1000} * simulator.options().faults.clock_drift_ppm;
  if (most_ppb == 0) return;
  const auto span = static_cast<uint64_t>(2 * most_ppb + 1);
  drift_ppb_ = static_cast<int32_t>(static_cast<int64_t>(mix_bits(draw) % span) - most_ppb);
}

Instant HostCore::now() const {
  const int64_t now = simulator_->now_ns_;
  if (drift_ppb_ == 0) return instant_from_ns(now + offset_ns_);
  const auto drift = static_cast<int64_t>(static_cast<Wide>(now) * drift_ppb_ / kBillion);
  return instant_from_ns(now + drift + offset_ns_);
}

int64_t HostCore::true_ns(Instant at) const {
  const int64_t local = to_ns(at) - offset_ns_;
  if (drift_ppb_ == 0 || local <= 0) return local;
  // Rounded up, and once more for the rounding in now(): a timer never fires early.
  return static_cast<int64_t>(static_cast<Wide>(local) * kBillion / (kBillion + drift_ppb_)) + 2;
}

int64_t HostCore::unix_ns() const {
  return kEpochUnixNs + simulator_->now_ns_ + host_->calendar_offset_ns_;
}

void HostCore::charge(double ns) {
  if (index_ == kDirector) return;
  auto whole = static_cast<int64_t>(ns);
  if (slow_percent_ != 100) [[unlikely]]
    whole = whole * slow_percent_ / 100;
  int64_t begin = std::max(ready_at_ns_, simulator_->now_ns_);
  if (simulator_->shares_cores()) [[unlikely]]
    begin = simulator_->take_core(begin, whole);
  ready_at_ns_ = begin + whole;
}

void HostCore::do_arm(Timer& timer, Instant at) { simulator_->wheel_.insert(timer, true_ns(at)); }

void HostCore::do_disarm(Timer& timer) {
  if (!held(timer)) return simulator_->wheel_.remove(timer);
  host_->parts().held->forget(held_at(timer));
  release(timer);
}

SimHost::SimHost(Simulator& simulator, uint32_t index)
    : random_(simulator.key(index, RandomStream::program)), core_(simulator, *this, index) {
  const int64_t wrong = to_ns(simulator.options().faults.calendar_error);
  if (wrong > 0 && index != kDirector) {
    SimRandom draw(simulator.key(index, RandomStream::luck));
    calendar_offset_ns_ =
        static_cast<int64_t>(draw.below(static_cast<uint64_t>(2 * wrong))) - wrong;
  }
}

SimHost::~SimHost() {
  stop();
  delete parts_;
}

HostParts& SimHost::parts() const {
  if (parts_ == nullptr) parts_ = new HostParts();
  return *parts_;
}

const std::string& SimHost::host_name() const {
  std::string& name = parts().name;
  if (name.empty()) name = sim_host_name(core_.index_);
  return name;
}

namespace {
template <class T, class... Args>
T& made(std::unique_ptr<T>& part, Args&&... args) {
  if (part == nullptr) part = std::make_unique<T>(std::forward<Args>(args)...);
  return *part;
}
}  // namespace

SimHandles& SimHost::handles() { return made(parts().handles); }
HostPorts& SimHost::ports() { return made(parts().ports); }
SimDisk& SimHost::sim_disk() { return made(parts().disk, *this); }
SimMemory& SimHost::sim_memory() { return made(parts().memory, *this); }
ProcessTable& SimHost::process_table() { return made(parts().process_table, *this); }
Network& SimHost::network() { return made(parts().network, *this, kFirstPid); }
Disk& SimHost::disk() { return sim_disk(); }
Memory& SimHost::memory() { return sim_memory(); }
Processes& SimHost::processes() { return made(parts().processes, *this, kFirstPid); }

bool SimHost::fault(CodePlace& place) {
  const double probability = simulator().options().faults.code_fault_probability;
  if (probability <= 0) return false;
  const uint64_t name = hash64(as_bytes(place.name), simulator().options().seed);
  if (name % kFaultPlacesOn != 0) return false;
  const uint64_t draw =
      mix_bits(simulator().key(index(), RandomStream::fault) ^ name) + fault_draws_++;
  if (static_cast<double>(mix_bits(draw) >> 11) * 0x1p-53 >= probability) return false;
  place.hit();
  return true;
}

int64_t SimHost::leave_ns(size_t bytes) {
  const int64_t begin = std::max({core_.ready_at_ns_, wire_free_at_ns_, simulator().now_ns()});
  const double transfer = simulator().costs().wire_byte_ns * static_cast<double>(bytes);
  wire_free_at_ns_ = begin + static_cast<int64_t>(transfer);
  return wire_free_at_ns_;
}

uint64_t SimHost::draw_network() {
  const uint64_t key = simulator().key(index(), RandomStream::network);
  return mix_bits(key + ++network_draws_ * 0x9E3779B97F4A7C15);
}

void SimHost::stop() {
  core_.up_ = false;
  scope_.kill();
  if (parts_ == nullptr) return;
  if (parts_->process_table) parts_->process_table->stop();
  if (parts_->handles) parts_->handles->clear();
}

void SimHost::crash() {
  if (!up()) return;
  stop();
  if (parts_ != nullptr && parts_->disk) parts_->disk->crash();
  drop_held();
  core_.paused_ = false;
  simulator().note(index(), "crashed");
}

void SimHost::reboot() {
  if (up()) return;
  core_.up_ = true;
  core_.ready_at_ns_ = simulator().now_ns();
  wire_free_at_ns_ = 0;
  ++boots_;
  simulator().note(index(), "rebooted");
}

void SimHost::mend_disk() {
  if (parts_ != nullptr && parts_->disk) parts_->disk->mend();
}

void SimHost::pause() {
  if (!up() || core_.paused_) return;
  core_.paused_ = true;
  simulator().note(index(), "paused");
}

void SimHost::resume() {
  if (!core_.paused_) return;
  core_.paused_ = false;
  simulator().note(index(), "resumed");
  if (!core_.holding_) return;
  const int64_t free_at = std::max(core_.ready_at_ns_, simulator().now_ns());
  simulator().schedule(parts().held->wake, simulator().director(), free_at);
}

void SimHost::hold(Timer& timer) {
  HeldEvents& held = made(parts().held, *this);
  HostCore::hold(timer, held.push(timer));
  if (core_.holding_) return;
  core_.holding_ = true;
  if (!core_.paused_) simulator().schedule(held.wake, simulator().director(), core_.ready_at_ns_);
}

void CoreWake::fire() { host_.release_held(); }

void SimHost::release_held() {
  HeldEvents& held = *parts().held;
  while (!held.empty()) {
    if (core_.paused_) return;
    if (core_.ready_at_ns_ > simulator().now_ns()) {
      simulator().schedule(held.wake, simulator().director(), core_.ready_at_ns_);
      return;
    }
    Timer* timer = held.pop();
    if (timer == nullptr) continue;
    HostCore::release(*timer);
    simulator().handle(core_, *timer);
    simulator().executor_.run_ready();
  }
  core_.holding_ = false;
}

// Frames are gone and took their timers along; what is left are events of the outside.
void SimHost::drop_held() {
  core_.holding_ = false;
  if (parts_ == nullptr || parts_->held == nullptr) return;
  HeldEvents& held = *parts_->held;
  simulator().clock().disarm(held.wake);
  while (!held.empty()) {
    Timer* timer = held.pop();
    if (timer == nullptr) continue;
    HostCore::release(*timer);
    simulator().schedule_again(*timer, core_);
  }
}

}  // namespace tutti
