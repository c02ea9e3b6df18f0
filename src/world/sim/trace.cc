#include "world/sim/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "world/sim/host.h"

namespace tutti {

std::string_view event_kind_name(EventKind kind) {
  constexpr std::array<std::string_view, 9> names = {
      "timer", "wake", "packet", "retry", "connect", "disk", "process", "fault", "transfer"};
  return names[static_cast<size_t>(kind)];
}

std::vector<TraceEvent> Trace::last_of(uint32_t host, size_t limit) const {
  std::vector<TraceEvent> events;
  for (uint64_t i = 0; i < std::min<uint64_t>(count_, kKept) && events.size() < limit; ++i) {
    const TraceEvent& event = ring_[(count_ - 1 - i) % kKept];
    if (event.host == host) events.push_back(event);
  }
  std::reverse(events.begin(), events.end());
  return events;
}

std::vector<TraceEvent> Trace::last(size_t limit) const {
  std::vector<TraceEvent> events;
  for (uint64_t i = 0; i < std::min<uint64_t>({count_, kKept, limit}); ++i)
    events.push_back(ring_[(count_ - 1 - i) % kKept]);
  std::reverse(events.begin(), events.end());
  return events;
}

std::string format_trace_event(const TraceEvent& event) {
  return fmt::format("{:>16.9f} s  {:<10} {:<8} {}", static_cast<double>(event.at_ns) * 1e-9,
                     sim_host_name(event.host), event_kind_name(event.kind), event.detail);
}

}  // namespace tutti
