#include "world/real/native_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "base/hash.h"
#include "world/real/background.h"
#include "world/real/cache_files.h"
#include "world/real/errors.h"

namespace tutti {
namespace {

// What a compiler says is shown up to here.
constexpr size_t kMostDiagnostics = 4000;
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
    const std::string key = hasher.digest128().hex();
    if (!options_.cache.empty()) {
      const std::string path = fmt::format("{}/{}.so", options_.cache, key);
      if (auto loaded = load(path)) return loaded;
      TRY_DO(make_private_folder(options_.cache));
    }
    TRY(const std::string folder, make_temporary_folder("tutti-kernels"));
    auto made = compile_in(folder, source, key);
    static_cast<void>(remove_folder(folder));
    return made;
  }

 private:
  static Result<std::unique_ptr<NativeCode>> load(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return fail(Code::not_found, "{}", dlerror());
    return std::make_unique<SharedObject>(handle);
  }

  Result<std::unique_ptr<NativeCode>> compile_in(const std::string& folder, std::string_view source,
                                                 const std::string& key) {
    TRY_DO(write_cache_file(folder, "kernels.c", source));
    std::vector<std::string> words = words_of(options_.command);
    for (const std::string_view flags : {kFlags, std::string_view(options_.instructions)})
      for (std::string& word : words_of(flags)) words.push_back(std::move(word));
    // Whole or not at all, for others who look for it in the cache.
    const bool kept = !options_.cache.empty();
    const std::string made =
        kept ? fmt::format("{}/{}.{}", options_.cache, key, getpid()) : folder + "/kernels.so";
    words.insert(words.end(), {"-o", made, folder + "/kernels.c", "-lm"});
    TRY(const int status, run_program(words, folder + "/errors"));
    if (status != 0) {
      const auto said = read_cache_file(folder, "errors", kMostDiagnostics);
      return fail(Code::internal, "{} ended with {} on generated kernels: {}", words[0], status,
                  said ? *said : "it said nothing");
    }
    if (!kept) return load(made);
    const std::string path = fmt::format("{}/{}.so", options_.cache, key);
    if (rename(made.c_str(), path.c_str()) != 0)
      return fail_errno(errno, "keep compiled kernels as {}", path);
    return load(path);
  }

  NativeCompilerOptions options_;
};

}  // namespace

std::unique_ptr<NativeCompiler> make_native_compiler(NativeCompilerOptions options) {
  return std::make_unique<SystemCompiler>(std::move(options));
}

}  // namespace tutti
