// Files of this Linux host, through io_uring or a few threads. Of the loop's thread.
#pragma once

#include "world/disk.h"
#include "world/real/disk_engine.h"

namespace tutti {

class RealDisk final : public Disk {
 public:
  explicit RealDisk(Loop& loop, DiskBackEnd back_end = DiskBackEnd::best)
      : engine_(loop, back_end) {}

  Task<Result<std::unique_ptr<File>>> open(std::string path, OpenOptions options) override;
  Task<Result<FileInfo>> info(std::string path) override;
  Task<Result<void>> rename(std::string from, std::string to) override;
  Task<Result<void>> remove(std::string path) override;
  Task<Result<void>> make_directories(std::string path) override;
  Task<Result<std::vector<std::string>>> list(std::string path) override;
  Task<Result<void>> sync_directory(std::string path) override;
  Task<Result<uint64_t>> free_bytes(std::string path) override;

  bool on_ring() { return engine_.on_ring(); }

 private:
  DiskEngine engine_;
};

}  // namespace tutti
