// Fault points and coverage probes, after FoundationDB's BUGGIFY and CODE_PROBE.
//
//   if (TUTTI_FAULT(world, "wire: short write")) …     // true at times, only in simulation
//   TUTTI_PROBE("coordinator: two failures in one epoch");
//
// A fault point makes a rare but legal thing happen: a short read, a slow path, an early time-out.
// Each seed switches a part of them on. A probe marks a branch that only luck reaches; a soak
// lists those it never reached. Names are unique. Use them in .cc files only.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace tutti {

class World;

// Places stand in a section of the program, so that one is known even when its line never ran.
// The alignment keeps the section an array.
struct alignas(64) CodePlace {
  enum class Kind : unsigned char { fault, probe };
  Kind kind;
  const char* name;
  const char* file;
  int line;
  std::atomic<uint64_t> hits = 0;

  void hit() { hits.fetch_add(1, std::memory_order_relaxed); }
};

// All places of this program, by name.
std::vector<CodePlace*> code_places();

}  // namespace tutti

#define TUTTI_CODE_PLACE(kind, name)                                                            \
  [[gnu::section("tutti_places"), gnu::used]] static constinit ::tutti::CodePlace tutti_place { \
    kind, name, __FILE__, __LINE__                                                              \
  }
#define TUTTI_FAULT(world, name)                             \
  ([](::tutti::World& fault_world) -> bool {                 \
    TUTTI_CODE_PLACE(::tutti::CodePlace::Kind::fault, name); \
    return fault_world.fault(tutti_place);                   \
  }(world))
#define TUTTI_PROBE(name)                                    \
  do {                                                       \
    TUTTI_CODE_PLACE(::tutti::CodePlace::Kind::probe, name); \
    tutti_place.hit();                                       \
  } while (false)
