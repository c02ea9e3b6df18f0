#include "world/real/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "world/real/fd.h"

namespace tutti {

namespace {

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
constexpr std::string_view kPathVariable = "PATH=";
constexpr size_t kInterpreterLineBytes = 256;  // the kernel reads no more of a script either

std::string_view search_path(std::span<const std::string> environment) {
  for (const std::string& variable : environment)
    if (variable.starts_with(kPathVariable))
      return std::string_view(variable).substr(kPathVariable.size());
  return kDefaultPath;
}

// The path as this process, which is in another folder, reaches it.
std::string seen_from_here(const std::string& path, const std::string& folder) {
  return folder.empty() || path.starts_with('/') ? path : folder + "/" + path;
}

enum class Found : unsigned char { nothing, not_executable, program };

Found look_at(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return Found::nothing;
  return (info.st_mode & 0111) != 0 ? Found::program : Found::not_executable;
}

// "/bin/sh" of a script that begins with "#!/bin/sh -e", "" for what is not a script.
std::string interpreter_of(const std::string& path) {
  const Handle file = own_fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.open()) return "";
  std::string line(kInterpreterLineBytes, '\0');
  const ssize_t got = read(file.number(), line.data(), line.size());
  line.resize(got > 0 ? static_cast<size_t>(got) : 0);
  if (!line.starts_with("#!")) return "";
  const size_t begin = line.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_first_of(" \t\n", begin) - begin);
}

Error explain_missing(const std::string& path, const std::string& seen) {
  struct stat info;
  if (stat(seen.c_str(), &info) != 0)
    return {Code::not_found, fmt::format("{}: no such file; check the path", path)};
  std::string interpreter = interpreter_of(seen);
  if (interpreter.ends_with('\r'))
    return {
        Code::not_found,
        fmt::format("{}: bad interpreter {}: the file has Windows line ends; sed -i 's/\\r$//' {}",
                    path, interpreter.substr(0, interpreter.size() - 1), path)};
  if (!interpreter.empty())
    return {Code::not_found,
            fmt::format("{}: bad interpreter {}: no such file; correct the script's first line",
                        path, interpreter)};
  return {Code::not_found,
          fmt::format("{}: its loader is not installed: is it built for this system? file {}", path,
                      path)};
}

Error explain_denied(const std::string& path, const std::string& seen) {
  struct stat info;
  if (stat(seen.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode))
      return {Code::denied, fmt::format("{}: is a folder, not a command", path)};
    if ((info.st_mode & 0111) == 0)
      return {Code::denied, fmt::format("{}: not executable: chmod +x {}", path, path)};
  }
  return {Code::denied,
          fmt::format("{}: this user may not execute it, or its interpreter; see namei -l {}", path,
                      path)};
}

}  // namespace

Result<std::string> find_program(const std::string& command,
                                 std::span<const std::string> environment,
                                 const std::string& folder) {
  if (command.empty()) return fail(Code::invalid, "no command given");
  if (command.find('/') != std::string::npos) return command;
  std::string not_executable;
  std::string_view rest = search_path(environment);
  for (bool more = true; more;) {
    const size_t colon = rest.find(':');
    more = colon != std::string_view::npos;
    std::string path(rest.substr(0, colon));
    rest.remove_prefix(more ? colon + 1 : rest.size());
    path += path.empty() ? "./" : "/";
    path += command;
    const Found found = look_at(seen_from_here(path, folder));
    if (found == Found::program) return path;
    if (found == Found::not_executable && not_executable.empty()) not_executable = path;
  }
  if (!not_executable.empty())
    return fail(Code::denied, "{}: not executable: chmod +x {}", command, not_executable);
  if (look_at(seen_from_here(command, folder)) != Found::nothing)
    return fail(Code::not_found, "{}: no such command in PATH; there is a file: say ./{}", command,
                command);
  return fail(Code::not_found, "{}: no such command; is it installed and in PATH?", command);
}

Error explain_exec(int error, const std::string& path, const std::string& folder) {
  const std::string seen = seen_from_here(path, folder);
  switch (error) {
    case ENOENT: return explain_missing(path, seen);
    case EACCES: return explain_denied(path, seen);
    case ENOEXEC:
      return {Code::invalid,
              fmt::format("{}: neither a program for this machine nor a script that begins with "
                          "#!; a shell script begins with #!/bin/sh",
                          path)};
    case E2BIG:
      return {Code::invalid,
              fmt::format("{}: arguments and environment are too long (getconf ARG_MAX); pass "
                          "long lists in a file",
                          path)};
    case ETXTBSY:
      return {Code::unavailable, fmt::format("{}: somebody is still writing it; try again", path)};
    default: return Error::from_errno(error, path);
  }
}

}  // namespace tutti
