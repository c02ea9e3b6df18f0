#include "base/queue_mark.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/assert.h"

// The linker makes these two; weak, since a program may have no queues.
extern "C" {
[[gnu::weak]] extern const tutti::QueueMark __start_tutti_queues;
[[gnu::weak]] extern const tutti::QueueMark __stop_tutti_queues;
}

namespace tutti {

void QueueMark::overfull(uint64_t depth, uint64_t most) const {
  const std::string why = fmt::format("{}: {}, and {} is the most", name, depth, most);
  assertion_failed(__FILE__, __LINE__, "no queue is over its limit", why.c_str());
}

std::vector<const QueueMark*> queue_marks() {
  std::vector<const QueueMark*> marks;
  for (const QueueMark* mark = &__start_tutti_queues; mark != &__stop_tutti_queues; ++mark)
    marks.push_back(mark);
  std::ranges::sort(marks, {}, [](const QueueMark* mark) { return std::string_view(mark->name); });
  return marks;
}

}  // namespace tutti
