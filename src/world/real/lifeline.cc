#include "world/real/lifeline.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include "world/real/errors.h"
#include "world/real/word_wait.h"

namespace tutti {

namespace {

constexpr size_t kStackBytes = 256 << 10;  // it calls next to nothing; sanitizers want some

}  // namespace

Lifeline::Lifeline(std::atomic<uint32_t>& word) : word_(word), process_(getpid()) {
  entry_.next = &list_.list;
  list_.list.next = &entry_;
  list_.futex_offset = reinterpret_cast<char*>(&word_) - reinterpret_cast<char*>(&entry_);
}

Result<std::unique_ptr<Lifeline>> Lifeline::hold(std::atomic<uint32_t>& word) {
  auto line = std::unique_ptr<Lifeline>(new Lifeline(word));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);  // signals are for the program's threads
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&line->thread_, &attributes, thread_main, line.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    line->let_go_ = 1;
    return fail_errno(error, "start a thread");
  }
  return line;
}

bool Lifeline::here() const { return process_ == getpid(); }

Lifeline::~Lifeline() {
  if (!here() || let_go_.exchange(1) != 0) return;
  let_go_.notify_all();
  pthread_join(thread_, nullptr);
}

void* Lifeline::thread_main(void* lifeline) {
  static_cast<Lifeline*>(lifeline)->main();
  return nullptr;
}

void Lifeline::main() {
  pthread_setname_np(pthread_self(), "lifeline");
  if (syscall(SYS_set_robust_list, &list_, sizeof list_) == 0) {
    word_ = static_cast<uint32_t>(syscall(SYS_gettid)) | kLifelineWatched;
    futex_wake_all(word_);
  }
  let_go_.wait(0);
  word_ = 0;
  futex_wake_all(word_);
}

}  // namespace tutti
