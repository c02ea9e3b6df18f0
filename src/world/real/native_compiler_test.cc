#include "world/real/native_compiler.h"

#include <sys/file.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/log.h"
#include "world/real/temporary_folder_fixture.h"
#include "world/real/work_folder.h"

using namespace tutti;

namespace {

constexpr std::string_view kSource = "int answer(void) { return 0x12345678; }\n";

// What the function says that a compiler over this cache gives.
int answer(const std::string& cache, const std::string& command = "") {
  auto code = make_native_compiler({.command = command, .cache = cache})->compile(kSource);
  REQUIRE_MESSAGE(code.has_value(), code.error().text());
  void* function = (*code)->find("answer");
  REQUIRE(function != nullptr);
  return reinterpret_cast<int (*)()>(function)();
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("what was compiled is kept, and not compiled again") {
  const TemporaryFolder folder;
  const std::string cache = folder.path + "/kernels";
  CHECK(answer(cache) == 0x12345678);
  const auto files = files_in(cache);
  REQUIRE(files.size() == 1);
  const auto made = std::filesystem::last_write_time(cache + "/" + files[0]);
  CHECK(answer(cache) == 0x12345678);
  CHECK(std::filesystem::last_write_time(cache + "/" + files[0]) == made);
}

TEST_CASE("kept code of which a byte has changed is compiled anew") {
  const TemporaryFolder folder;
  const std::string cache = folder.path + "/kernels";
  CHECK(answer(cache) == 0x12345678);
  const std::string path = cache + "/" + files_in(cache)[0];
  const std::string whole = bytes_of(path);
  const size_t constant = whole.find("\x78\x56\x34\x12");
  REQUIRE(constant != std::string::npos);
  std::string changed = whole;
  changed[constant] = 'x' + 1;
  for (const std::string& bytes :
       {changed, whole.substr(0, whole.size() / 2), whole.substr(0, whole.size() - 1),
        std::string(), whole + "more"}) {
    std::filesystem::remove(path);  // nobody changes what is loaded
    std::ofstream(path, std::ios::binary) << bytes;
    CHECK(answer(cache) == 0x12345678);
    CHECK(bytes_of(path) == whole);
  }
}

TEST_CASE("where nothing can be kept there is a warning, once, and code all the same") {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto compiler = make_native_compiler({.cache = "/proc/none/kernels"});
  for (int i = 0; i < 2; ++i) {
    const auto code = compiler->compile(kSource);
    CHECK_MESSAGE(code.has_value(), code.error().text());
  }
  set_log_sink(nullptr);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("/proc/none") != std::string::npos);
}

TEST_CASE("folders of killed processes are removed, and not those in which somebody works") {
  const TemporaryFolder folder;
  const std::string cache = folder.path + "/kernels";
  std::filesystem::create_directories(cache);
  const auto working = WorkFolder::make(cache, "making.");
  REQUIRE(working.has_value());
  const std::string here = working->path().substr(0, working->path().rfind('.') + 1);
  const std::string killed = here + "killed";
  const std::string forgotten = cache + "/making.of-another-host";
  const std::string elsewhere = cache + "/making.of-yet-another";
  for (const std::string& left : {killed, forgotten, elsewhere}) {
    std::filesystem::create_directories(left);
    std::ofstream(left + "/kernels.c") << kSource;
  }
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(48);
  std::filesystem::last_write_time(forgotten, long_ago);
  CHECK(WorkFolder::make(cache, "making.").has_value());
  CHECK(!std::filesystem::exists(killed));
  CHECK(!std::filesystem::exists(forgotten));
  CHECK(std::filesystem::exists(elsewhere));  // somebody there may work in it
  std::filesystem::remove_all(elsewhere);
  CHECK(answer(cache) == 0x12345678);
  CHECK(std::filesystem::exists(working->path()));
  CHECK(files_in(cache).size() == 2);  // the code, and this folder
}

TEST_CASE("what a compiler says is told, and nothing of it is left") {
  const TemporaryFolder folder;
  const std::string cache = folder.path + "/kernels";
  const auto code = make_native_compiler({.cache = cache})->compile("int answer(void) {\n");
  REQUIRE(!code.has_value());
  CHECK(code.error().text().find("error") != std::string::npos);
  CHECK(files_in(cache).empty());
}

TEST_CASE("a compiler that is missing or refuses its input is not the cache's fault") {
  const TemporaryFolder folder;
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const std::string cache = folder.path + "/kernels";
  const auto none = make_native_compiler({.command = "no-such-cc", .cache = cache});
  const auto without = none->compile(kSource);
  const auto wrong = make_native_compiler({.cache = cache})->compile("int answer(void) {\n");
  set_log_sink(nullptr);
  CHECK((!without.has_value() && without.error().code() == Code::not_found));
  CHECK(!wrong.has_value());
  CHECK(lines.empty());
}
