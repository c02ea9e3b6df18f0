// What is told about a gang that ended: one verdict, for people or for tools.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "cluster/gang.h"
#include "cluster/lines.h"

namespace tutti {

// What a rank printed last.
struct RankTail {
  LastLines output;
  LastLines error;
};

struct VerdictOptions {
  Duration grace{};
  std::optional<Duration> timeout;  // if it is known
  bool colour = false;
  std::vector<std::string> labels = {};  // of processes, such as "worker 3"; none are ranks
};

// Several lines, each ended; "" when every rank finished. Begins with who failed first and why,
// ends with what the command returns.
std::string verdict_text(const GangReport& report, std::span<const RankTail> tails,
                         const VerdictOptions& options);

// How events name a process: by its rank or, where there are labels, by its role, the rank within
// it and the number of the process in the job.
Json rank_json(uint32_t process, std::span<const std::string> labels);

Json verdict_json(const GangReport& report, std::span<const RankTail> tails,
                  std::span<const std::string> labels = {});
// To the millisecond: what JSON tells of times, without the noise of binary fractions.
double rounded_seconds(Duration duration);

}  // namespace tutti
