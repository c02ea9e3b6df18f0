#include <algorithm>
#include <cerrno>
#include <cstring>

#include "world/sim/file_system.h"

namespace tutti {

namespace {

constexpr uint64_t kLargestFile = uint64_t{4} << 30;  // a simulated file lives in memory
constexpr uint64_t kSmallestCapacity = 64;
// Of these there are many: they grow by what is written, and take no more than that once synced.
constexpr uint64_t kSmallFile = 4096;

class BodyMapping final : public Mapping {
 public:
  BodyMapping(std::shared_ptr<std::byte[]> keep, MutableBytes bytes)
      : Mapping(bytes), keep_(std::move(keep)) {}

 private:
  std::shared_ptr<std::byte[]> keep_;
};

}  // namespace

void FileBody::Range::add(uint64_t first, uint64_t last) {
  if (first >= last) return;
  if (begin == end) {
    begin = first;
    end = last;
    return;
  }
  begin = std::min(begin, first);
  end = std::max(end, last);
}

// From here on, perhaps: what was synced is kept aside before it differs.
void FileBody::will_change(uint64_t begin) {
  if (synced_ != nullptr || begin >= synced_size_) return;
  synced_ = std::make_unique<std::vector<std::byte>>(data_.get(), data_.get() + synced_size_);
}

void FileBody::changed(uint64_t begin, uint64_t end) {
  unsynced_.add(begin, end);
  differs_.add(begin, end);
}

size_t FileBody::read(uint64_t offset, MutableBytes into) const {
  if (offset >= size_) return 0;
  const size_t count = std::min<uint64_t>(into.size(), size_ - offset);
  std::memcpy(into.data(), data_.get() + offset, count);
  return count;
}

Result<void> FileBody::write(uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return {};
  const uint64_t end = offset + bytes.size();
  if (end > size_) TRY_DO(resize(end));
  will_change(offset);
  std::memcpy(data_.get() + offset, bytes.data(), bytes.size());
  changed(offset, end);
  return {};
}

Result<void> FileBody::resize(uint64_t size) {
  if (size > size_ && size - size_ > space_->capacity - std::min(space_->used, space_->capacity))
    return fail(Code::exhausted, "no space left on the disk: {} of {} bytes are used", space_->used,
                space_->capacity);
  TRY_DO(reserve(size));
  will_change(size);
  if (size > size_) std::memset(data_.get() + size_, 0, size - size_);
  changed(std::min(size, size_), std::max(size, size_));
  space_->used += size - size_;
  size_ = size;
  return {};
}

Result<void> FileBody::reserve(uint64_t size) {
  if (size <= capacity_) return {};
  if (size > kLargestFile)
    return fail(Code::exhausted, "a simulated file ends at {} bytes", kLargestFile);
  if (data_.use_count() > 1)
    return fail(Code::unsupported, "a simulated file does not grow while it is mapped");
  const uint64_t ahead = size > kSmallFile ? capacity_ + capacity_ / 2 : kSmallestCapacity;
  set_capacity(std::max(size, ahead));
  return {};
}

void FileBody::set_capacity(uint64_t capacity) {
  auto memory = std::make_shared_for_overwrite<std::byte[]>(capacity);
  if (size_ != 0) std::memcpy(memory.get(), data_.get(), size_);
  data_ = std::move(memory);
  capacity_ = capacity;
}

Result<std::unique_ptr<Mapping>> FileBody::map(uint64_t offset, uint64_t size, bool writable) {
  if (size == 0 || offset > size_ || size > size_ - offset)
    return fail_errno(EINVAL, "map bytes {} to {} of a file of {}", offset, offset + size, size_);
  if (writable) will_change(0);
  mapped_writable_ |= writable;
  return std::make_unique<BodyMapping>(data_, MutableBytes(data_.get() + offset, size));
}

// When a part of what differs is synced, and the rest is not.
void FileBody::sync_part() {
  if (synced_ == nullptr)
    synced_ = std::make_unique<std::vector<std::byte>>(data_.get(), data_.get() + synced_size_);
  synced_->resize(size_);
  const uint64_t end = std::min(unsynced_.end, size_);
  if (unsynced_.begin < end)
    std::memcpy(synced_->data() + unsynced_.begin, data_.get() + unsynced_.begin,
                end - unsynced_.begin);
}

void FileBody::sync() {
  if (mapped_writable_) changed(0, size_);
  if (differs_.begin == unsynced_.begin && differs_.end == unsynced_.end) differs_ = {};
  if (differs_.begin == differs_.end && !mapped_writable_) {
    synced_.reset();
    synced_size_ = size_;
    if (size_ < capacity_ && capacity_ <= kSmallFile && data_.use_count() == 1) set_capacity(size_);
  } else {
    sync_part();
  }
  unsynced_ = {};
}

void FileBody::crash(Random& luck) {
  if (mapped_writable_) changed(0, size_);
  const uint64_t before = synced_size();
  const uint64_t least = std::min(before, size_);
  const uint64_t most = std::max(before, size_);
  enum { lose, keep, prefix, torn };
  const uint64_t mode = luck.below(4);
  uint64_t size = mode == lose ? before : size_;
  if (mode == prefix) size = least + luck.below(most - least + 1);
  std::vector<std::byte> survived(data_.get(), data_.get() + (synced_ ? 0 : synced_size_));
  if (synced_ != nullptr) survived = std::move(*synced_);
  survived.resize(size);
  const uint64_t first = differs_.begin / kSectorBytes;
  const uint64_t end = (std::min({differs_.end, size_, size}) + kSectorBytes - 1) / kSectorBytes;
  const uint64_t whole = mode == prefix && end > first ? first + luck.below(end - first + 1) : end;
  for (uint64_t sector = first; sector < end && mode != lose; ++sector) {
    if (mode == prefix && sector >= whole) break;
    if (mode == torn && luck.below(2) == 0) continue;
    const uint64_t begin = sector * kSectorBytes;
    const uint64_t bytes = std::min({kSectorBytes, size - begin, size_ - begin});
    std::memcpy(survived.data() + begin, data_.get() + begin, bytes);
  }
  data_.reset();
  capacity_ = 0;
  space_->used += size - size_;
  size_ = 0;
  unsynced_ = differs_ = {};
  mapped_writable_ = false;
  synced_.reset();
  synced_size_ = size;
  if (size == 0) return;
  data_ = std::make_shared_for_overwrite<std::byte[]>(size);
  std::memcpy(data_.get(), survived.data(), size);
  capacity_ = size_ = size;
}

}  // namespace tutti
