// A simulated host whose connections break, or damage what is written to them, now and then.
#pragma once

#include <memory>

#include "world/sim/random.h"
#include "world/sim/stream.h"
#include "world/world.h"

namespace tutti {

// Breaks now and then, or turns a bit of what is written over.
class ShakyStream final : public Stream {
 public:
  ShakyStream(std::unique_ptr<Stream> inner, SimRandom& random, uint64_t one_in)
      : stream_(std::move(inner)),
        inner_(dynamic_cast<SimStream&>(*stream_)),
        random_(random),
        one_in_(one_in) {}
  Result<void> shutdown_write() override { return inner_.shutdown_write(); }
  Result<Credentials> peer_credentials() const override { return inner_.peer_credentials(); }

 private:
  bool try_read(Read& read) override { return inner_.try_read(read); }
  void park_read(Read& read) override { inner_.park_read(read); }
  void withdraw_read(Read& read) override { inner_.withdraw_read(read); }
  bool try_write(Write& write) override {
    if (one_in_ == 0 || write.finished() || random_.next() % one_in_ != 0)
      return inner_.try_write(write);
    if (random_.next() % 2 == 0) {
      write.set(fail(Code::unavailable, "shaken"));
      return true;
    }
    const Bytes part = write.parts()[random_.next() % write.parts().size()];
    if (part.empty()) return inner_.try_write(write);
    auto& byte = const_cast<std::byte&>(part[random_.next() % part.size()]);
    byte ^= std::byte{16};
    const bool done = inner_.try_write(write);
    byte ^= std::byte{16};
    return done;
  }
  void park_write(Write& write) override { inner_.park_write(write); }
  void withdraw_write(Write& write) override { inner_.withdraw_write(write); }

  std::unique_ptr<Stream> stream_;
  SimStream& inner_;
  SimRandom& random_;
  uint64_t one_in_;
};

class ShakyWorld final : public World, private Network {
 public:
  ShakyWorld(World& inner, uint64_t seed, uint64_t one_in)
      : inner_(inner), random_(seed), one_in_(one_in) {}
  Clock& clock() override { return inner_.clock(); }
  tutti::Network& network() override { return *this; }
  Disk& disk() override { return inner_.disk(); }
  Processes& processes() override { return inner_.processes(); }
  Memory& memory() override { return inner_.memory(); }
  tutti::Random& random() override { return inner_.random(); }
  const std::string& host_name() const override { return inner_.host_name(); }
  bool fault(CodePlace& place) override { return inner_.fault(place); }

 private:
  Task<Result<std::unique_ptr<Listener>>> listen(Address address) override {
    return inner_.network().listen(std::move(address));
  }
  Task<Result<std::unique_ptr<Stream>>> connect(Address address) override {
    auto stream = co_await inner_.network().connect(std::move(address));
    if (!stream) co_return fail(stream.error());
    co_return std::make_unique<ShakyStream>(std::move(*stream), random_, one_in_);
  }
  Result<Pair> pair() override { return inner_.network().pair(); }
  Result<std::unique_ptr<Stream>> adopt(Handle handle) override {
    return inner_.network().adopt(std::move(handle));
  }

  World& inner_;
  SimRandom random_;
  uint64_t one_in_;
};

}  // namespace tutti
