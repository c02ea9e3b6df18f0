#include "record/kind.h"

#include <functional>
#include <map>
#include <mutex>

#include "record/layout.h"

namespace tutti {
namespace {

static_assert(RecordKind::kMaxTextBytes == record_layout::Entry::kTextBytes);

struct Registry {
  std::mutex mutex;
  std::vector<RecordKind::Names> kinds = {{"unnamed", "a", "b"}};
  std::map<std::string, uint32_t, std::less<>> indices = {{"unnamed", 0}};
};

// Made by the first kind, whatever file it stands in, and never destroyed: kinds are used until the
// last static object of the process is gone.
Registry& registry() {
  static Registry& made = *new Registry;
  return made;
}

}  // namespace

std::string_view cut_text(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  const auto inside_character = [&](size_t at) { return (text[at] & 0xC0) == 0x80; };
  while (most_bytes > 0 && inside_character(most_bytes)) --most_bytes;
  return text.substr(0, most_bytes);
}

RecordKind::RecordKind(std::string_view name, std::string_view a_label, std::string_view b_label) {
  const std::string kept_name(cut_text(name, kMaxTextBytes));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.indices.find(kept_name);
  if (found != all.indices.end()) {
    index_ = found->second;
    return;
  }
  if (all.kinds.size() == kMaxKinds) {
    index_ = 0;
    return;
  }
  index_ = static_cast<uint32_t>(all.kinds.size());
  const std::string kept_a(cut_text(a_label, kMaxTextBytes - kept_name.size()));
  const std::string kept_b(cut_text(b_label, kMaxTextBytes - kept_name.size() - kept_a.size()));
  all.kinds.push_back({kept_name, kept_a, kept_b});
  all.indices.emplace(kept_name, index_);
}

std::vector<RecordKind::Names> RecordKind::names_from(uint32_t index) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (index >= all.kinds.size()) return {};
  return {all.kinds.begin() + index, all.kinds.end()};
}

}  // namespace tutti
