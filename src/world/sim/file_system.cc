#include "world/sim/file_system.h"

#include <cerrno>

#include "world/fault.h"

namespace tutti {

namespace {

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
  if (!directory->directory) return fail_errno(ENOTDIR, "{}", path);
  auto found = directory->names.find(name);
  if (found == directory->names.end()) return fail_errno(ENOENT, "{}", path);
  return found->second;
}

}  // namespace

FileSystem::FileSystem()
    : space_(std::make_shared<DiskSpace>()), root_(std::make_shared<DiskNode>(space_, true)) {}

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
  Name name{root_, std::move(parts.back())};
  parts.pop_back();
  for (const std::string& part : parts) {
    TRY(DiskNodePtr next, child(name.directory, part, path));
    name.directory = std::move(next);
  }
  if (!name.directory->directory) return fail_errno(ENOTDIR, "{}", path);
  return name;
}

void FileSystem::apply(Change change) {
  for (size_t i = 0; i < change.names.size(); ++i) {
    auto& names = change.names[i].directory->names;
    if (change.nodes[i] == nullptr) {
      names.erase(change.names[i].name);
    } else {
      names[change.names[i].name] = change.nodes[i];
    }
  }
  unsynced_.push_back(std::move(change));
}

void FileSystem::make_durable(const Change& change) {
  for (size_t i = 0; i < change.names.size(); ++i) {
    auto& names = change.names[i].directory->synced_names;
    if (change.nodes[i] == nullptr) {
      names.erase(change.names[i].name);
    } else {
      names[change.names[i].name] = change.nodes[i];
    }
  }
}

Result<DiskNodePtr> FileSystem::open(const std::string& path, const OpenOptions& options) {
  TRY(Name name, locate(path));
  auto found = name.directory->names.find(name.name);
  if (found == name.directory->names.end()) {
    if (!options.create) return fail_errno(ENOENT, "open {}", path);
    auto node = std::make_shared<DiskNode>(space_, false);
    node->secret = options.secret;
    apply({{name}, {node}});
    return node;
  }
  DiskNodePtr node = found->second;
  if (options.create && options.exclusive) return fail_errno(EEXIST, "open {}", path);
  if (node->directory) return fail_errno(EISDIR, "open {}", path);
  if (options.truncate && options.write) TRY_DO(node->body.resize(0));
  return node;
}

Result<void> FileSystem::rename(const std::string& from, const std::string& to) {
  TRY(DiskNodePtr node, find(from));
  TRY(Name source, locate(from));
  TRY(Name target, locate(to));
  auto replaced = target.directory->names.find(target.name);
  if (replaced != target.directory->names.end()) {
    const DiskNode& old = *replaced->second;
    if (&old == node.get()) return {};
    if (node->directory && !old.directory) return fail_errno(ENOTDIR, "rename {} to {}", from, to);
    if (!node->directory && old.directory) return fail_errno(EISDIR, "rename {} to {}", from, to);
    if (!old.names.empty()) return fail(Code::exists, "rename {} to {}: it has entries", from, to);
  }
  apply({{source, target}, {nullptr, node}});
  return {};
}

Result<void> FileSystem::remove(const std::string& path) {
  TRY(DiskNodePtr node, find(path));
  TRY(Name name, locate(path));
  if (node->directory && !node->names.empty()) return fail_errno(ENOTEMPTY, "remove {}", path);
  apply({{name}, {nullptr}});
  return {};
}

Result<void> FileSystem::make_directories(const std::string& path) {
  DiskNodePtr node = root_;
  for (const std::string& part : split(path)) {
    auto found = node->names.find(part);
    if (found != node->names.end()) {
      if (!found->second->directory) return fail_errno(ENOTDIR, "make directory {}", path);
      node = found->second;
      continue;
    }
    auto made = std::make_shared<DiskNode>(space_, true);
    apply({{Name{node, part}}, {made}});
    node = made;
  }
  return {};
}

Result<void> FileSystem::sync_directory(const std::string& path) {
  TRY(DiskNodePtr node, find(path));
  if (!node->directory) return fail_errno(ENOTDIR, "sync {}", path);
  std::erase_if(unsynced_, [&](const Change& change) {
    bool concerned = false;
    for (const Name& name : change.names) concerned |= name.directory == node;
    if (concerned) make_durable(change);
    return concerned;
  });
  return {};
}

void FileSystem::crash(Random& luck) {
  const uint64_t survive = luck.below(unsynced_.size() + 1);
  for (uint64_t i = 0; i < survive; ++i) make_durable(unsynced_[i]);
  if (survive < unsynced_.size()) TUTTI_PROBE("sim disk: a crash undid a change of names");
  unsynced_.clear();
  forget_unsynced(*root_, luck);
}

void FileSystem::forget_unsynced(DiskNode& directory, Random& luck) {
  directory.names = directory.synced_names;
  for (auto& [name, node] : directory.names) {
    if (node->directory) {
      forget_unsynced(*node, luck);
    } else {
      node->body.crash(luck);
    }
  }
}

}  // namespace tutti
