// A folder for a test's files.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace tutti {

class TestFolder {
 public:
  TestFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_ = "/tmp/tutti-train-XXXXXX";
};

}  // namespace tutti
