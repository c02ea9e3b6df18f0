// What members of a group must agree on in a call, as a number and in words.
#pragma once

#include <string>

#include "fabric/board.h"
#include "fabric/call.h"

namespace tutti {

// Counts that a call shows for the words, at most.
constexpr size_t kShownCounts = 16;

// Equal for all members that mean the same call.
uint64_t signature_of(const Call& call);
// What of it the words need and a BoardCall has no room for.
BoardDetail detail_of(const Call& call);
// Counts that are shown in `small`, after the table of parts.
std::vector<uint64_t> shown_counts(const Call& call);
// "all_reduce of 6 f32, sum, shape (2, 3) at train.py:41", as a member's board shows it.
std::string describe(const BoardGroup& group, uint32_t tick, const Board& board);

}  // namespace tutti
