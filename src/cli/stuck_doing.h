// What a rank does, and what to do about it: the words that `tutti stuck` is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/stuck_data.h"

namespace tutti::cli {

// "rank 2", "ranks 0-1,3", "worker 0-1".
std::string who(const SeenJob& job, const SeenRole& role, const RangeSet& ranks);
std::string_view agree(const RangeSet& ranks, std::string_view one, std::string_view many);
// " at train.py:41", or nothing.
std::string at_site(const std::string& site);

const RankDoing& doing_of(const SeenRole& role, const StuckProcess& process);
// One word each.
std::string_view doing_name(Doing doing);
// "group world, call 42, all_reduce of 10 f32, sum at train.py:41".
std::string wait_name(const StuckWait& wait);
std::string doing_words(const SeenJob& job, const SeenRole& role, const StuckProcess& process);

bool anything_stuck(const SeenJob& job);
// What to do next, in lines.
std::vector<std::string> advice(const SeenJob& job);

}  // namespace tutti::cli
