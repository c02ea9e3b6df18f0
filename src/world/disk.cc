#include "world/disk.h"

#include <algorithm>

namespace tutti {

namespace {

// So much at a time, so that a cancelled write ends soon.
constexpr size_t kPieceBytes = size_t{16} << 20;

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Task<Result<void>> write_and_sync(Disk& disk, std::string path, std::vector<Bytes> parts) {
  const OpenOptions options{.write = true, .create = true, .truncate = true};
  CO_TRY(auto file, co_await disk.open(path, options));
  uint64_t at = 0;
  for (Bytes rest : parts) {
    while (!rest.empty()) {
      const Bytes piece = rest.first(std::min(kPieceBytes, rest.size()));
      CO_TRY_DO(co_await file->write(at, piece));
      at += piece.size();
      rest = rest.subspan(piece.size());
    }
  }
  CO_TRY_DO(co_await file->sync());
  co_return {};
}

}  // namespace

Task<Result<std::string>> read_file(Disk& disk, std::string path, uint64_t limit_bytes) {
  CO_TRY(auto file, co_await disk.open(path, OpenOptions{}));
  CO_TRY(const uint64_t size, co_await file->size());
  if (size > limit_bytes)
    co_return fail(Code::exhausted, "{} has {} bytes, more than the {} allowed", path, size,
                   limit_bytes);
  std::string text(size, '\0');
  const MutableBytes into = as_mutable_bytes(text);
  CO_TRY(const size_t got, co_await file->read(0, into));
  text.resize(got);
  co_return text;
}

Task<Result<void>> write_file_atomically(Disk& disk, std::string path, std::vector<Bytes> parts) {
  const std::string temporary = path + ".new";
  auto written = co_await write_and_sync(disk, temporary, parts);
  if (!written) {
    Shield shield;  // leave no half-written file behind, even when cancelled
    auto removed = co_await disk.remove(temporary);
    static_cast<void>(removed);  // the first error is the one that matters
    co_return fail(written.error().context(fmt::format("writing {}", path)));
  }
  CO_TRY_DO(co_await disk.rename(temporary, path));
  const std::string folder = parent_of(path);
  CO_TRY_DO(co_await disk.sync_directory(folder));
  co_return {};
}

Task<Result<void>> write_file_atomically(Disk& disk, std::string path, Bytes bytes) {
  return write_file_atomically(disk, std::move(path), std::vector<Bytes>{bytes});
}

Task<Result<void>> make_directories_durably(Disk& disk, std::string path) {
  CO_TRY_DO(co_await disk.make_directories(path));
  std::string folder = path;
  while (folder != "/" && folder != ".") {
    folder = parent_of(folder);
    auto synced = co_await disk.sync_directory(folder);
    if (synced) continue;
    // Folders we may not read, and file systems that cannot sync them, were not made by us.
    const Code code = synced.error().code();
    if (code != Code::denied && code != Code::invalid && code != Code::unsupported)
      co_return fail(synced.error().context(fmt::format("making {}", path)));
  }
  co_return {};
}

}  // namespace tutti
