// What can go wrong outside this process is a value: Result<T> is a T or an Error.
//
// An Error has a code (what the caller may act on), a message (what went wrong, where, what to do)
// and the chain of what we were doing when it happened, innermost first. Errors are cheap to move
// and to copy (one counted pointer, since every frame of a coroutine that may fail has room for
// several of them), so that one failure can be told to many waiters.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

// A new code exists only if a caller would act differently.
enum class Code : unsigned char {
  cancelled,    // our side gave up: stop, clean up, return
  deadline,     // the time allowed ran out
  invalid,      // the input is wrong: say so to whoever gave it, do not retry
  not_found,    // no such file, host, method, process
  exists,       // already there
  denied,       // not allowed: permission, certificate, epoch
  unavailable,  // the other side is gone or not there yet: another try may work
  exhausted,    // a limit was met: disk full, descriptors, memory, credits
  corrupt,      // bytes that fail their checksum or make no sense
  unsupported,  // this kernel, peer or version cannot do it
  io,           // the device said no
  internal,     // a bug on the other side of an interface
};

std::string_view code_name(Code code);

class [[nodiscard]] Error {
 public:
  Error(Code code, std::string message);
  Error(const Error& other) noexcept;
  Error(Error&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  Error& operator=(Error other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~Error() {
    if (body_ != nullptr) release();
  }

  // From errno: "open /x: No such file or directory", with the code that fits, and advice where
  // there is only one: "…: Too many open files; see `ulimit -n`".
  static Error from_errno(int number, std::string_view doing);

  Code code() const;
  const std::string& message() const;
  // What we were doing, innermost first.
  const std::vector<std::string>& contexts() const;

  // Adds one link to the chain: "while loading step 12". The original is left as it was.
  Error context(std::string doing) const;

  // One line: "outermost: …: innermost: message".
  std::string text() const;

 private:
  struct Body;
  explicit Error(Body* body) : body_(body) {}
  void release();

  Body* body_;  // nullptr when it was moved from
};

template <class T>
using Result = std::expected<T, Error>;

// return fail(Code::invalid, "port {} is out of range; use 1 to 65535", port);
template <class... Args>
std::unexpected<Error> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected<Error>(Error(code, fmt::format(format, std::forward<Args>(args)...)));
}

inline std::unexpected<Error> fail(Error error) { return std::unexpected<Error>(std::move(error)); }

// return fail_errno("open {}", path);   // reads errno
std::unexpected<Error> fail_errno_text(int number, std::string_view doing);
template <class... Args>
std::unexpected<Error> fail_errno(int number, fmt::format_string<Args...> format, Args&&... args) {
  return fail_errno_text(number, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tutti

#define TUTTI_JOIN_INNER(a, b) a##b
#define TUTTI_JOIN(a, b) TUTTI_JOIN_INNER(a, b)
#define TUTTI_TRY_WITH(leave, declaration, expression)                         \
  auto TUTTI_JOIN(result_, __LINE__) = (expression);                           \
  if (!TUTTI_JOIN(result_, __LINE__)) [[unlikely]]                             \
    leave std::unexpected(::std::move(TUTTI_JOIN(result_, __LINE__)).error()); \
  declaration = *::std::move(TUTTI_JOIN(result_, __LINE__))
#define TUTTI_DO_WITH(leave, expression)                      \
  do {                                                        \
    auto try_result = (expression);                           \
    if (!try_result) [[unlikely]]                             \
      leave std::unexpected(::std::move(try_result).error()); \
  } while (false)

// TRY(auto file, open(path));   the value, or return its error
// TRY_DO(sync(file));           for Result<void>
// The CO_ forms do the same inside a coroutine.
#define TRY(declaration, expression) TUTTI_TRY_WITH(return, declaration, expression)
#define TRY_DO(expression) TUTTI_DO_WITH(return, expression)
#define CO_TRY(declaration, expression) TUTTI_TRY_WITH(co_return, declaration, expression)
#define CO_TRY_DO(expression) TUTTI_DO_WITH(co_return, expression)
