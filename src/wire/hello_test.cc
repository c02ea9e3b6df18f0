// Hellos that are odd, late, false or refused; plain refusals are in fault_test.cc.
#include "wire/hello.h"

#include "wire/testing.h"
#include "wire/wire.pb.h"

namespace tutti::wire {
namespace {

constexpr std::string_view kMagic = "TUTTI\r\n\x01";

proto::Hello good_hello() {
  proto::Hello hello;
  hello.set_lowest_version(1);
  hello.set_highest_version(1);
  hello.set_cluster("lab");
  hello.set_role(static_cast<uint32_t>(Role::agent));
  hello.set_name("node3");
  hello.set_max_calls(4);
  hello.set_stream_window(kSmallestWindow);
  return hello;
}
std::string frame_of(const proto::Hello& hello) {
  return frame_bytes(FrameType::hello, std::string(kMagic) + hello.SerializeAsString());
}

// Has proven somebody.
class ProvenSeal final : public Seal {
 public:
  explicit ProvenSeal(Identity identity) : identity_(std::move(identity)) {}
  Task<Result<Identity>> handshake(Stream&) override { co_return identity_; }
  Result<void> seal(std::span<const Bytes>, std::string&) override { return {}; }
  Result<void> open(Bytes, std::string&) override { return {}; }
  bool transforms() const override { return false; }

 private:
  Identity identity_;
};

// One side of ours; tests say what the other says.
struct HelloBench {
  explicit HelloBench(Side side, Identity proven = {}, ConnectionOptions options = {}) {
    options.self = {"lab", Role::head, "h1"};
    options.address = "10.0.0.9:1";
    root.spawn(run(*this, side, std::move(proven), std::move(options)));
    clock.advance(0ms);
  }
  ~HelloBench() {
    in->close();
    clock.advance(1min);
    CHECK(root.size() == 0);
  }
  static Task<void> run(HelloBench& bench, Side side, Identity proven, ConnectionOptions options) {
    std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(bench.in, bench.out);
    std::unique_ptr<Seal> seal = std::make_unique<ProvenSeal>(std::move(proven));
    auto greeted = co_await Connection::greet(bench.clock, std::move(stream), std::move(seal), side,
                                              nullptr, std::move(options));
    if (!greeted) bench.error = greeted.error();
    if (!greeted) co_return;
    bench.peer = (*greeted)->peer();
    auto ran = co_await (*greeted)->run();
    bench.end = ran ? "well" : ran.error().text();
  }
  void hear(std::string_view bytes) {
    in->inject(bytes);
    clock.advance(0ms);
  }

  Executor executor;
  ManualClock clock;
  std::shared_ptr<MemoryPipe> in = std::make_shared<MemoryPipe>(10'000);
  std::shared_ptr<MemoryPipe> out = std::make_shared<MemoryPipe>(10'000);
  Scope root{Scope::Root{}};
  std::optional<Error> error;
  std::optional<Peer> peer;
  std::string end;
};

std::string refusal(Side side, const proto::Hello& hello, Identity proven = {}) {
  HelloBench bench(side, std::move(proven));
  const uint64_t before = bench.out->written();
  bench.hear(frame_of(hello));
  bench.clock.advance(2s);  // the other side does not close
  REQUIRE(bench.error);
  CHECK(bench.out->written() > before);  // and was told
  return bench.error->text();
}

TEST_CASE("a hello whose limits make no sense is refused") {
  proto::Hello hello = good_hello();
  hello.set_max_calls(65'536);
  CHECK(has(refusal(Side::accepting, hello), "limits make no sense: 65536 calls"));
  hello = good_hello();
  hello.set_stream_window(kSmallestWindow - 1);
  CHECK(has(refusal(Side::accepting, hello),
            fmt::format("a window of {} bytes", kSmallestWindow - 1)));
  hello = good_hello();
  hello.set_role(99);
  CHECK(has(refusal(Side::accepting, hello), "role 99 is not known here"));
}

TEST_CASE("a hello must say what the certificate says") {
  const Identity node3{"lab", Role::agent, "node3"};
  HelloBench honest(Side::accepting, node3);
  honest.hear(frame_of(good_hello()));
  CHECK(honest.peer);
  for (const Identity& proven :
       {Identity{"lab", Role::agent, "node4"}, Identity{"lab", Role::user, "node3"}})
    CHECK(has(refusal(Side::accepting, good_hello(), proven),
              "the hello says agent node3 of 'lab', the certificate "));
  CHECK(has(refusal(Side::accepting, good_hello(), {"office", Role::agent, "node3"}),
            "the certificate agent node3 of 'office'"));
}

TEST_CASE("the highest version that both speak is used") {
  ConnectionOptions options;
  options.lowest_version = 3;
  options.highest_version = 7;
  struct Case {
    uint32_t lowest;
    uint32_t highest;
    std::optional<uint32_t> chosen;
  };
  for (const Case& version : {Case{1, 5, 5}, Case{5, 9, 7}, Case{1, 3, 3}, Case{7, 7, 7},
                              Case{1, 2, {}}, Case{8, 9, {}}}) {
    HelloBench bench(Side::accepting, {}, options);
    proto::Hello hello = good_hello();
    hello.set_lowest_version(version.lowest);
    hello.set_highest_version(version.highest);
    bench.hear(frame_of(hello));
    CHECK(bench.peer.has_value() == version.chosen.has_value());
    if (bench.peer) CHECK(bench.peer->protocol == *version.chosen);
  }
}

TEST_CASE("a hello over 4,096 bytes is refused by its header") {
  HelloBench bench(Side::accepting);
  proto::Hello hello = good_hello();
  hello.set_name(std::string(5000, 'n'));
  bench.hear(std::string_view(frame_of(hello)).substr(0, kFrameHeaderSize));
  REQUIRE(bench.error);
  CHECK(has(bench.error->text(), "is over the limit of 4096"));
  CHECK(bench.out->written() == 0);
}

TEST_CASE("the side that connected may refuse too, and the other hears why") {
  proto::Hello hello = good_hello();
  hello.set_cluster("prod");
  CHECK(has(refusal(Side::connecting, hello), "agent node3 is of cluster 'prod'"));

  HelloBench accepting(Side::accepting);
  accepting.hear(frame_of(good_hello()));
  CHECK(accepting.peer);
  proto::Reject reject;
  reject.set_code(static_cast<uint32_t>(Code::denied));
  reject.set_reason("wrong cluster");
  accepting.hear(frame_bytes(FrameType::reject, std::string(kMagic) + reject.SerializeAsString()));
  CHECK(accepting.end ==
        "connection to agent node3 (10.0.0.9:1): rejected by agent node3 (10.0.0.9:1): wrong "
        "cluster");
}

}  // namespace
}  // namespace tutti::wire
