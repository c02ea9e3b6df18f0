#include "base/result.h"

#include <atomic>
#include <cerrno>
#include <cstring>

namespace tutti {

struct Error::Body {
  Code code;
  std::string message;
  std::vector<std::string> contexts;
  std::atomic<uint32_t> holders = 1;  // perhaps on several threads
};

namespace {

Code code_of_errno(int number) {
  switch (number) {
    case ENOENT:
    case ESRCH:
    case ENXIO:
    case ENODEV: return Code::not_found;
    case EEXIST:
    case ENOTEMPTY:
    case EADDRINUSE: return Code::exists;
    case EACCES:
    case EPERM:
    case EROFS: return Code::denied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case ENOBUFS: return Code::exhausted;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case ECONNABORTED:
    case ENOTCONN: return Code::unavailable;
    case ETIMEDOUT: return Code::deadline;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENOEXEC:
    case ENAMETOOLONG:
    case E2BIG:
    case ELOOP: return Code::invalid;
    case ENOSYS:
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT: return Code::unsupported;
    case ECANCELED: return Code::cancelled;
    default: return Code::io;
  }
}

// What to do, where it is the same whatever we were doing.
std::string_view advice_for(int number) {
  if (number == EMFILE) return "; see `ulimit -n`";
  if (number == ENFILE) return "; see `sysctl fs.file-max`";
  return "";
}

}  // namespace

std::string_view code_name(Code code) {
  switch (code) {
    case Code::cancelled: return "cancelled";
    case Code::deadline: return "deadline";
    case Code::invalid: return "invalid";
    case Code::not_found: return "not_found";
    case Code::exists: return "exists";
    case Code::denied: return "denied";
    case Code::unavailable: return "unavailable";
    case Code::exhausted: return "exhausted";
    case Code::corrupt: return "corrupt";
    case Code::unsupported: return "unsupported";
    case Code::io: return "io";
    case Code::internal: return "internal";
  }
  return "unknown";
}

Error::Error(Code code, std::string message) : body_(new Body{code, std::move(message), {}}) {}

Error::Error(const Error& other) noexcept : body_(other.body_) {
  if (body_ != nullptr) body_->holders.fetch_add(1, std::memory_order_relaxed);
}

void Error::release() {
  if (body_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete body_;
}

Error Error::from_errno(int number, std::string_view doing) {
  return {code_of_errno(number),
          fmt::format("{}: {}{}", doing, std::strerror(number), advice_for(number))};
}

Code Error::code() const { return body_->code; }
const std::string& Error::message() const { return body_->message; }
const std::vector<std::string>& Error::contexts() const { return body_->contexts; }

Error Error::context(std::string doing) const {
  auto* body = new Body{body_->code, body_->message, body_->contexts};
  body->contexts.push_back(std::move(doing));
  return Error(body);
}

std::string Error::text() const {
  std::string line;
  const auto& contexts = body_->contexts;
  for (auto it = contexts.rbegin(); it != contexts.rend(); ++it) line += *it + ": ";
  return line + body_->message;
}

std::unexpected<Error> fail_errno_text(int number, std::string_view doing) {
  return std::unexpected<Error>(Error::from_errno(number, doing));
}

}  // namespace tutti
