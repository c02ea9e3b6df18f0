// What is known of the processes of one job on this host besides that they run: the records that
// they keep in the job's heap, and looks at those that ended or were told to, for who asks later.
//
// A look is kept when a process fails, and before one is told to end: of a hang that supervision
// ends, it shows who waited for whom. The last of each process stays, in a file beside what the job
// printed. A record is what the process wrote there: nothing here knows what is in it.
#pragma once

#include <map>
#include <string>

#include "cluster/look.pb.h"
#include "tutti/control_page.h"
#include "world/world.h"

namespace tutti {

// Of one process. What claims to be larger is not read.
constexpr uint64_t kMostRecordBytes = 128 << 10;
// Of the records that are kept of one job on one host, all together: a few kilobytes for each
// process of a large host. Others are kept without.
constexpr size_t kMostKeptBytes = 4 << 20;

class JobLooks {
 public:
  JobLooks(World& world, std::string folder) : world_(world), folder_(std::move(folder)) {}

  // The arena in which this keeper's ranks have their records.
  void set_heap(Handle heap) { heap_ = std::move(heap); }
  void forget_heap() { heap_ = Handle(); }
  bool has_heap() const { return heap_.open(); }

  // Packed; or why there is none.
  Result<std::string> record_of(const tutti_control_page& page, bool whole) const;

  // In place of what was kept of the same process.
  void keep(cluster::ProcessLook look);
  // Whether this life of the process has one.
  cluster::ProcessLook* find(uint32_t process, uint64_t epoch);
  const std::map<uint32_t, cluster::ProcessLook>& kept() const { return kept_; }
  bool unwritten() const { return unwritten_; }
  // Something was kept once, by us or by an agent before us that has the job no more.
  bool used() const { return used_; }

  // Reads what an agent before us kept, once, and writes what is there now.
  Task<void> load();
  Task<void> write();
  static Task<Result<cluster::KeptLooks>> read(World& world, std::string folder);

 private:
  Task<Result<void>> write_out(std::string bytes);

  World& world_;
  std::string folder_;
  Handle heap_;
  std::map<uint32_t, cluster::ProcessLook> kept_;
  size_t kept_bytes_ = 0;  // of records
  bool loaded_ = false;
  bool unwritten_ = false;
  bool used_ = false;
};

}  // namespace tutti
