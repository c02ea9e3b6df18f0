#include "world/real/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "world/real/errors.h"
#include "world/real/fd.h"
#include "world/real/mapping.h"
#include "world/semaphore.h"

namespace tutti {

namespace {

constexpr mode_t kFileMode = 0666;  // less the umask
constexpr mode_t kSecretMode = 0600;

std::string advice(int number, const std::string& path) {
  switch (number) {
    case ENOSPC:
    case EDQUOT: return fmt::format("free some space: df -h {}", path);
    case EFBIG: return "this user may not make files that large: ulimit -f";
    case EACCES:
    case EPERM: return fmt::format("who may is shown by: namei -l {}", path);
    case EROFS: return "the disk is mounted read-only";
    case EIO: return "the disk failed: see dmesg";
    default: return "";
  }
}

// `result` is a system call's, negative for an error.
Error disk_error(int64_t result, std::string_view doing, const std::string& path) {
  const int number = static_cast<int>(-result);
  if (number == ECANCELED) return cancelled_error();
  const std::string what = fmt::format("{} {}", doing, path);
  const std::string what_to_do = advice(number, path);
  if (what_to_do.empty()) return Error::from_errno(number, what);
  const Error error = errno_with_advice(number, what, what_to_do);
  return number == EFBIG ? Error(Code::exhausted, error.message()) : error;
}

class RealFile final : public File {
 public:
  RealFile(DiskEngine& engine, std::string path, Handle file)
      : engine_(engine), path_(std::move(path)), file_(std::move(file)) {}

  Task<Result<size_t>> read(uint64_t offset, MutableBytes into) override;
  Task<Result<void>> write(uint64_t offset, Bytes bytes) override;
  Task<Result<uint64_t>> append(Bytes bytes) override;
  Task<Result<void>> sync() override;
  Task<Result<void>> truncate(uint64_t size) override;
  Task<Result<uint64_t>> size() override;
  Result<std::unique_ptr<Mapping>> map(uint64_t offset, uint64_t size, bool writable) override {
    return map_fd(file_.number(), offset, size, writable, path_);
  }

 private:
  Task<Result<uint64_t>> append_alone(Bytes bytes);
  // Of what the kernel has in memory: not worth a trip to the engine.
  Result<uint64_t> size_now() const {
    struct stat info{};
    if (fstat(file_.number(), &info) != 0) return fail(disk_error(-errno, "look at", path_));
    return static_cast<uint64_t>(info.st_size);
  }

  DiskEngine& engine_;
  std::string path_;
  Handle file_;
  Semaphore appending_{1};  // one finds the end and writes there before the next looks
};

Task<Result<size_t>> RealFile::read(uint64_t offset, MutableBytes into) {
  size_t done = 0;
  while (done < into.size()) {
    DiskEngine::Operation operation(engine_, {.kind = DiskRequest::Kind::read,
                                              .fd = file_.number(),
                                              .offset = offset + done,
                                              .data = into.data() + done,
                                              .size = into.size() - done});
    const int64_t got = co_await operation;
    if (got == -EINTR || got == -EAGAIN) continue;
    if (got < 0) co_return fail(disk_error(got, "read", path_));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  co_return done;
}

Task<Result<void>> RealFile::write(uint64_t offset, Bytes bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    DiskEngine::Operation operation(engine_, {.kind = DiskRequest::Kind::write,
                                              .fd = file_.number(),
                                              .offset = offset + done,
                                              .data = const_cast<std::byte*>(bytes.data() + done),
                                              .size = bytes.size() - done});
    const int64_t put = co_await operation;
    if (put == -EINTR || put == -EAGAIN) continue;
    if (put < 0) co_return fail(disk_error(put, "write", path_));
    if (put == 0) co_return fail(Code::io, "write {}: the disk took nothing", path_);
    done += static_cast<size_t>(put);
  }
  co_return {};
}

Task<Result<uint64_t>> RealFile::append(Bytes bytes) {
  auto turn = co_await appending_.acquire();
  if (!turn) co_return fail(turn.error());
  auto appended = co_await append_alone(bytes);
  appending_.release();
  co_return appended;
}

Task<Result<uint64_t>> RealFile::append_alone(Bytes bytes) {
  CO_TRY(const uint64_t end, size_now());
  CO_TRY_DO(co_await write(end, bytes));
  co_return end;
}

Task<Result<void>> RealFile::sync() {
  DiskEngine::Operation operation(engine_, {.kind = DiskRequest::Kind::sync, .fd = file_.number()});
  const int64_t done = co_await operation;
  if (done < 0) co_return fail(disk_error(done, "sync", path_));
  co_return {};
}

Task<Result<void>> RealFile::truncate(uint64_t size) {
  DiskEngine::Operation operation(
      engine_, {.kind = DiskRequest::Kind::truncate, .fd = file_.number(), .offset = size});
  const int64_t done = co_await operation;
  if (done < 0) co_return fail(disk_error(done, "truncate", path_));
  co_return {};
}

Task<Result<uint64_t>> RealFile::size() { co_return size_now(); }

int flags_of(const OpenOptions& options) {
  int flags = O_CLOEXEC | O_NOCTTY | (options.write ? O_RDWR : O_RDONLY);
  if (options.create) flags |= O_CREAT;
  if (options.create && options.exclusive) flags |= O_EXCL;
  if (options.truncate) flags |= O_TRUNC;
  return flags;
}

}  // namespace

Task<Result<std::unique_ptr<File>>> RealDisk::open(std::string path, OpenOptions options) {
  DiskEngine::Operation operation(engine_, {.kind = DiskRequest::Kind::open,
                                            .path = path.c_str(),
                                            .flags = flags_of(options),
                                            .mode = options.secret ? kSecretMode : kFileMode});
  const int64_t fd = co_await operation;
  if (fd < 0) co_return fail(disk_error(fd, "open", path));
  Handle file = own_fd(static_cast<int>(fd));
  co_return std::make_unique<RealFile>(engine_, std::move(path), std::move(file));
}

Task<Result<FileInfo>> RealDisk::info(std::string path) {
  struct statx found{};
  DiskEngine::Operation operation(
      engine_, {.kind = DiskRequest::Kind::info, .path = path.c_str(), .info = &found});
  const int64_t done = co_await operation;
  if (done < 0) co_return fail(disk_error(done, "look at", path));
  FileInfo info;
  info.directory = S_ISDIR(found.stx_mode);
  info.size = found.stx_size;
  info.modified_unix_ns = found.stx_mtime.tv_sec * 1'000'000'000 + found.stx_mtime.tv_nsec;
  info.permissions = found.stx_mode & 07777U;
  co_return info;
}

Task<Result<void>> RealDisk::rename(std::string from, std::string to) {
  DiskEngine::Operation operation(
      engine_, {.kind = DiskRequest::Kind::rename, .path = from.c_str(), .to = to.c_str()});
  const int64_t done = co_await operation;
  if (done < 0) co_return fail(disk_error(done, fmt::format("rename {} to", from), to));
  co_return {};
}

Task<Result<void>> RealDisk::remove(std::string path) {
  int64_t done = -EISDIR;
  for (const int flags : {0, AT_REMOVEDIR}) {
    if (done != -EISDIR) break;
    DiskEngine::Operation operation(
        engine_, {.kind = DiskRequest::Kind::remove, .path = path.c_str(), .flags = flags});
    done = co_await operation;
  }
  if (done < 0) co_return fail(disk_error(done, "remove", path));
  co_return {};
}

Task<Result<void>> RealDisk::make_directories(std::string path) {
  DiskEngine::Operation operation(
      engine_, {.kind = DiskRequest::Kind::make_directories, .path = path.c_str()});
  const int64_t done = co_await operation;
  if (done < 0) co_return fail(disk_error(done, "make folder", path));
  co_return {};
}

Task<Result<std::vector<std::string>>> RealDisk::list(std::string path) {
  std::vector<std::string> names;
  DiskEngine::Operation operation(
      engine_, {.kind = DiskRequest::Kind::list, .path = path.c_str(), .names = &names});
  const int64_t done = co_await operation;
  if (done < 0) co_return fail(disk_error(done, "list", path));
  co_return names;
}

Task<Result<void>> RealDisk::sync_directory(std::string path) {
  DiskEngine::Operation opening(engine_, {.kind = DiskRequest::Kind::open,
                                          .path = path.c_str(),
                                          .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC});
  const int64_t fd = co_await opening;
  if (fd < 0) co_return fail(disk_error(fd, "open folder", path));
  const Handle folder = own_fd(static_cast<int>(fd));
  DiskEngine::Operation syncing(engine_, {.kind = DiskRequest::Kind::sync, .fd = folder.number()});
  const int64_t done = co_await syncing;
  if (done < 0) co_return fail(disk_error(done, "sync folder", path));
  co_return {};
}

Task<Result<uint64_t>> RealDisk::free_bytes(std::string path) {
  DiskEngine::Operation operation(engine_,
                                  {.kind = DiskRequest::Kind::free_bytes, .path = path.c_str()});
  const int64_t free = co_await operation;
  if (free < 0) co_return fail(disk_error(free, "look at the disk of", path));
  co_return static_cast<uint64_t>(free);
}

}  // namespace tutti
