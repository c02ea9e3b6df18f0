#include "world/sim/file_system.h"

#include <algorithm>
#include <cerrno>
#include <set>

#include "world/fault.h"

namespace tutti {

namespace {

// A directory of so few, and so few changes, take no more room than they need.
constexpr size_t kFewNames = 8;

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == ".." && !parts.empty()) parts.pop_back();
    if (part != "..") parts.push_back(std::move(part));
  }
  return parts;
}

Result<DiskNodePtr> child(const DiskNodePtr& directory, const std::string& name,
                          const std::string& path) {
  if (!directory->directory()) return fail_errno(ENOTDIR, "{}", path);
  DiskNodePtr found = directory->names.find(name);
  if (found == nullptr) return fail_errno(ENOENT, "{}", path);
  return found;
}

const std::string& name_of(const DiskNames::Entry& entry) { return *entry.name; }

}  // namespace

const std::string* shared_name(const std::string& name) {
  thread_local std::set<std::string> names;
  return &*names.insert(name).first;
}

DiskNodePtr DiskNames::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(entries_, name, {}, name_of);
  return found == entries_.end() || *found->name != name ? nullptr : found->now;
}

bool DiskNames::empty() const {
  return std::ranges::all_of(entries_, [](const Entry& entry) { return entry.now == nullptr; });
}

void DiskNames::set(const std::string& name, DiskNodePtr node) {
  set(name, &Entry::now, std::move(node));
}

void DiskNames::set_synced(const std::string& name, DiskNodePtr node) {
  set(name, &Entry::synced, std::move(node));
}

void DiskNames::set(const std::string& name, DiskNodePtr Entry::* which, DiskNodePtr node) {
  auto found = std::ranges::lower_bound(entries_, name, {}, name_of);
  if (found == entries_.end() || *found->name != name) {
    const auto place = found - entries_.begin();
    entries_.reserve(entries_.size() < kFewNames ? entries_.size() + 1 : 0);
    found = entries_.insert(entries_.begin() + place, Entry{shared_name(name), nullptr, nullptr});
  }
  (*found).*which = std::move(node);
  if (found->now == nullptr && found->synced == nullptr) entries_.erase(found);
}

void DiskNames::forget_unsynced() {
  for (Entry& entry : entries_) entry.now = entry.synced;
  std::erase_if(entries_, [](const Entry& entry) { return entry.now == nullptr; });
}

FileSystem::FileSystem(AlikePool* pool)
    : space_(std::make_shared<DiskSpace>(DiskSpace{.pool = pool})),
      root_(std::make_shared<DiskNode>()) {}

Result<DiskNodePtr> FileSystem::find(const std::string& path) const {
  DiskNodePtr node = root_;
  for (const std::string& name : split(path)) {
    TRY(DiskNodePtr next, child(node, name, path));
    node = std::move(next);
  }
  return node;
}

Result<FileSystem::Name> FileSystem::locate(const std::string& path) const {
  std::vector<std::string> parts = split(path);
  if (parts.empty()) return fail_errno(EINVAL, "'{}' names no entry of a directory", path);
  Name name{root_, shared_name(parts.back())};
  parts.pop_back();
  for (const std::string& part : parts) {
    TRY(DiskNodePtr next, child(name.directory, part, path));
    name.directory = std::move(next);
  }
  if (!name.directory->directory()) return fail_errno(ENOTDIR, "{}", path);
  return name;
}

void FileSystem::apply(Change change) {
  change.name.directory->names.set(*change.name.name, change.node);
  if (unsynced_.size() < kFewNames) unsynced_.reserve(unsynced_.size() + 1);
  unsynced_.push_back(std::move(change));
}

void FileSystem::make_durable(const Change& change) {
  change.name.directory->names.set_synced(*change.name.name, change.node);
}

Result<DiskNodePtr> FileSystem::open(const std::string& path, const OpenOptions& options) {
  TRY(Name name, locate(path));
  DiskNodePtr node = name.directory->names.find(*name.name);
  if (node == nullptr) {
    if (!options.create) return fail_errno(ENOENT, "open {}", path);
    node = std::make_shared<DiskNode>();
    node->body = std::make_unique<FileBody>(space_);
    node->secret = options.secret;
    apply({name, node});
    return node;
  }
  if (options.create && options.exclusive) return fail_errno(EEXIST, "open {}", path);
  if (node->directory()) return fail_errno(EISDIR, "open {}", path);
  if (options.truncate && options.write) TRY_DO(node->body->resize(0));
  return node;
}

Result<void> FileSystem::rename(const std::string& from, const std::string& to) {
  TRY(DiskNodePtr node, find(from));
  TRY(Name source, locate(from));
  TRY(Name target, locate(to));
  const DiskNodePtr old = target.directory->names.find(*target.name);
  if (old != nullptr) {
    if (old == node) return {};
    if (node->directory() && !old->directory())
      return fail_errno(ENOTDIR, "rename {} to {}", from, to);
    if (!node->directory() && old->directory())
      return fail_errno(EISDIR, "rename {} to {}", from, to);
    if (!old->names.empty()) return fail(Code::exists, "rename {} to {}: it has entries", from, to);
  }
  apply({source, nullptr});
  apply({target, node, true});
  return {};
}

Result<void> FileSystem::remove(const std::string& path) {
  TRY(DiskNodePtr node, find(path));
  TRY(Name name, locate(path));
  if (node->directory() && !node->names.empty()) return fail_errno(ENOTEMPTY, "remove {}", path);
  apply({name, nullptr});
  return {};
}

Result<void> FileSystem::make_directories(const std::string& path) {
  DiskNodePtr node = root_;
  for (const std::string& part : split(path)) {
    DiskNodePtr found = node->names.find(part);
    if (found != nullptr) {
      if (!found->directory()) return fail_errno(ENOTDIR, "make directory {}", path);
      node = std::move(found);
      continue;
    }
    auto made = std::make_shared<DiskNode>();
    apply({Name{node, shared_name(part)}, made});
    node = made;
  }
  return {};
}

Result<void> FileSystem::sync_directory(const std::string& path) {
  TRY(DiskNodePtr node, find(path));
  if (!node->directory()) return fail_errno(ENOTDIR, "sync {}", path);
  std::vector<Change> left;
  for (size_t i = 0; i < unsynced_.size();) {
    const size_t end = i + 1 < unsynced_.size() && unsynced_[i + 1].of_same_call ? i + 2 : i + 1;
    bool concerned = false;
    for (size_t one = i; one < end; ++one) concerned |= unsynced_[one].name.directory == node;
    for (; i < end; ++i) {
      if (concerned) make_durable(unsynced_[i]);
      if (!concerned) left.push_back(std::move(unsynced_[i]));
    }
  }
  unsynced_ = std::move(left);
  unsynced_.shrink_to_fit();
  return {};
}

void FileSystem::crash(Random& luck) {
  const auto in_all =
      static_cast<uint64_t>(std::ranges::count(unsynced_, false, &Change::of_same_call));
  uint64_t calls = luck.below(in_all + 1);
  if (calls < in_all) TUTTI_PROBE("sim disk: a crash undid a change of names");
  for (const Change& change : unsynced_) {
    if (!change.of_same_call && calls-- == 0) break;
    make_durable(change);
  }
  unsynced_.clear();
  forget_unsynced(*root_, luck);
}

void FileSystem::forget_unsynced(DiskNode& directory, Random& luck) {
  directory.names.forget_unsynced();
  for (const DiskNames::Entry& entry : directory.names.entries()) {
    if (entry.now->directory()) {
      forget_unsynced(*entry.now, luck);
    } else {
      entry.now->body->crash(luck);
    }
  }
}

}  // namespace tutti
