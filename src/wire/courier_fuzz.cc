// Any bytes after an honest hello, from a peer that was let in. The first byte says whether true
// frames are made of the rest (each a type, a length and that much payload, data by the kilobyte)
// or whether it is sent as it is. Nothing may crash, hang, leak or exceed the courier's bounds.
#include <cstddef>
#include <cstdint>
#include <string>

#include "wire/courier.h"
#include "wire/memory_stream.h"
#include "wire/plain_seal.h"
#include "wire/wire.pb.h"
#include "world/manual_clock.h"

namespace tutti::wire {
namespace {

constexpr uint64_t kMaxMessage = 1 << 20;
constexpr uint64_t kMaxQueued = 1 << 16;

std::string frame(FrameType type, std::string_view payload) {
  std::string bytes(kFrameHeaderSize, '\0');
  bytes += payload;
  store_frame_header(as_mutable_bytes(bytes).data(), type, 0, 0, as_bytes(payload));
  return bytes;
}

std::string hello() {
  proto::Hello hello;
  hello.set_lowest_version(1);
  hello.set_highest_version(1);
  hello.set_max_calls(4);
  hello.set_stream_window(kSmallestWindow);
  hello.set_max_message(kMaxMessage);
  return frame(FrameType::hello, "TUTTI\r\n\x01" + hello.SerializeAsString());
}

// Mostly of the two types that couriers know, so that what is behind them is reached.
std::string frames_of(std::string_view bytes) {
  std::string all;
  while (bytes.size() >= 2) {
    const auto drawn = static_cast<uint8_t>(bytes[0]);
    FrameType type = drawn % 2 == 0 ? FrameType::message : FrameType::data;
    if (drawn >= 0xf0) type = static_cast<FrameType>(drawn % 16);
    const size_t size = std::min<size_t>(static_cast<uint8_t>(bytes[1]), bytes.size() - 2);
    std::string payload(bytes.substr(2, size));
    bytes.remove_prefix(2 + size);
    if (type == FrameType::data) payload = std::string(payload.size() * 1024, 'd');
    all += frame(type, payload);
  }
  return all;
}

// Echoes what it gets, to whoever does not read it.
struct Echo final : MessageTaker {
  Result<void> take(Bytes message) override {
    TUTTI_ASSERT(message.size() <= kMaxMessage, "no message is longer than the limit");
    if (!courier->post(message)) return fail(Code::exhausted, "the peer does not read");
    return {};
  }
  void ended(const Error&) override { ++ends; }
  Courier* courier = nullptr;
  int ends = 0;
};

Task<void> accept(Clock& clock, std::shared_ptr<MemoryPipe> in, std::shared_ptr<MemoryPipe> out) {
  std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(in, out);
  std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
  ConnectionOptions options{.limits = {.max_message = kMaxMessage, .max_queued = kMaxQueued},
                            .address = "fuzz"};
  auto greeted = co_await Courier::greet(clock, std::move(stream), std::move(seal), Side::accepting,
                                         std::move(options));
  TUTTI_ASSERT(greeted.has_value(), "the hello is honest");
  Echo echo;
  echo.courier = greeted->courier.get();
  Scope strands;
  echo.courier->start(echo, strands);
  auto joined = co_await strands.join();
  TUTTI_ASSERT(echo.ends == 1, "it ends once");
  TUTTI_ASSERT(echo.courier->queued() <= kMaxQueued + kMaxMessage + 4096,
               "what is queued is bounded");
}

}  // namespace
}  // namespace tutti::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  Executor executor;
  ManualClock clock;
  const auto in = std::make_shared<wire::MemoryPipe>(1 << 20);
  const auto out = std::make_shared<wire::MemoryPipe>(1 << 16);
  Scope root{Scope::Root{}};
  root.spawn(wire::accept(clock, in, out));
  in->inject(wire::hello());
  clock.advance(Duration::zero());
  in->inject(data[0] % 2 == 0 ? wire::frames_of(rest) : std::string(rest));
  clock.advance(Duration::zero());
  in->close();
  clock.advance(Duration::zero());
  out->reset();
  clock.advance(std::chrono::seconds(1));
  TUTTI_ASSERT(root.size() == 0, "a courier ends with its stream");
  return 0;
}
