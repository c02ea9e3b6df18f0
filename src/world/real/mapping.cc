#include "world/real/mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

namespace {

class RealMapping final : public Mapping {
 public:
  RealMapping(MutableBytes pages, size_t skipped)
      : Mapping(pages.subspan(skipped)), pages_(pages) {}
  ~RealMapping() override { munmap(pages_.data(), pages_.size()); }
  RealMapping(const RealMapping&) = delete;
  RealMapping& operator=(const RealMapping&) = delete;

 private:
  MutableBytes pages_;
};

}  // namespace

Result<std::unique_ptr<Mapping>> map_fd(int fd, uint64_t offset, uint64_t size, bool writable,
                                        std::string_view what) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return fail_errno(errno, "map {}", what);
  // The kernel would say "No such device".
  if (S_ISDIR(info.st_mode)) return fail(Code::invalid, "{} is a folder; give a file", what);
  const uint64_t whole = static_cast<uint64_t>(info.st_size);
  if (size == 0) return fail(Code::invalid, "map {}: nothing to map", what);
  if (offset > whole || size > whole - offset)
    return fail(Code::invalid, "map {}: {} bytes at {} go past its end at {}", what, size, offset,
                whole);
  const size_t skipped = offset % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = size + skipped;
  void* pages = mmap(nullptr, mapped, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
                     static_cast<off_t>(offset - skipped));
  if (pages == MAP_FAILED) return fail_errno(errno, "map {}", what);
  const MutableBytes bytes(static_cast<std::byte*>(pages), mapped);
  return std::make_unique<RealMapping>(bytes, skipped);
}

}  // namespace tutti
