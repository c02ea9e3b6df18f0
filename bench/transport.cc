// The two ends of bench_transport.py: ranks 0 and 1 of a gang, one process each.
//
//   bench_transport RANK ADDRESS0 ADDRESS1 WHAT BYTES COUNT [streams=N] [checksums=0] [encrypt=1]
//   [spin=0] [transport=ucx]
//
// WHAT is `send`: rank 0 sends COUNT messages, two on their way at a time; `put` and `get`: the
// same one-sided; or `ping`: messages go to and fro, one at a time. Each process prints JSON:
// seconds (for ping of one way) and its own processor time in ns.
#include <cstdlib>
#include <cstring>
#include <string>

#include "fabric/tcp_transport.h"
#include "measure.h"
#include "world/real/real_world.h"
#include "world/real/ucx/ucx_carrier.h"

namespace {

using namespace tutti;

constexpr uint64_t kInFlight = 2;

class FixedBook final : public AddressBook {
 public:
  FixedBook(Address zero, Address one) : addresses_{std::move(zero), std::move(one)} {}
  Task<Result<void>> publish(uint64_t, Address) override { co_return {}; }
  Task<Result<Address>> find(uint64_t, uint32_t rank) override { co_return addresses_[rank]; }

 private:
  Address addresses_[2];
};

struct Settings {
  uint32_t rank = 0;
  std::string what;
  uint64_t bytes = 0;
  uint64_t count = 0;
  bool ucx = false;
};

void must(const Result<void>& done) {
  if (done) return;
  std::fprintf(stderr, "bench_transport: %s\n", done.error().text().c_str());
  std::exit(1);
}

// Every second one of the messages, so that two are on their way.
Task<void> stream(TcpTransport& transport, const Settings& settings, MutableBytes buffer,
                  uint64_t first) {
  for (uint64_t i = first; i < settings.count; i += kInFlight) {
    const Tag tag{2, i};
    Result<void> done;
    if (settings.what == "put") {
      done = co_await transport.put(1, first * settings.bytes, buffer);
    } else if (settings.what == "get") {
      done = co_await transport.get(1, first * settings.bytes, buffer);
    } else if (settings.rank == 0) {
      done = co_await transport.send(1, tag, buffer);
    } else {
      done = co_await transport.receive(0, tag, buffer);
    }
    must(done);
  }
}

Task<void> ping(TcpTransport& transport, const Settings& settings, MutableBytes buffer) {
  const uint32_t other = 1 - settings.rank;
  for (uint64_t i = 0; i < settings.count; ++i) {
    const Tag tag{2, i};
    for (uint32_t turn = 0; turn < 2; ++turn) {
      Result<void> done;
      if (turn == settings.rank) {
        done = co_await transport.send(other, tag, buffer);
      } else {
        done = co_await transport.receive(other, tag, buffer);
      }
      must(done);
    }
  }
}

// When it returns both have come.
Task<void> barrier(TcpTransport& transport, uint32_t rank, uint64_t number) {
  const Tag tag{1, number};
  for (uint32_t turn = 0; turn < 2; ++turn) {
    Result<void> done;
    if (turn == rank) {
      done = co_await transport.send(1 - rank, tag, {});
    } else {
      done = co_await transport.receive(1 - rank, tag, {});
    }
    must(done);
  }
}

Task<void> measure(TcpTransport& transport, const Settings& settings, MutableBytes memory) {
  Settings warm_up = settings;
  warm_up.count = std::max<uint64_t>(kInFlight, settings.count / 10);
  const bool passive = settings.rank == 1 && (settings.what == "put" || settings.what == "get");
  uint64_t began = 0;
  uint64_t cpu_before = 0;
  uint64_t cpu_after = 0;
  uint64_t ended = 0;
  for (uint64_t pass = 0; pass < 2; ++pass) {
    const Settings* now = pass == 0 ? &warm_up : &settings;
    co_await barrier(transport, settings.rank, 2 * pass);
    began = now_ns();
    cpu_before = cpu_ns();
    if (settings.what == "ping") {
      co_await ping(transport, *now, memory.first(settings.bytes));
    } else if (!passive) {
      Scope scope;
      for (uint64_t i = 0; i < kInFlight; ++i)
        scope.spawn(stream(transport, *now, memory.subspan(i * settings.bytes, settings.bytes), i));
      (void)co_await scope.join();
    }
    co_await barrier(transport, settings.rank, 2 * pass + 1);
    ended = now_ns();
    cpu_after = cpu_ns();
  }
  const double ways = settings.what == "ping" ? 2.0 * static_cast<double>(settings.count) : 1.0;
  std::printf("{\"seconds\": %.9f, \"cpu_ns\": %llu}\n",
              static_cast<double>(ended - began) / 1e9 / ways,
              static_cast<unsigned long long>(cpu_after - cpu_before));
}

Task<void> run(RealWorld& world, TcpOptions options, const Settings& settings,
               MutableBytes memory) {
  std::unique_ptr<UcxCarrier> carrier;
  if (settings.ucx) {
    auto opened = UcxCarrier::open(world);
    if (!opened) {
      std::fprintf(stderr, "bench_transport: %s\n", opened.error().text().c_str());
      std::exit(1);
    }
    carrier = std::move(*opened);
    options.carrier = carrier.get();
  }
  auto transport = co_await TcpTransport::open(std::move(options));
  if (!transport) {
    std::fprintf(stderr, "bench_transport: %s\n", transport.error().text().c_str());
    std::exit(1);
  }
  (*transport)->begin_epoch(1);
  co_await measure(**transport, settings, memory);
  co_await (*transport)->stop();
  if (carrier != nullptr) co_await carrier->stop();
}

}  // namespace

int main(int count, char** words) {
  if (count < 7) {
    std::fprintf(stderr, "bench_transport RANK ADDRESS0 ADDRESS1 WHAT BYTES COUNT [name=value…]\n");
    return 2;
  }
  Settings settings{.rank = static_cast<uint32_t>(std::strtoul(words[1], nullptr, 10)),
                    .what = words[4],
                    .bytes = std::strtoull(words[5], nullptr, 10),
                    .count = std::strtoull(words[6], nullptr, 10)};
  const Address zero = *Address::parse(words[2]);
  const Address one = *Address::parse(words[3]);
  std::string memory(kInFlight * std::max<uint64_t>(settings.bytes, 1), 'm');
  set_log_level(LogLevel::warn);
  LoopOptions loop;
  for (int i = 7; i < count; ++i)
    if (std::string_view(words[i]) == "spin=0") loop.spin = 0s;
  for (int i = 7; i < count; ++i)
    if (std::string_view(words[i]) == "transport=ucx") settings.ucx = true;
  RealWorld world(loop);
  FixedBook book(zero, one);
  TcpOptions options{.world = world,
                     .addresses = book,
                     .rank = settings.rank,
                     .world_size = 2,
                     .listen = settings.rank == 0 ? zero : one,
                     .heap = as_mutable_bytes(memory),
                     .may_put = [](uint64_t, uint64_t) { return true; }};
  for (int i = 7; i < count; ++i) {
    const std::string_view word = words[i];
    const char* value = std::strchr(words[i], '=') + 1;
    if (word.starts_with("streams="))
      options.streams = static_cast<uint32_t>(std::strtoul(value, nullptr, 10));
    if (word.starts_with("checksums=")) options.checksums = std::strtoul(value, nullptr, 10) != 0;
    if (word.starts_with("encrypt=")) options.encrypt = std::strtoul(value, nullptr, 10) != 0;
  }
  world.run(run(world, std::move(options), settings, as_mutable_bytes(memory)));
  return 0;
}
