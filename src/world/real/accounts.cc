#include "world/real/accounts.h"

#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <vector>

#include "world/real/errors.h"

namespace tutti {
namespace {

constexpr size_t kAccountBytes = 16 << 10;
constexpr std::string_view kNumbered = "uid";

Account account_of(const passwd& entry) {
  return {.name = entry.pw_name,
          .user = entry.pw_uid,
          .group = entry.pw_gid,
          .home = entry.pw_dir,
          .shell = entry.pw_shell};
}

std::optional<uid_t> number_in(std::string_view name) {
  if (!name.starts_with(kNumbered)) return {};
  name.remove_prefix(kNumbered.size());
  uid_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return {};
  return number;
}

}  // namespace

Result<Account> account_named(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(kAccountBytes);
  int error = getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  if (found == nullptr)
    if (const auto number = number_in(name))
      error = getpwuid_r(*number, &entry, text.data(), text.size(), &found);
  if (found != nullptr) return account_of(entry);
  if (error != 0 && error != ENOENT && error != ESRCH)
    return fail_errno(error, "look up user {}", name);
  return fail(Code::not_found, "there is no user {}", name);
}

Account own_account() {
  const uid_t own = geteuid();
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(kAccountBytes);
  getpwuid_r(own, &entry, text.data(), text.size(), &found);
  if (found != nullptr) return account_of(entry);
  return {.name = fmt::format("{}{}", kNumbered, own),
          .user = own,
          .group = getegid(),
          .home = {},
          .shell = {}};
}

}  // namespace tutti
