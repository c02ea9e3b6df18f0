// Files of one host. What is not synced may be lost, wholly or in part, when the host crashes:
// file data by sync(), names (create, rename, remove) by sync_directory() of their folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "world/handle.h"
#include "world/task.h"

namespace tutti {

// Memory that maps a file or an arena, unmapped when it dies.
class Mapping {
 public:
  virtual ~Mapping() = default;
  MutableBytes bytes() const {
    if (bytes_.data() == nullptr) [[unlikely]]
      wake();
    return bytes_;
  }
  // A hint of who looks at it rarely, and has no pointer into it left: bytes() may give another
  // place next time.
  virtual void rest() const {}

 protected:
  explicit Mapping(MutableBytes bytes) : bytes_(bytes) {}
  virtual void wake() const {}
  mutable MutableBytes bytes_;  // at no address while it rests
};

class File {
 public:
  virtual ~File() = default;
  // Fewer bytes than asked for only at the end of the file.
  virtual Task<Result<size_t>> read(uint64_t offset, MutableBytes into) = 0;
  virtual Task<Result<void>> write(uint64_t offset, Bytes bytes) = 0;
  // Gives the offset at which the bytes were put.
  virtual Task<Result<uint64_t>> append(Bytes bytes) = 0;
  virtual Task<Result<void>> sync() = 0;
  virtual Task<Result<void>> truncate(uint64_t size) = 0;
  virtual Task<Result<uint64_t>> size() = 0;
  // Shared with everyone who maps the file; the file must be that long already.
  virtual Result<std::unique_ptr<Mapping>> map(uint64_t offset, uint64_t size, bool writable) = 0;
};

struct OpenOptions {
  bool write = false;      // else only reading
  bool create = false;     // make it when it is not there
  bool exclusive = false;  // with create: Code::exists when it is there
  bool truncate = false;
  bool secret = false;  // with create: only its owner may read and write it (mode 0600)
};

struct FileInfo {
  bool directory = false;
  uint64_t size = 0;
  int64_t modified_unix_ns = 0;
  unsigned permissions = 0600;  // as chmod takes them
};

class Disk {
 public:
  virtual ~Disk() = default;
  virtual Task<Result<std::unique_ptr<File>>> open(std::string path, OpenOptions options) = 0;
  virtual Task<Result<FileInfo>> info(std::string path) = 0;
  // A file takes the place of a file. A folder takes only the place of nothing or of an empty
  // folder, else Code::exists: of several who rename one into place, the first wins.
  virtual Task<Result<void>> rename(std::string from, std::string to) = 0;
  virtual Task<Result<void>> remove(std::string path) = 0;  // a file or an empty directory
  virtual Task<Result<void>> make_directories(std::string path) = 0;
  // Names in the directory, sorted.
  virtual Task<Result<std::vector<std::string>>> list(std::string path) = 0;
  virtual Task<Result<void>> sync_directory(std::string path) = 0;
  virtual Task<Result<uint64_t>> free_bytes(std::string path) = 0;
};

// The whole file, refused past the limit.
Task<Result<std::string>> read_file(Disk& disk, std::string path, uint64_t limit_bytes);
// Replaces the file in one step that a crash cannot tear: temporary, sync, rename, directory sync.
Task<Result<void>> write_file_atomically(Disk& disk, std::string path, Bytes bytes);
// The parts one after the other; they must stay until it is done.
Task<Result<void>> write_file_atomically(Disk& disk, std::string path, std::vector<Bytes> parts);
// With all that leads to it, so that a crash takes none of them away; also of those that are there
// already, since whoever made them may not have lived to sync them.
Task<Result<void>> make_directories_durably(Disk& disk, std::string path);

}  // namespace tutti
