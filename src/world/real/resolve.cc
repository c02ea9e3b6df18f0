#include "world/real/resolve.h"

#include <netdb.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>

namespace tutti {

namespace {

// Threads that may be in getaddrinfo at once, those left behind included.
constexpr int kMaxLookups = 64;
constinit std::atomic<int> lookups = 0;

class LookupWait;

// Shared by the thread that looks up and the strand that waits; it ends with the later of both.
class Lookup final : public Runnable {
 public:
  Lookup(Loop& loop, Address address, LookupWait& waiter)
      : address_(std::move(address)), loop_(&loop), waiter_(waiter) {}

  static Result<void> start(const std::shared_ptr<Lookup>& lookup);
  // False when the answer is on its way already.
  bool abandon();
  Result<std::vector<SocketAddress>> answer();

 private:
  static void* thread_main(void* argument);
  void look_up();
  void run() override;

  const Address address_;
  std::mutex lock_;
  Loop* loop_;           // guarded by lock_; null once nobody waits
  bool posted_ = false;  // guarded by lock_
  LookupWait& waiter_;
  int code_ = 0;
  int number_ = 0;
  std::vector<SocketAddress> found_;
};

class LookupWait final : public Waiter {
 public:
  LookupWait(Loop& loop, const Address& address)
      : lookup_(std::make_shared<Lookup>(loop, address, *this)) {}

  bool await_ready() {
    if (cancelled_already()) {
      failed_ = cancelled_error();
    } else if (auto started = Lookup::start(lookup_); !started) {
      failed_ = std::move(started).error();
    }
    return failed_.has_value();
  }
  void await_suspend(std::coroutine_handle<> coroutine) { park(coroutine); }
  Result<std::vector<SocketAddress>> await_resume() {
    if (failed_) return fail(std::move(*failed_));
    return lookup_->answer();
  }

 private:
  void on_cancel() override {
    if (!lookup_->abandon()) return;
    failed_ = cancelled_error();
    wake();
  }
  std::shared_ptr<Lookup> lookup_;
  std::optional<Error> failed_;
};

Result<void> Lookup::start(const std::shared_ptr<Lookup>& lookup) {
  const std::string& host = lookup->address_.host;
  if (lookups.fetch_add(1) >= kMaxLookups) {
    lookups.fetch_sub(1);
    return fail(Code::exhausted,
                "look up {}: {} lookups are waiting for an answer; do the name "
                "servers of /etc/resolv.conf answer?",
                host, kMaxLookups);
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  auto argument = std::make_unique<std::shared_ptr<Lookup>>(lookup);
  pthread_t thread;
  const int number = pthread_create(&thread, &attributes, thread_main, argument.get());
  pthread_attr_destroy(&attributes);
  if (number == 0) {
    (void)argument.release();  // the thread has it now
    return {};
  }
  lookups.fetch_sub(1);
  return fail_errno(number, "look up {}: start a thread", host);
}

void* Lookup::thread_main(void* argument) {
  const std::unique_ptr<std::shared_ptr<Lookup>> lookup(
      static_cast<std::shared_ptr<Lookup>*>(argument));
  (*lookup)->look_up();
  lookups.fetch_sub(1);
  return nullptr;
}

void Lookup::look_up() {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address_.port);
  code_ = getaddrinfo(address_.host.c_str(), port.c_str(), &hints, &list);
  number_ = errno;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.size = info->ai_addrlen;
    found_.push_back(address);
  }
  if (list != nullptr) freeaddrinfo(list);

  const std::lock_guard lock(lock_);
  if (loop_ == nullptr) return;
  posted_ = true;
  loop_->post_from_any_thread(*this);
}

void Lookup::run() { waiter_.wake(); }

bool Lookup::abandon() {
  const std::lock_guard lock(lock_);
  if (posted_) return false;
  loop_ = nullptr;
  return true;
}

Result<std::vector<SocketAddress>> Lookup::answer() {
  const std::string& host = address_.host;
  if (code_ == 0 && !found_.empty()) return std::move(found_);
  if (code_ == EAI_NONAME || code_ == EAI_NODATA || code_ == EAI_ADDRFAMILY || code_ == 0)
    return fail(Code::not_found, "no host is called {}; is it in /etc/hosts or DNS?", host);
  if (code_ == EAI_SYSTEM) return fail_errno(number_, "look up {}", host);
  const Code code = code_ == EAI_MEMORY ? Code::exhausted : Code::unavailable;
  return fail(code, "look up {}: {}", host, gai_strerror(code_));
}

}  // namespace

Task<Result<std::vector<SocketAddress>>> resolve(Loop& loop, Address address) {
  if (auto numeric = SocketAddress::numeric(address.host, address.port))
    co_return std::vector{*numeric};
  LookupWait wait(loop, address);
  auto found = co_await wait;
  // A bare container may have no /etc/hosts; localhost means the same there.
  const bool known_anyway =
      address.host == "localhost" && !found.has_value() && found.error().code() != Code::cancelled;
  if (known_anyway) co_return std::vector{*SocketAddress::numeric("127.0.0.1", address.port)};
  co_return found;
}

}  // namespace tutti
