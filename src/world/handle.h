// An open thing of a host: a file, an end of a pipe, an arena, a terminal. A number that only the
// host's world understands (on Linux a file descriptor), closed when its Handle dies. Handles can
// be given to a child process or passed over a Unix stream.
#pragma once

#include <utility>

namespace tutti {

class HandleTable {
 public:
  virtual void close_handle(int number) = 0;

 protected:
  ~HandleTable() = default;
};

class Handle {
 public:
  Handle() = default;
  Handle(int number, HandleTable& table) : number_(number), table_(&table) {}
  Handle(Handle&& other) noexcept
      : number_(std::exchange(other.number_, -1)), table_(other.table_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(table_, other.table_);
    return *this;
  }
  ~Handle() { close(); }

  bool open() const { return number_ >= 0; }
  int number() const { return number_; }
  void close() {
    if (number_ >= 0) table_->close_handle(std::exchange(number_, -1));
  }
  // The caller becomes responsible for closing the number.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
  HandleTable* table_ = nullptr;
};

}  // namespace tutti
