// A folder to work in for a while. It is locked as long as this lives: one that a process left
// behind when it was killed is not, and the next one that works beside it removes it.
#pragma once

#include <string>

#include "base/result.h"
#include "world/handle.h"

namespace tutti {

class WorkFolder {
 public:
  // PARENT/PREFIX and some letters. The parent is there.
  static Result<WorkFolder> make(const std::string& parent, const std::string& prefix);
  ~WorkFolder();  // with all that is in it
  WorkFolder(WorkFolder&&) = default;
  WorkFolder& operator=(WorkFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  WorkFolder(std::string path, Handle lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  Handle lock_;
};

}  // namespace tutti
