#include "wire/large_buffers.h"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "wire/blob.h"

namespace tutti::wire {

TEST_CASE("the memory of a large message serves the next one, up to a bound") {
  std::thread([] {
    {
      const Blob small = Blob::uninitialised(1000);
    }
    CHECK(kept_large_bytes() == 0);
    [[maybe_unused]] const std::byte* first = nullptr;
    {
      Blob blob = Blob::uninitialised(1'000'000);
      first = blob.writable().data();
    }
#ifndef __SANITIZE_ADDRESS__
    CHECK(kept_large_bytes() == 1_MiB);
    Blob next = Blob::uninitialised(990'000);
    CHECK(next.writable().data() == first);
    CHECK(next.size() == 990'000);
#endif
    std::vector<Blob> many;
    for (int i = 0; i < 40; ++i) many.push_back(Blob::uninitialised(1_MiB));
    many.clear();
    CHECK(kept_large_bytes() <= kMostKept);
  }).join();
}

TEST_CASE("a blob may outlive the thread that made it") {
  Blob blob;
  std::thread([&] {
    blob = Blob::copy_of(Bytes(std::vector<std::byte>(100'000, std::byte{7})));
  }).join();
  CHECK(blob.bytes().back() == std::byte{7});
}

}  // namespace tutti::wire
