#include "world/memory.h"

#include "world/scope.h"

namespace tutti {
namespace {

Task<void> wait_for(Memory& memory, const std::atomic<uint32_t>& word, uint32_t expected,
                    WakeTaker& taker, uint64_t tag) {
  auto changed = co_await memory.wait(word, expected, kNever);
  if (changed) taker.on_wake(tag);
}

}  // namespace

const std::atomic<uint32_t>& Memory::word_at(const Mapping& mapping, uint64_t offset) {
  return *reinterpret_cast<const std::atomic<uint32_t>*>(mapping.bytes().data() + offset);
}

void Memory::tell_wake(const Mapping& mapping, uint64_t offset, uint32_t expected, WakeTaker& taker,
                       uint64_t tag, Scope& scope) {
  scope.spawn(wait_for(*this, word_at(mapping, offset), expected, taker, tag));
}

}  // namespace tutti
