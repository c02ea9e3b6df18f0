#include "world/real/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "base/units.h"

namespace tutti {
namespace {

constexpr uint64_t kLargePage = 2_MiB;

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The number behind a word at the beginning of a line: "MemAvailable:   123 kB".
std::optional<uint64_t> number_after(std::string_view text, std::string_view word) {
  size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  at = text.find_first_not_of(" \t", at + word.size());
  if (at == std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  const auto read = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (read.ec != std::errc()) return std::nullopt;
  return value;
}

// The least that any cgroup from ours to the root has left. Only version 2; others have no limit.
std::optional<uint64_t> left_in_cgroups() {
  const auto own = text_of("/proc/self/cgroup");
  if (!own) return std::nullopt;
  const size_t at = own->find("0::");
  if (at == std::string::npos) return std::nullopt;
  std::string path = own->substr(at + 3, own->find('\n', at) - at - 3);
  std::optional<uint64_t> least;
  while (true) {
    const std::string folder = "/sys/fs/cgroup" + path;
    const auto limit = text_of(folder + "/memory.max");
    const auto used = text_of(folder + "/memory.current");
    if (limit && used && !limit->starts_with("max")) {
      const uint64_t most = number_after(*limit, "").value_or(UINT64_MAX);
      const uint64_t now = number_after(*used, "").value_or(0);
      least = std::min(least.value_or(UINT64_MAX), most > now ? most - now : 0);
    }
    const size_t slash = path.find_last_of('/');
    if (path.size() <= 1 || slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace

void populate_pages(MutableBytes part) {
#ifdef MADV_POPULATE_WRITE
  static_cast<void>(madvise(part.data(), part.size(), MADV_POPULATE_WRITE));
#else
  constexpr int kPopulateWrite = 23;  // of Linux 5.14; glibc is older
  static_cast<void>(madvise(part.data(), part.size(), kPopulateWrite));
#endif
}

Result<Pages> Pages::make(uint64_t bytes) {
  Pages pages;
  if (bytes == 0) return pages;
  const uint64_t room = bytes + kLargePage;
  void* at = room < bytes ? MAP_FAILED
                          : mmap(nullptr, room, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return fail(Code::exhausted, "the kernel has no {} of memory for us", format_bytes(bytes));
  pages.mapped_ = {static_cast<std::byte*>(at), room};
  const auto address = reinterpret_cast<uintptr_t>(at);
  const uintptr_t aligned = (address + kLargePage - 1) / kLargePage * kLargePage;
  pages.bytes_ = pages.mapped_.subspan(aligned - address, bytes);
  // Where it is set up not to, pages are small.
  static_cast<void>(madvise(pages.bytes_.data(), bytes, MADV_HUGEPAGE));
  return pages;
}

Pages::Pages(Pages&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), mapped_(std::exchange(other.mapped_, {})) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Pages::~Pages() {
  if (!mapped_.empty()) munmap(mapped_.data(), mapped_.size());
}

std::optional<uint64_t> available_memory_bytes() {
  std::optional<uint64_t> least = left_in_cgroups();
  if (const auto info = text_of("/proc/meminfo"))
    if (const auto kib = number_after(*info, "MemAvailable:"))
      least = std::min(least.value_or(UINT64_MAX), *kib * 1024);
  return least;
}

std::optional<uint64_t> own_memory_bytes() {
  const auto rollup = text_of("/proc/self/smaps_rollup");
  const auto kib = rollup ? number_after(*rollup, "\nPss:") : std::nullopt;
  if (!kib) return std::nullopt;
  return *kib * 1024;
}

}  // namespace tutti
