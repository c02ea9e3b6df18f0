#include "world/real/disk_request.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/assert.h"

namespace tutti {

namespace {

constexpr size_t kMostAtOnce = 1 << 30;  // the kernel moves at most 2 GiB in one call
constexpr mode_t kFolderMode = 0777;     // less the umask
constexpr unsigned kInfoMask = STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME;

int64_t result_of(int64_t value) { return value < 0 ? -errno : value; }

int64_t make_directories(std::string path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const bool last = slash == std::string::npos;
    if (!last) path[slash] = '\0';
    const int error = mkdir(path.c_str(), kFolderMode) == 0 ? 0 : errno;
    struct stat info{};
    if (error != 0 && (stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)))
      return error == EEXIST && !last ? -ENOTDIR : -error;
    if (last) return 0;
    path[slash] = '/';
  }
}

int64_t list(const char* path, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path), &closedir);
  if (folder == nullptr) return -errno;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return -errno;
  std::sort(names.begin(), names.end());
  return 0;
}

int64_t free_bytes(const char* path) {
  struct statvfs info{};
  if (statvfs(path, &info) != 0) return -errno;
  return static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

int64_t perform_once(const DiskRequest& request) {
  const off_t offset = static_cast<off_t>(request.offset);
  const size_t size = std::min(request.size, kMostAtOnce);
  switch (request.kind) {
    case DiskRequest::Kind::open:
      return result_of(openat(AT_FDCWD, request.path, request.flags, request.mode));
    case DiskRequest::Kind::read: return result_of(pread(request.fd, request.data, size, offset));
    case DiskRequest::Kind::write: return result_of(pwrite(request.fd, request.data, size, offset));
    case DiskRequest::Kind::sync: return result_of(fsync(request.fd));
    case DiskRequest::Kind::rename:
      return result_of(renameat(AT_FDCWD, request.path, AT_FDCWD, request.to));
    case DiskRequest::Kind::remove:
      return result_of(unlinkat(AT_FDCWD, request.path, request.flags));
    case DiskRequest::Kind::info:
      return result_of(statx(AT_FDCWD, request.path, 0, kInfoMask, request.info));
    case DiskRequest::Kind::truncate: return result_of(ftruncate(request.fd, offset));
    case DiskRequest::Kind::make_directories: return make_directories(request.path);
    case DiskRequest::Kind::list: return list(request.path, *request.names);
    case DiskRequest::Kind::free_bytes: return free_bytes(request.path);
  }
  return -EINVAL;
}

}  // namespace

int64_t perform(const DiskRequest& request) {
  for (;;) {
    const int64_t result = perform_once(request);
    if (result != -EINTR) return result;
  }
}

bool ring_can(const DiskRequest& request) { return request.kind < DiskRequest::Kind::truncate; }

void prepare(const DiskRequest& request, io_uring_sqe& entry) {
  const auto size = static_cast<unsigned>(std::min(request.size, kMostAtOnce));
  switch (request.kind) {
    case DiskRequest::Kind::open:
      return io_uring_prep_openat(&entry, AT_FDCWD, request.path, request.flags, request.mode);
    case DiskRequest::Kind::read:
      return io_uring_prep_read(&entry, request.fd, request.data, size, request.offset);
    case DiskRequest::Kind::write:
      return io_uring_prep_write(&entry, request.fd, request.data, size, request.offset);
    case DiskRequest::Kind::sync: return io_uring_prep_fsync(&entry, request.fd, 0);
    case DiskRequest::Kind::rename:
      return io_uring_prep_renameat(&entry, AT_FDCWD, request.path, AT_FDCWD, request.to, 0);
    case DiskRequest::Kind::remove:
      return io_uring_prep_unlinkat(&entry, AT_FDCWD, request.path, request.flags);
    case DiskRequest::Kind::info:
      return io_uring_prep_statx(&entry, AT_FDCWD, request.path, 0, kInfoMask, request.info);
    default: TUTTI_ASSERT(false, "only what rings can do is given to one");
  }
}

}  // namespace tutti
