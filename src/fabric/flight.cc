#include "fabric/flight.h"

#include <algorithm>
#include <cstring>

#include "fabric/call.h"

namespace tutti {

namespace {

template <size_t bytes>
void set_text(char (&field)[bytes], const std::string& text) {
  const size_t size = std::min(text.size(), bytes - 1);
  std::memcpy(field, text.data(), size);
  std::memset(field + size, 0, bytes - size);
}

// None when they do not fit.
uint32_t set_runs(FlightRun (&runs)[kFlightRuns], const std::vector<uint32_t>& ranks) {
  std::vector<uint32_t> sorted = ranks;
  std::ranges::sort(sorted);
  uint32_t count = 0;
  for (size_t next = 0; next < sorted.size();) {
    if (count == kFlightRuns) return 0;
    FlightRun& run = runs[count++];
    run = {sorted[next], 1, 1};
    if (++next == sorted.size()) break;
    run.step = sorted[next] - run.first;
    for (; next < sorted.size() && sorted[next] == run.first + run.count * run.step; ++next)
      ++run.count;
  }
  return count;
}

// Before it is written: whoever reads it meanwhile finds no number, before or after. An exchange,
// since the thread sanitizer knows no fences.
void hide(FlightCall& entry) { __atomic_exchange_n(&entry.number, 0, __ATOMIC_ACQ_REL); }

}  // namespace

void FlightRecorder::begin_epoch(uint64_t epoch, const Place& place) {
  store(record_.epoch, uint64_t{0});
  record_.layout = kFlightLayout;
  record_.gang = place.gang;
  record_.rank = place.rank;
  record_.world_size = place.world_size;
  record_.pid = place.pid;
  record_.groups_made = 0;
  record_.sites_known = 0;
  record_.left = 0;
  record_.first = record_.count;
  for (FlightGroup& group : record_.groups) {
    if (group.key == 0) break;  // they are taken in order
    group = {};
  }
  sites_.clear();
  store(record_.epoch, epoch);
  store(record_.magic, kFlightMagic);
}

void FlightRecorder::leave() { store(record_.left, 1U); }

// Call sites are few; what is past the table goes by the last of them.
uint32_t FlightRecorder::site(const std::string& text) {
  const auto known = sites_.find(text);
  if (known != sites_.end()) return known->second;
  const uint32_t index = std::min(record_.sites_known, kMostSites - 1);
  set_text(record_.sites[index].text, text);
  store(record_.sites_known, index + 1);
  return sites_.emplace(text, index).first->second;
}

void FlightRecorder::make_group(uint32_t group, uint64_t key, const std::string& name,
                                const std::vector<uint32_t>& ranks) {
  FlightGroup& entry = record_.groups[group];
  entry = {};
  entry.size = static_cast<uint32_t>(ranks.size());
  entry.runs = set_runs(entry.members, ranks);
  entry.made_epoch = record_.epoch;
  entry.now.phase = FlightPhase::begun;
  entry.now.began_ns = now_ns();
  set_text(entry.name, name);
  store(entry.key, key);
  store(record_.groups_made, group + 1);
}

void FlightRecorder::made_group(uint32_t group) {
  record_.groups[group].now.ended_ns = now_ns();
  store(record_.groups[group].now.phase, FlightPhase::done);
}

void FlightRecorder::give_up(uint32_t group, const std::string& why) {
  set_text(record_.groups[group].failure, why);
  store(record_.groups[group].gave_up, 1U);
}

void FlightRecorder::wait_for(const FlightParcel& parcel) {
  if (record_.waiting == kWaitsForParcel &&
      std::memcmp(&record_.parcel, &parcel, sizeof parcel) == 0)
    return;
  wait_in(kWaitsForNothing);
  record_.parcel = parcel;
  wait_in(kWaitsForParcel);
}

uint32_t FlightRecorder::begin(uint32_t group, const Call& call, uint32_t call_number,
                               uint32_t site) {
  const uint32_t number = record_.count + 1 == 0 ? 1 : record_.count + 1;
  FlightCall& entry = slot(number);
  hide(entry);
  entry.elements = call.elements;
  entry.began_ns = now_ns();
  entry.ended_ns = 0;
  entry.call = call_number;
  entry.site = static_cast<uint16_t>(site);
  entry.group = static_cast<uint8_t>(group);
  entry.kind = call.kind;
  entry.type = call.type;
  entry.op = call.op;
  entry.phase = FlightPhase::begun;
  store(entry.number, number);
  store(record_.count, number);
  store(record_.groups[group].begun, call_number);
  return number;
}

void FlightRecorder::enter(uint32_t group, uint32_t number) {
  FlightCall& now = record_.groups[group].now;
  if (now.number == number) return;
  FlightCall entry = slot(number);
  if (entry.number != number) return;  // so many calls of other groups were made meanwhile
  entry.number = 0;
  hide(now);
  now = entry;
  store(now.number, number);
}

void FlightRecorder::note(uint32_t group, uint32_t number, FlightPhase phase) {
  FlightCall& now = record_.groups[group].now;
  const int64_t ended_ns = phase == FlightPhase::done ? now_ns() : 0;
  for (FlightCall* entry : {&now, &slot(number)}) {
    if (entry->number != number) continue;
    entry->ended_ns = ended_ns;
    store(entry->phase, phase);
  }
}

}  // namespace tutti
