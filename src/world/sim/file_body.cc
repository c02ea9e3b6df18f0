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
void FileBody::Open::will_change(uint64_t begin) {
  if (synced != nullptr || begin >= synced_size) return;
  synced = std::make_unique<std::vector<std::byte>>(data.get(), data.get() + synced_size);
}

void FileBody::Open::changed(uint64_t begin, uint64_t end) {
  unsynced.add(begin, end);
  differs.add(begin, end);
}

void FileBody::Open::set_capacity(uint64_t wanted, uint64_t size) {
  auto memory = std::make_shared_for_overwrite<std::byte[]>(wanted);
  if (size != 0) std::memcpy(memory.get(), data.get(), size);
  data = std::move(memory);
  capacity = wanted;
}

// When a part of what differs is synced, and the rest is not.
void FileBody::Open::sync_part(uint64_t size) {
  if (synced == nullptr)
    synced = std::make_unique<std::vector<std::byte>>(data.get(), data.get() + synced_size);
  synced->resize(size);
  const uint64_t end = std::min(unsynced.end, size);
  if (unsynced.begin < end)
    std::memcpy(synced->data() + unsynced.begin, data.get() + unsynced.begin, end - unsynced.begin);
}

// All of one that is not open.
std::string FileBody::rested() const { return synced_.text() + added_.text(); }

FileBody::Open& FileBody::open() {
  if (open_ != nullptr) return *open_;
  open_ = std::make_unique<Open>();
  open_->synced_size = synced_.size();
  if (size_ != 0) {
    open_->set_capacity(size_, 0);
    const std::string all = rested();
    std::memcpy(open_->data.get(), all.data(), all.size());
    open_->changed(synced_.size(), size_);
  }
  synced_ = AlikeBytes();
  added_ = AlikeBytes();
  return *open_;
}

// False when it must be open for that.
bool FileBody::append(Bytes bytes) {
  if (open_ != nullptr || space_->pool == nullptr || size_ + bytes.size() > kSmallFile)
    return false;
  const std::string all = added_.text().append(as_text(bytes));
  added_ = AlikeBytes(*space_->pool, as_bytes(all));
  space_->used += bytes.size();
  size_ += bytes.size();
  return true;
}

size_t FileBody::read(uint64_t offset, MutableBytes into) const {
  if (offset >= size_) return 0;
  const size_t count = std::min<uint64_t>(into.size(), size_ - offset);
  if (open_ != nullptr) {
    std::memcpy(into.data(), open_->data.get() + offset, count);
  } else {
    std::memcpy(into.data(), rested().data() + offset, count);
  }
  return count;
}

Result<void> FileBody::write(uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return {};
  const uint64_t end = offset + bytes.size();
  if (end > size_) TRY_DO(check_space(end));
  if (offset == size_ && append(bytes)) return {};
  if (end > size_) TRY_DO(resize(end));
  Open& open = this->open();
  open.will_change(offset);
  std::memcpy(open.data.get() + offset, bytes.data(), bytes.size());
  open.changed(offset, end);
  return {};
}

Result<void> FileBody::check_space(uint64_t size) const {
  const uint64_t left = space_->capacity - std::min(space_->used, space_->capacity);
  if (size > size_ && size - size_ > left)
    return fail(Code::exhausted, "no space left on the disk: {} of {} bytes are used", space_->used,
                space_->capacity);
  return {};
}

Result<void> FileBody::resize(uint64_t size) {
  TRY_DO(check_space(size));
  Open& open = this->open();
  TRY_DO(reserve(open, size));
  open.will_change(size);
  if (size > size_) std::memset(open.data.get() + size_, 0, size - size_);
  open.changed(std::min(size, size_), std::max(size, size_));
  space_->used += size - size_;
  size_ = size;
  return {};
}

Result<void> FileBody::reserve(Open& open, uint64_t size) {
  if (size <= open.capacity) return {};
  if (size > kLargestFile)
    return fail(Code::exhausted, "a simulated file ends at {} bytes", kLargestFile);
  if (open.data.use_count() > 1)
    return fail(Code::unsupported, "a simulated file does not grow while it is mapped");
  const uint64_t ahead = size > kSmallFile ? open.capacity + open.capacity / 2 : kSmallestCapacity;
  open.set_capacity(std::max(size, ahead), size_);
  return {};
}

Result<std::unique_ptr<Mapping>> FileBody::map(uint64_t offset, uint64_t size, bool writable) {
  if (size == 0 || offset > size_ || size > size_ - offset)
    return fail_errno(EINVAL, "map bytes {} to {} of a file of {}", offset, offset + size, size_);
  Open& open = this->open();
  if (writable) open.will_change(0);
  open.mapped_writable |= writable;
  return std::make_unique<BodyMapping>(open.data, MutableBytes(open.data.get() + offset, size));
}

uint64_t FileBody::unsynced_bytes() const {
  if (open_ != nullptr) return open_->unsynced.end - open_->unsynced.begin;
  return added_.size();
}

// From here on it is as what was synced.
void FileBody::rest() {
  if (space_->pool == nullptr || size_ > kSmallFile) return;
  if (open_ != nullptr && open_->data.use_count() > 1) return;
  const std::string all =
      open_ == nullptr ? rested() : std::string(as_text({open_->data.get(), size_}));
  synced_ = AlikeBytes(*space_->pool, as_bytes(all));
  added_ = AlikeBytes();
  open_.reset();
}

void FileBody::sync() {
  if (open_ == nullptr) {
    if (!added_.empty()) rest();
    return;
  }
  Open& open = *open_;
  if (open.mapped_writable) open.changed(0, size_);
  if (open.differs.begin == open.unsynced.begin && open.differs.end == open.unsynced.end)
    open.differs = {};
  if (open.differs.begin == open.differs.end && !open.mapped_writable) {
    open.synced.reset();
    open.synced_size = size_;
    open.unsynced = {};
    return rest();
  }
  open.sync_part(size_);
  open.unsynced = {};
}

void FileBody::crash(Random& luck) {
  Open& now = open();
  if (now.mapped_writable) now.changed(0, size_);
  const uint64_t before = now.synced ? now.synced->size() : now.synced_size;
  const uint64_t least = std::min(before, size_);
  const uint64_t most = std::max(before, size_);
  enum { lose, keep, prefix, torn };
  const uint64_t mode = luck.below(4);
  uint64_t size = mode == lose ? before : size_;
  if (mode == prefix) size = least + luck.below(most - least + 1);
  std::vector<std::byte> survived(now.data.get(),
                                  now.data.get() + (now.synced ? 0 : now.synced_size));
  if (now.synced != nullptr) survived = std::move(*now.synced);
  survived.resize(size);
  const uint64_t first = now.differs.begin / kSectorBytes;
  const uint64_t end = (std::min({now.differs.end, size_, size}) + kSectorBytes - 1) / kSectorBytes;
  const uint64_t whole = mode == prefix && end > first ? first + luck.below(end - first + 1) : end;
  for (uint64_t sector = first; sector < end && mode != lose; ++sector) {
    if (mode == prefix && sector >= whole) break;
    if (mode == torn && luck.below(2) == 0) continue;
    const uint64_t begin = sector * kSectorBytes;
    const uint64_t bytes = std::min({kSectorBytes, size - begin, size_ - begin});
    std::memcpy(survived.data() + begin, now.data.get() + begin, bytes);
  }
  space_->used += size - size_;
  size_ = size;
  open_ = std::make_unique<Open>();
  open_->synced_size = size;
  if (size == 0) return;
  open_->set_capacity(size, 0);
  std::memcpy(open_->data.get(), survived.data(), size);
  rest();
}

}  // namespace tutti
