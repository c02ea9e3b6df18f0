#include "world/sim/disk.h"

#include <algorithm>
#include <cerrno>

#include "world/sim/network.h"
#include "world/sim/simulator.h"

namespace tutti {

class SimDisk::Done final : public Waiter, public SimEvent {
 public:
  Done(SimDisk& disk, const char* what, uint64_t bytes, double CostTable::* latency)
      : SimEvent(EventKind::disk),
        disk_(disk),
        what_(what),
        latency_ns_(static_cast<uint32_t>(disk.host_.simulator().costs().*latency)) {
    detail_ = static_cast<uint32_t>(bytes);
  }

  bool await_ready() {
    if (!cancelled_already()) return false;
    result_ = fail(cancelled_error());
    return true;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    Simulator& sim = disk_.host_.simulator();
    const CostTable& costs = sim.costs();
    const int64_t begin =
        std::max({sim.now_ns(), disk_.free_at_ns_, disk_.host_.core().ready_at_ns()});
    const double bytes = detail_;
    const auto busy = static_cast<int64_t>(costs.disk_transfer_byte_ns * bytes);
    disk_.free_at_ns_ = begin + busy;
    charge_ns_ = static_cast<uint32_t>(costs.disk_operation_ns + costs.disk_byte_ns * bytes);
    const int64_t end = begin + busy + latency_ns_;
    sim.schedule(*this, disk_.host_.core(), end);
  }
  Result<void> await_resume() { return std::move(result_); }

 private:
  void fire() override {
    if (disk_.luck_.chance(disk_.error_probability_))
      result_ = fail_errno(EIO, "{} on {}", what_, disk_.host_.host_name());
    wake();
  }
  void on_cancel() override {
    clock()->disarm(*this);
    result_ = fail(cancelled_error());
    wake();
  }
  SimDisk& disk_;
  const char* what_;
  Result<void> result_;
  uint32_t latency_ns_;
};

namespace {

class SimFile final : public File {
 public:
  SimFile(SimDisk& disk, DiskNodePtr node, bool writable)
      : disk_(disk), node_(std::move(node)), writable_(writable) {}

  Task<Result<size_t>> read(uint64_t offset, MutableBytes into) override {
    CO_TRY_DO(co_await disk_.done("read", into.size()));
    co_return node_->body->read(offset, into);
  }

  // The bytes are in the host's memory at once; a crash meanwhile may keep a part.
  Task<Result<void>> write(uint64_t offset, Bytes bytes) override {
    return written(put(offset, bytes), bytes.size());
  }

  Task<Result<uint64_t>> append(Bytes bytes) override {
    const uint64_t offset = node_->body->size();
    CO_TRY_DO(put(offset, bytes));
    CO_TRY_DO(co_await disk_.done("append", bytes.size()));
    co_return offset;
  }

  Task<Result<void>> sync() override {
    const uint64_t bytes = node_->body->unsynced_bytes();
    auto done = co_await disk_.done("sync", bytes, &CostTable::disk_sync_ns);
    if (done) {
      node_->body->sync();
    } else if (done.error().code() == Code::io) {
      node_->body->sync_failed();
    }
    co_return done;
  }

  Task<Result<void>> truncate(uint64_t size) override {
    CO_TRY_DO(check_writable());
    CO_TRY_DO(node_->body->resize(size));
    co_return co_await disk_.done("truncate", 0);
  }

  Task<Result<uint64_t>> size() override { co_return node_->body->size(); }

  Result<std::unique_ptr<Mapping>> map(uint64_t offset, uint64_t size, bool writable) override {
    if (writable) TRY_DO(check_writable());
    return node_->body->map(offset, size, writable);
  }

 private:
  Task<Result<void>> written(Result<void> put, size_t bytes) {
    if (put) put = co_await disk_.done("write", bytes);
    co_return put;
  }
  Result<void> check_writable() const {
    if (!writable_) return fail_errno(EACCES, "the file was opened for reading");
    return {};
  }
  Result<void> put(uint64_t offset, Bytes bytes) {
    TRY_DO(check_writable());
    TRY_DO(disk_.check_space());
    node_->modified_unix_ns = disk_.unix_ns();
    return node_->body->write(offset, bytes);
  }

  SimDisk& disk_;
  DiskNodePtr node_;
  bool writable_;
};

}  // namespace

SimDisk::SimDisk(SimHost& host)
    : host_(host),
      files_(&host.simulator().alike()),
      luck_(host.simulator().key(host.index(), RandomStream::disk)) {}

SimDisk::Done SimDisk::done(const char* what, uint64_t bytes, double CostTable::* latency) {
  return {*this, what, bytes, latency};
}

Result<void> SimDisk::check_space() const {
  if (full_) return fail_errno(ENOSPC, "write on {}", host_.host_name());
  return {};
}

int64_t SimDisk::unix_ns() const { return host_.core().unix_ns(); }

void SimDisk::crash() {
  files_.crash(luck_);
  free_at_ns_ = 0;
}

void SimDisk::mend() {
  error_probability_ = 0;
  full_ = false;
}

Task<Result<std::unique_ptr<File>>> SimDisk::open(std::string path, OpenOptions options) {
  CO_TRY_DO(co_await done("open", 0));
  if (options.create) CO_TRY_DO(check_space());
  CO_TRY(DiskNodePtr node, files_.open(path, options));
  co_return std::make_unique<SimFile>(*this, std::move(node), options.write);
}

Task<Result<FileInfo>> SimDisk::info(std::string path) {
  CO_TRY_DO(co_await done("info", 0));
  CO_TRY(DiskNodePtr node, files_.find(path));
  const unsigned permissions = node->directory() ? 0755 : node->secret ? 0600 : 0644;
  co_return FileInfo{node->directory(), node->size(), node->modified_unix_ns, permissions};
}

Task<Result<void>> SimDisk::rename(std::string from, std::string to) {
  CO_TRY_DO(co_await done("rename", 0));
  co_return files_.rename(from, to);
}

Task<Result<void>> SimDisk::remove(std::string path) {
  CO_TRY_DO(co_await done("remove", 0));
  co_return files_.remove(path);
}

Task<Result<void>> SimDisk::make_directories(std::string path) {
  CO_TRY_DO(co_await done("make directory", 0));
  CO_TRY_DO(check_space());
  co_return files_.make_directories(path);
}

Task<Result<std::vector<std::string>>> SimDisk::list(std::string path) {
  CO_TRY_DO(co_await done("list", 0));
  CO_TRY(DiskNodePtr node, files_.find(path));
  if (!node->directory()) co_return fail_errno(ENOTDIR, "list {}", path);
  std::vector<std::string> names;
  for (const DiskNames::Entry& entry : node->names.entries())
    if (entry.now != nullptr) names.push_back(*entry.name);
  for (std::string& name : host_.ports().sockets_in(path)) names.push_back(std::move(name));
  std::ranges::sort(names);
  co_return names;
}

Task<Result<void>> SimDisk::sync_directory(std::string path) {
  CO_TRY_DO(co_await done("sync directory", 0, &CostTable::disk_sync_ns));
  co_return files_.sync_directory(path);
}

Task<Result<uint64_t>> SimDisk::free_bytes(std::string) {
  const DiskSpace& space = files_.space();
  co_return full_ || space.used >= space.capacity ? 0 : space.capacity - space.used;
}

}  // namespace tutti
