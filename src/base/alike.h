// Bytes that are much alike in many places, kept as what differs from the first of their kind: the
// logs, environments and shared memory of a million simulated hosts that do the same.
//
//   AlikePool pool;
//   const AlikeBytes kept(pool, bytes);   // a few bytes when the pool has seen some much like them
//   std::string again = kept.text();
//
// What is kept is found again bit by bit, whatever else the pool has seen. A pool belongs to one
// thread and outlives what is kept in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace tutti {

class AlikePool {
 public:
  AlikePool() = default;
  ~AlikePool();
  AlikePool(const AlikePool&) = delete;
  AlikePool& operator=(const AlikePool&) = delete;

  // Of which others are kept as differences.
  size_t models() const;

 private:
  friend class AlikeBytes;
  struct Model {
    AlikePool& pool;
    std::string bytes;
    uint64_t users = 0;
  };
  // Among bytes of one length there are few kinds; what is like none of so many is kept as it is.
  static constexpr size_t kMostModels = 8;
  using Models = std::vector<std::unique_ptr<Model>>;
  std::map<uint64_t, Models> by_size_;
};

class AlikeBytes {
 public:
  AlikeBytes() = default;
  AlikeBytes(AlikePool& pool, Bytes bytes);
  ~AlikeBytes() { clear(); }
  AlikeBytes(AlikeBytes&& other) noexcept : kept_(std::exchange(other.kept_, nullptr)) {}
  AlikeBytes& operator=(AlikeBytes&& other) noexcept {
    std::swap(kept_, other.kept_);
    return *this;
  }

  size_t size() const;
  bool empty() const { return kept_ == nullptr; }
  void copy_to(MutableBytes into) const;  // as many bytes as it has
  std::string text() const;
  // What it takes by itself.
  size_t own_bytes() const;

 private:
  struct Kept;
  void clear();
  Kept* kept_ = nullptr;  // nullptr for no bytes
};

}  // namespace tutti
