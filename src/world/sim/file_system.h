// Files in memory that remember what would survive a loss of power.
//
// A file has its contents and what was synced of them, which is a copy only where it differs from
// the contents' beginning. At a crash, each sector that differs keeps either, by luck: all lost,
// all kept, a prefix, or torn. A directory has its names and those synced; un-synced changes of
// names survive as a prefix of the order they were made in, each whole (a rename is never half
// done). A sync that failed leaves its bytes un-synced for good, as Linux does: only writing them
// again helps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/alike.h"
#include "base/bytes.h"
#include "base/result.h"
#include "world/disk.h"
#include "world/random.h"

namespace tutti {

constexpr uint64_t kSectorBytes = 512;

// How much a disk holds, shared by its files, and where those at rest are kept.
struct DiskSpace {
  AlikePool* pool = nullptr;
  uint64_t capacity = uint64_t{64} << 30;
  uint64_t used = 0;
};

// A small file that is only appended to and synced, as most are, is kept as what differs from the
// files of other hosts, and what was appended since; any other one is open.
class FileBody {
 public:
  explicit FileBody(std::shared_ptr<DiskSpace> space) : space_(std::move(space)) {}
  ~FileBody() { space_->used -= size_; }
  FileBody(const FileBody&) = delete;
  FileBody& operator=(const FileBody&) = delete;

  uint64_t size() const { return size_; }
  size_t read(uint64_t offset, MutableBytes into) const;
  Result<void> write(uint64_t offset, Bytes bytes);
  Result<void> resize(uint64_t size);
  Result<std::unique_ptr<Mapping>> map(uint64_t offset, uint64_t size, bool writable);

  uint64_t unsynced_bytes() const;
  void sync();
  void sync_failed() { open().unsynced = {}; }
  void crash(Random& luck);

 private:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    void add(uint64_t first, uint64_t last);
  };
  struct Open {
    void set_capacity(uint64_t capacity, uint64_t size);
    void will_change(uint64_t begin);
    void sync_part(uint64_t size);
    void changed(uint64_t begin, uint64_t end);

    std::shared_ptr<std::byte[]> data;
    uint64_t capacity = 0;
    std::unique_ptr<std::vector<std::byte>> synced;
    uint64_t synced_size = 0;  // without a copy: so much of the contents is synced
    Range unsynced;            // what sync() writes
    Range differs;             // where contents and synced may differ
    bool mapped_writable = false;
  };
  Open& open();
  std::string rested() const;
  bool append(Bytes bytes);
  void rest();
  Result<void> check_space(uint64_t size) const;
  Result<void> reserve(Open& open, uint64_t size);

  std::shared_ptr<DiskSpace> space_;
  uint64_t size_ = 0;
  AlikeBytes synced_;  // while it is not open
  AlikeBytes added_;   // since then, to what was synced
  std::unique_ptr<Open> open_;
};

struct DiskNode;
using DiskNodePtr = std::shared_ptr<DiskNode>;

// One copy of each name that is used on any disk of this thread, for good: they are few.
const std::string* shared_name(const std::string& name);

// The names in a directory, and what they name now and after a loss of power.
class DiskNames {
 public:
  struct Entry {
    const std::string* name;
    DiskNodePtr now;     // or nullptr
    DiskNodePtr synced;  // or nullptr
  };
  DiskNodePtr find(const std::string& name) const;
  bool empty() const;
  void set(const std::string& name, DiskNodePtr node);
  void set_synced(const std::string& name, DiskNodePtr node);
  void forget_unsynced();
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their names

 private:
  void set(const std::string& name, DiskNodePtr Entry::* which, DiskNodePtr node);
  std::vector<Entry> entries_;
};

struct DiskNode {
  bool directory() const { return body == nullptr; }
  uint64_t size() const { return directory() ? 0 : body->size(); }

  bool secret = false;
  int64_t modified_unix_ns = 0;
  std::unique_ptr<FileBody> body;  // of a file
  DiskNames names;                 // of a directory
};

class FileSystem {
 public:
  explicit FileSystem(AlikePool* pool = nullptr);
  DiskSpace& space() { return *space_; }

  Result<DiskNodePtr> find(const std::string& path) const;
  Result<DiskNodePtr> open(const std::string& path, const OpenOptions& options);
  Result<void> rename(const std::string& from, const std::string& to);
  Result<void> remove(const std::string& path);
  Result<void> make_directories(const std::string& path);
  Result<void> sync_directory(const std::string& path);
  void crash(Random& luck);

 private:
  struct Name {
    DiskNodePtr directory;
    const std::string* name;
  };
  // What one call did to a name, and to the one before it if it is of the same call: all of it
  // survives, or nothing.
  struct Change {
    Name name;
    DiskNodePtr node;  // nullptr: the name was removed
    bool of_same_call = false;
  };
  Result<Name> locate(const std::string& path) const;
  void apply(Change change);
  static void make_durable(const Change& change);
  static void forget_unsynced(DiskNode& directory, Random& luck);

  std::shared_ptr<DiskSpace> space_;
  DiskNodePtr root_;
  std::vector<Change> unsynced_;
};

}  // namespace tutti
