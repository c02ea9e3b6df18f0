// What the processes of a job on a host do, and did when they ended.
#include "cluster/host_job.h"

namespace tutti {

// Where supervision does not watch it anyway: how long a rank has been quiet is known to the pause
// between two reports, some seconds.
void HostJob::note_progress() {
  if (pages_ == nullptr || looks_ == nullptr) return;
  for (auto& [process, local] : processes_) {
    const job::Role& role = directive().spec().roles(static_cast<int>(numbers().role_of(process)));
    const tutti_control_page* page = pages_->find(local.slot * kControlPageBytes);
    if (role.hang_after_ns() > 0 || page == nullptr) continue;
    local.progress.note(progress_of(*page) + step_of(*page), world_.clock().now());
  }
  pages_->rest();
}

cluster::ProcessLook HostJob::look_at(ProcessId process, const Local& local, bool whole) const {
  cluster::ProcessLook look;
  *look.mutable_info() = info_of(process, local);
  look.set_at_unix_ns(world_.clock().unix_ns());
  look.set_at_ns(to_ns(world_.clock().now()));
  look.set_told_to_end(local.stopping);
  look.set_message(local.row().message());
  if (local.row().has_exit()) *look.mutable_exit() = local.row().exit();
  const tutti_control_page* page =
      pages_ == nullptr ? nullptr : pages_->find(local.slot * kControlPageBytes);
  const pid_t user = page == nullptr ? 0 : __atomic_load_n(&page->pid, __ATOMIC_RELAXED);
  if (local.phase == Phase::running) {
    std::string letters;
    for (const pid_t pid : {local.pid, user == local.pid ? 0 : user}) {
      const char letter = pid <= 0 ? '\0' : world_.processes().state_of(pid);
      if (letter != 0) letters += letter;
    }
    look.set_letters(letters);
  }
  if (page == nullptr) return look;
  look.set_has_page(true);
  look.set_phase(__atomic_load_n(&page->phase, __ATOMIC_RELAXED));
  look.set_epoch(tutti_control_epoch(page));
  look.set_aborted(__atomic_load_n(&page->aborted, __ATOMIC_ACQUIRE));
  const uint64_t last = local.progress.progress();
  const bool known = last != 0 && progress_of(*page) + step_of(*page) == last;
  if (known) look.set_quiet_ns(to_ns(world_.clock().now() - local.progress.moved()));
  if (looks_ == nullptr) {
    const bool keeps_one = __atomic_load_n(&page->record_bytes, __ATOMIC_ACQUIRE) != 0;
    if (keeps_one && numbers().size() > 1)
      look.set_no_record("its keeper is of an earlier version, and tells of no heap");
    return look;
  }
  auto record = looks_->record_of(*page, whole);
  if (record) look.set_record(std::move(*record));
  if (!record) look.set_no_record(record.error().message());
  return look;
}

std::vector<cluster::ProcessLook> HostJob::look(bool whole) const {
  std::vector<cluster::ProcessLook> looks;
  for (const auto& [process, local] : processes_) looks.push_back(look_at(process, local, whole));
  if (pages_ != nullptr) pages_->rest();
  return looks;
}

void HostJob::take_heap(Handle heap) {
  if (looks_ == nullptr) looks_ = std::make_shared<JobLooks>(world_, host_.job_folder(job_));
  looks_->set_heap(std::move(heap));
}

// Some are about to be told to end: what everybody does now is why, or is lost with them.
void HostJob::keep_looks(const RangeSet& leaving) {
  if (looks_ == nullptr || pages_ == nullptr || !running().meets(leaving)) return;
  for (const auto& [process, local] : processes_) {
    const cluster::ProcessLook* kept = looks_->find(process, local.epoch);
    const bool has_ended = local.phase == Phase::exited;
    if (kept != nullptr && (has_ended || kept->told_to_end())) continue;
    cluster::ProcessLook look = look_at(process, local, true);
    if (!has_ended) look.set_told_to_end(leaving.contains(process));
    looks_->keep(std::move(look));
  }
}

void HostJob::keep_end_of(ProcessId process, const Local& local) {
  if (looks_ == nullptr || pages_ == nullptr) return;
  const cluster::Exit& exit = local.row().exit();
  if (exit.code() == 0 && exit.signal() == 0 && !exit.by_us()) return;
  cluster::ProcessLook* kept = looks_->find(process, local.epoch);
  if (kept == nullptr || !kept->told_to_end()) return looks_->keep(look_at(process, local, true));
  cluster::ProcessLook ended = *kept;
  *ended.mutable_exit() = exit;
  looks_->keep(std::move(ended));
}

// Of those whose ends a keeper told before it told of their memory.
void HostJob::keep_looks_of_ended() {
  for (const auto& [process, local] : processes_)
    if (local.phase == Phase::exited) keep_end_of(process, local);
}

}  // namespace tutti
