// A rank's flight record: every call it made of its groups, the last of them in full, in memory
// that outlives it. One FlightRecord lies in its board; the rank alone writes it, whoever wants to
// know what everybody waits for reads it, from outside, while the rank runs and after its death.
// Its control page says where it is, so that who copies it need not know what is in it.
// flight_reader.h reads such a copy; docs/fabric.md is the manual.
//
// A FlightRecorder belongs to the rank's Fabric, and to its thread. Noting a call costs some tens
// of nanoseconds and takes no lock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fabric/call_kind.h"
#include "world/parking.h"

namespace tutti {

struct Call;

enum class FlightPhase : uint8_t {
  none,
  begun,    // not shown to the others yet: earlier calls of the group come first
  arrived,  // waits for the others, or works
  worked,   // its part is done; waits until the others need its memory no more
  done,
  failed,  // members called different things, and the group is over
};

// How many groups a rank may have in an epoch, lines of a program that are told apart, calls that
// are remembered, and runs of ranks that a group's members are told in.
constexpr uint32_t kMostGroups = 64;
constexpr uint32_t kMostSites = 256;
constexpr uint32_t kFlightCalls = 256;
constexpr uint32_t kFlightRuns = 8;

// Layout. Little-endian, every field aligned to its size; what is not said is zero.

struct FlightCall {
  uint64_t elements;
  int64_t began_ns;  // monotonic time of the host, to some milliseconds
  int64_t ended_ns;  // 0: it has not
  uint32_t number;   // 1 + calls of any group before it; 0 while it is written
  uint32_t call;     // of its group, from 1
  uint16_t site;     // of FlightRecord::sites
  uint8_t group;     // of FlightRecord::groups
  CallKind kind;
  DType type;
  ReduceOp op;
  FlightPhase phase;
  uint8_t reserved;
};
static_assert(sizeof(FlightCall) == 40);

// Ranks first, first + step, …
struct FlightRun {
  uint32_t first;
  uint32_t count;
  uint32_t step;
};

struct FlightGroup {
  uint64_t key;         // the same for all members; 0: none
  uint32_t size;        // of members
  uint32_t runs;        // of them in `members`; 0: they are too irregular to be told
  uint32_t begun;       // calls so far
  uint32_t gave_up;     // not 0: see `failure`
  uint64_t made_epoch;  // in which it was made
  FlightRun members[kFlightRuns];
  FlightCall now;  // the first that is not done, or the last; kind none: the group is being made
  char name[64];
  char failure[280];
};
static_assert(sizeof(FlightGroup) == 512);

struct FlightSite {
  char text[128];  // "train.py:41"
};

enum class ParcelKind : uint8_t { none, send, receive, put, get };

// What the rank does with one other (parcel.h), while it sleeps for it.
struct FlightParcel {
  uint64_t tag;
  uint64_t bytes;
  int64_t began_ns;
  uint32_t rank;
  uint16_t site;
  ParcelKind kind;
  uint8_t reserved;
};
static_assert(sizeof(FlightParcel) == 32);

constexpr uint32_t kFlightMagic = 0x544C4654;  // "TFLT"
constexpr uint32_t kFlightLayout = 1;
constexpr uint32_t kWaitsForNothing = 0;
constexpr uint32_t kWaitsToJoin = ~0U;
constexpr uint32_t kWaitsForParcel = ~0U - 1;

struct alignas(64) FlightRecord {
  uint32_t magic;
  uint32_t layout;
  uint64_t epoch;  // in which the rank takes part; 0 before the first
  uint64_t gang;   // hash of the names of job and role
  uint32_t rank;
  uint32_t world_size;
  int32_t pid;
  uint32_t groups_made;
  uint32_t sites_known;
  uint32_t waiting;  // 1 + the group it sleeps in, or one of kWaits…
  uint32_t left;     // not 0: its process took its leave
  uint32_t first;    // calls that were made before this epoch
  uint32_t count;    // calls so far
  uint32_t reserved;
  FlightParcel parcel;  // of kWaitsForParcel
  uint64_t reserved_2[4];
  FlightGroup groups[kMostGroups];
  FlightSite sites[kMostSites];
  // What stands before the calls is enough to know what everybody waits for.
  FlightCall calls[kFlightCalls];  // number n stands at (n - 1) % kFlightCalls
};
constexpr uint64_t kFlightBriefBytes = offsetof(FlightRecord, calls);
static_assert(offsetof(FlightRecord, groups) == 128);
static_assert(kFlightBriefBytes == 128 + kMostGroups * 512 + kMostSites * 128);

class FlightRecorder {
 public:
  // The record goes on where a process before us ended.
  FlightRecorder(const Parking& parking, FlightRecord& record)
      : parking_(parking), record_(record) {}

  struct Place {
    uint64_t gang = 0;
    uint32_t rank = 0;
    uint32_t world_size = 1;
    int32_t pid = 0;
  };
  // Groups and sites of before are forgotten.
  void begin_epoch(uint64_t epoch, const Place& place);
  void leave();

  uint32_t site(const std::string& text);
  void make_group(uint32_t group, uint64_t key, const std::string& name,
                  const std::vector<uint32_t>& ranks);
  void made_group(uint32_t group);
  void give_up(uint32_t group, const std::string& why);
  // The rank is about to sleep there, or has stopped waiting.
  void wait_in(uint32_t where) {
    if (record_.waiting != where) store(record_.waiting, where);
  }

  void wait_for(const FlightParcel& parcel);
  int64_t now_ns() const { return to_ns(parking_.coarse_now()); }

  // A call was begun; gives its number.
  uint32_t begin(uint32_t group, const Call& call, uint32_t call_number, uint32_t site);
  // It is the first of its group that is not done.
  void enter(uint32_t group, uint32_t number);
  void note(uint32_t group, uint32_t number, FlightPhase phase);

 private:
  template <class T>
  static void store(T& field, T value) {
    __atomic_store(&field, &value, __ATOMIC_RELEASE);
  }
  FlightCall& slot(uint32_t number) { return record_.calls[(number - 1) % kFlightCalls]; }

  const Parking& parking_;
  FlightRecord& record_;
  std::map<std::string, uint32_t> sites_;
};

}  // namespace tutti
