#include "world/real/random.h"

#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti {

namespace {

void from_kernel(MutableBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t count = getrandom(bytes.data(), bytes.size(), 0);
    TUTTI_ASSERT(count > 0 || errno == EINTR, "the kernel has random numbers");
    if (count > 0) bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

}  // namespace

RealRandom::~RealRandom() {
  if (page_ != nullptr) munmap(page_, kPageBytes);
}

void RealRandom::refill() {
  if (page_ == nullptr) {
    void* page =
        mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TUTTI_ASSERT(page != MAP_FAILED, "out of memory for random numbers");
    const int advised = madvise(page, kPageBytes, MADV_WIPEONFORK);
    TUTTI_ASSERT(advised == 0, "Linux has known MADV_WIPEONFORK since 4.14");
    page_ = static_cast<Page*>(page);
  }
  from_kernel(page_->bytes);
  page_->left = sizeof page_->bytes;
}

void RealRandom::take(MutableBytes bytes) {
  if (page_ == nullptr || page_->left < bytes.size()) refill();
  page_->left -= bytes.size();
  std::byte* from = page_->bytes + page_->left;
  std::memcpy(bytes.data(), from, bytes.size());
  std::memset(from, 0, bytes.size());
}

uint64_t RealRandom::next() {
  uint64_t value;
  take({reinterpret_cast<std::byte*>(&value), sizeof value});
  return value;
}

void RealRandom::fill(MutableBytes bytes) {
  if (bytes.size() > sizeof(Page::bytes)) return from_kernel(bytes);
  take(bytes);
}

}  // namespace tutti
