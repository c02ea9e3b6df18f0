// Disk of a simulated host: a FileSystem that takes time, and fails when told to. Operations stand
// in line for the device; each ends after its latency and transfer, by the cost table.
#pragma once

#include <string>

#include "world/disk.h"
#include "world/sim/costs.h"
#include "world/sim/event.h"
#include "world/sim/file_system.h"
#include "world/sim/random.h"

namespace tutti {

class SimHost;

class SimDisk final : public Disk {
 public:
  explicit SimDisk(SimHost& host);

  Task<Result<std::unique_ptr<File>>> open(std::string path, OpenOptions options) override;
  Task<Result<FileInfo>> info(std::string path) override;
  Task<Result<void>> rename(std::string from, std::string to) override;
  Task<Result<void>> remove(std::string path) override;
  Task<Result<void>> make_directories(std::string path) override;
  Task<Result<std::vector<std::string>>> list(std::string path) override;
  Task<Result<void>> sync_directory(std::string path) override;
  Task<Result<uint64_t>> free_bytes(std::string path) override;

  // Faults.
  void crash();
  void set_error_probability(double probability) { error_probability_ = probability; }
  void set_full(bool full) { full_ = full; }
  void mend();
  FileSystem& files() { return files_; }

  // The end of one operation: co_await gives Result<void>, an I/O error by chance.
  class Done;
  Done done(const char* what, uint64_t bytes,
            double CostTable::* latency = &CostTable::disk_latency_ns);
  Result<void> check_space() const;
  int64_t unix_ns() const;

 private:
  SimHost& host_;
  FileSystem files_;
  SimRandom luck_;
  double error_probability_ = 0;
  bool full_ = false;
  int64_t free_at_ns_ = 0;
};

}  // namespace tutti
