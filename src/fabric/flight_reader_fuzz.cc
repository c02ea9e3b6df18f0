// Any bytes are a flight record that makes sense or refused, and what is made of several of them
// does too. The first bytes are made right, or no input would get past them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fabric/stuck.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  std::string bytes(sizeof(FlightRecord), '\0');
  std::vector<RankSeen> ranks;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const size_t from = size * rank / 3;
    const size_t count = std::min(bytes.size(), size - from);
    if (count != 0) std::memcpy(bytes.data(), data + from, count);
    const uint32_t words[] = {kFlightMagic, kFlightLayout};
    std::memcpy(bytes.data(), words, sizeof words);
    bytes[offsetof(FlightRecord, rank)] = static_cast<char>(rank);
    auto seen = read_flight(as_bytes(bytes));
    ranks.push_back({.rank = rank, .life = static_cast<RankSeen::Life>(size % 3)});
    if (!seen) continue;
    for (const SeenCall& call : seen->calls)
      if (call.group >= seen->groups.size() || call.text().empty()) std::abort();
    ranks.back().flight = std::move(*seen);
  }
  for (const bool past : {false, true}) {
    const StuckReport report = find_stuck(ranks, past);
    if (report.ranks.size() != ranks.size()) std::abort();
    for (const RankDoing& doing : report.ranks)
      if (doing.wait && *doing.wait >= report.waits.size()) std::abort();
  }
  return 0;
}
