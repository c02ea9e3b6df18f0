#include "world/real/native_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "base/hash.h"
#include "base/log.h"
#include "world/real/background.h"
#include "world/real/cache_files.h"
#include "world/real/errors.h"
#include "world/real/work_folder.h"

namespace tutti {
namespace {

// What a compiler says is shown up to here.
constexpr size_t kMostDiagnostics = 4000;
// Of kernels: a step's are some hundred KiB. What is larger is none of ours.
constexpr int64_t kMostObject = 256 << 20;
// No contraction: the same bits whatever the instruction set.
constexpr std::string_view kFlags =
    "-std=gnu11 -O3 -fPIC -shared -ffp-contract=off -fno-math-errno -fno-trapping-math -w "
    "-fno-asynchronous-unwind-tables";

class SharedObject final : public NativeCode {
 public:
  explicit SharedObject(void* handle) : handle_(handle) {}
  ~SharedObject() override { dlclose(handle_); }
  void* find(const std::string& name) const override { return dlsym(handle_, name.c_str()); }

 private:
  void* handle_;
};

bool read_whole(const std::string& path, std::string& bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  const auto size = static_cast<int64_t>(file.tellg());
  if (size < 0 || size > kMostObject) return false;
  bytes.resize(static_cast<size_t>(size));
  file.seekg(0);
  return file.read(bytes.data(), std::ssize(bytes)).good();
}

// What a kept object ends with, behind what the loader reads: the hash of what is before. Bytes
// that changed on the disk would crash whoever runs them.
constexpr std::string_view kSeal = "tutti kernels ";

std::string seal_of(std::string_view object) {
  return std::string(kSeal) + hash128(as_bytes(object)).hex();
}

bool seal(const std::string& path) {
  std::string object;
  if (!read_whole(path, object)) return false;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << seal_of(object);
  return file.flush().good();
}

bool is_whole(const std::string& path) {
  std::string object;
  if (!read_whole(path, object)) return false;
  const size_t footer = seal_of({}).size();
  if (object.size() < footer) return false;
  const std::string_view all = object;
  return all.substr(all.size() - footer) == seal_of(all.substr(0, all.size() - footer));
}

std::string instructions_of_this_processor() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 -mfma -mf16c";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "-mavx2 -mfma -mf16c";
  return "-msse4.1";
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Runs a program with its errors in a file; its exit status.
Result<int> run_program(const std::vector<std::string>& words, const std::string& errors) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT)
    return fail(Code::not_found,
                "there is no C compiler {}; install one (apt install gcc) or set CC to one",
                words[0]);
  if (failed != 0) return fail_errno(failed, "start {}", words[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return fail_errno(errno, "wait for {}", words[0]);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class SystemCompiler final : public NativeCompiler {
 public:
  explicit SystemCompiler(NativeCompilerOptions options) : options_(std::move(options)) {
    const char* chosen = getenv("CC");
    if (options_.command.empty())
      options_.command = chosen != nullptr && *chosen != '\0' ? chosen : "cc";
    if (options_.instructions.empty()) options_.instructions = instructions_of_this_processor();
    if (options_.cache.empty())
      if (const auto folder = cache_folder()) options_.cache = *folder + "/kernels";
  }

  Result<std::unique_ptr<NativeCode>> compile(std::string_view source) override {
    Hasher hasher;
    for (const std::string_view part : {std::string_view(options_.command),
                                        std::string_view(options_.instructions), kFlags, source}) {
      hasher.update(as_bytes(part));
      hasher.update(as_bytes(std::string_view("\0", 1)));
    }
    const std::string kept = fmt::format("{}/{}.so", options_.cache, hasher.digest128().hex());
    if (!options_.cache.empty() && is_whole(kept)) {
      if (auto loaded = load(kept)) return loaded;
    }
    std::optional<Error> failed_there;
    if (const std::optional<WorkFolder> folder = folder_in_cache()) {
      auto loaded = compile_in(folder->path(), source);
      const std::string made = folder->path() + "/kernels.so";
      // Whole or not at all, for others who look for it in the cache.
      if (loaded && (!seal(made) || rename(made.c_str(), kept.c_str()) != 0))
        go_without_cache(fail_errno(errno, "write {}", kept).error());
      if (loaded) return loaded;
      failed_there = loaded.error();
    }
    TRY(const WorkFolder apart, WorkFolder::make("/tmp", "tutti-kernels."));
    auto loaded = compile_in(apart.path(), source);
    // What succeeds elsewhere failed by the cache's fault: its disk may be full.
    if (loaded && failed_there) go_without_cache(*failed_there);
    return loaded;
  }

 private:
  static Result<std::unique_ptr<NativeCode>> load(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return fail(Code::internal, "load compiled kernels: {}", dlerror());
    return std::make_unique<SharedObject>(handle);
  }

  // Where what is made can be moved into the cache from; nothing where there is no cache.
  std::optional<WorkFolder> folder_in_cache() {
    if (options_.cache.empty()) return std::nullopt;
    const auto there = make_private_folder(options_.cache);
    if (there) {
      auto folder = WorkFolder::make(options_.cache, "making.");
      if (folder) return *std::move(folder);
      go_without_cache(folder.error());
    } else {
      go_without_cache(there.error());
    }
    return std::nullopt;
  }

  // Told once: what follows is compiled anew each time.
  void go_without_cache(const Error& why) {
    if (told_) return;
    told_ = true;
    TUTTI_LOG(
        warn,
        "compiled kernels are not kept for the next time; set XDG_CACHE_HOME to a folder that "
        "can be written",
        {{"why", why.message()}});
  }

  Result<std::unique_ptr<NativeCode>> compile_in(const std::string& folder,
                                                 std::string_view source) const {
    TRY_DO(write_cache_file(folder, "kernels.c", source));
    std::vector<std::string> words = words_of(options_.command);
    for (const std::string_view flags : {kFlags, std::string_view(options_.instructions)})
      for (std::string& word : words_of(flags)) words.push_back(std::move(word));
    words.insert(words.end(), {"-o", folder + "/kernels.so", folder + "/kernels.c", "-lm"});
    TRY(const int status, run_program(words, folder + "/errors"));
    if (status == 0) return load(folder + "/kernels.so");
    const auto said = read_cache_file(folder, "errors", kMostDiagnostics);
    return fail(Code::internal, "{} ended with {} on generated kernels: {}", words[0], status,
                said ? *said : "it said nothing");
  }

  bool told_ = false;
  NativeCompilerOptions options_;
};

}  // namespace

std::unique_ptr<NativeCompiler> make_native_compiler(NativeCompilerOptions options) {
  return std::make_unique<SystemCompiler>(std::move(options));
}

}  // namespace tutti
