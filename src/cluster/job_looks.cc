#include "cluster/job_looks.h"

#include <algorithm>

#include "base/log.h"
#include "cluster/sparse.h"

namespace tutti {
namespace {

constexpr std::string_view kFileName = "looks";
constexpr uint64_t kPage = 4096;
// Far more than the looks of any host take.
constexpr uint64_t kMostFileBytes = 256_MiB;

std::string file_in(const std::string& folder) { return fmt::format("{}/{}", folder, kFileName); }

}  // namespace

Result<std::string> JobLooks::record_of(const tutti_control_page& page, bool whole) const {
  const uint64_t bytes = __atomic_load_n(&page.record_bytes, __ATOMIC_ACQUIRE);
  const uint64_t offset = __atomic_load_n(&page.record_offset, __ATOMIC_ACQUIRE);
  const uint64_t brief = __atomic_load_n(&page.record_brief, __ATOMIC_ACQUIRE);
  if (bytes == 0) return std::string();
  if (!has_heap()) return fail(Code::unavailable, "its keeper is gone, and the heap with it");
  TRY(const uint64_t size, world_.memory().arena_size(heap_));
  if (bytes > kMostRecordBytes || brief > bytes || offset % sizeof(uint64_t) != 0 ||
      offset > size || bytes > size - offset)
    return fail(Code::corrupt, "its control page says that the record is at {}, of {} bytes",
                offset, bytes);
  const uint64_t begin = offset / kPage * kPage;
  const uint64_t skipped = offset - begin;
  const uint64_t wanted = whole ? bytes : brief;
  TRY(const auto mapping, world_.memory().map(heap_, begin, skipped + wanted, false));
  return pack_sparse(mapping->bytes().data() + skipped, wanted);
}

void JobLooks::keep(cluster::ProcessLook look) {
  const uint32_t process = look.info().process();
  cluster::ProcessLook& kept = kept_[process];
  kept_bytes_ -= kept.record().size();
  if (kept_bytes_ + look.record().size() > kMostKeptBytes) {
    look.clear_record();
    look.set_no_record("there was no room to keep it");
  }
  kept_bytes_ += look.record().size();
  kept = std::move(look);
  unwritten_ = used_ = true;
}

cluster::ProcessLook* JobLooks::find(uint32_t process, uint64_t epoch) {
  const auto found = kept_.find(process);
  if (found == kept_.end() || found->second.info().epoch() != epoch) return nullptr;
  return &found->second;
}

Task<Result<cluster::KeptLooks>> JobLooks::read(World& world, std::string folder) {
  const std::string path = file_in(folder);
  auto bytes = co_await read_file(world.disk(), path, kMostFileBytes);
  if (!bytes) co_return fail(std::move(bytes).error());
  cluster::KeptLooks looks;
  if (!looks.ParseFromString(*bytes)) co_return fail(Code::corrupt, "{} does not parse", path);
  co_return looks;
}

Task<void> JobLooks::load() {
  if (loaded_) co_return;
  auto looks = co_await read(world_, folder_);
  // Somebody else may have done so meanwhile; to do it again changes nothing.
  loaded_ = true;
  if (!looks) co_return;
  for (cluster::ProcessLook& look : *looks->mutable_looks()) {
    const auto newer = kept_.find(look.info().process());
    if (newer == kept_.end()) {
      keep(std::move(look));
      continue;
    }
    // It was told to end before we came: what it did then is worth more than that it has ended.
    const bool same_life = newer->second.info().epoch() == look.info().epoch();
    if (!same_life || !look.told_to_end() || newer->second.told_to_end()) continue;
    if (newer->second.has_exit()) *look.mutable_exit() = newer->second.exit();
    keep(std::move(look));
  }
}

Task<void> JobLooks::write() {
  co_await load();
  unwritten_ = false;
  cluster::KeptLooks looks;
  for (const auto& [process, look] : kept_) *looks.add_looks() = look;
  std::string bytes = looks.SerializeAsString();
  auto written = co_await write_out(std::move(bytes));
  if (!written) TUTTI_LOG(warn, "cannot keep what a job did", {{"why", written.error().text()}});
}

// Not durably: what a crash of the host leaves of it is not worth the wait.
Task<Result<void>> JobLooks::write_out(std::string bytes) {
  auto made = co_await world_.disk().make_directories(folder_);
  if (!made) co_return made;
  OpenOptions options{.write = true, .create = true, .truncate = true, .secret = true};
  const std::string path = file_in(folder_);
  auto file = co_await world_.disk().open(path, options);
  if (!file) co_return fail(std::move(file).error());
  const Bytes all = as_bytes(bytes);
  co_return co_await (*file)->write(0, all);
}

}  // namespace tutti
