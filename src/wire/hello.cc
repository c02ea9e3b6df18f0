#include "wire/hello.h"

#include <algorithm>

#include "base/version.h"
#include "wire/wire.pb.h"
#include "world/scope.h"

namespace tutti::wire {

namespace {

// Begins the payload of a hello and a reject, in every version.
constexpr std::string_view kMagic = "TUTTI\r\n\x01";
// Nobody is trusted with more memory before the hello.
constexpr uint32_t kMaxHello = 4096;
// Long reasons are cut: a reject is as bounded as a hello.
constexpr size_t kMaxReason = 1024;
// For a peer that was rejected to hear of it and close.
constexpr Duration kPartingTime = 1s;

std::string frame_of(FrameType type, const google::protobuf::MessageLite& message) {
  std::string payload(kMagic);
  message.AppendToString(&payload);
  return frame_bytes(type, payload);
}

std::string our_hello(const ConnectionOptions& options) {
  proto::Hello hello;
  hello.set_lowest_version(options.lowest_version);
  hello.set_highest_version(options.highest_version);
  hello.set_program_version(std::string(kVersion));
  hello.set_role(static_cast<uint32_t>(options.self.role));
  hello.set_name(options.self.name);
  hello.set_cluster(options.self.cluster);
  hello.set_max_calls(std::min(options.limits.max_calls, kMostCalls));
  hello.set_stream_window(std::max(options.limits.stream_window, kSmallestWindow));
  hello.set_max_message(options.limits.max_message);
  return frame_of(FrameType::hello, hello);
}

Result<void> check_versions(const proto::Hello& hello, const ConnectionOptions& options) {
  if (hello.lowest_version() <= options.highest_version &&
      options.lowest_version <= hello.highest_version())
    return {};
  return fail(Code::unsupported,
              "{} {} speaks protocol versions {} to {}, {} {} speaks {} to {}: upgrade the older",
              hello.name(), hello.program_version(), hello.lowest_version(),
              hello.highest_version(), options.self.name, kVersion, options.lowest_version,
              options.highest_version);
}

// What the seal has proven stands, also that somebody has proven nothing; where it proves no
// cluster (Unix sockets), the hello's word is taken for role and name. A guest takes any cluster's
// head that its seal took.
Result<Identity> identify(const proto::Hello& hello, const Identity& proven,
                          const ConnectionOptions& options) {
  if (proven.role == Role::guest) return Identity{"", Role::guest, "nobody"};
  if (hello.role() > static_cast<uint32_t>(Role::worker))
    return fail(Code::invalid, "role {} is not known here", hello.role());
  Identity claimed{hello.cluster(), static_cast<Role>(hello.role()), hello.name()};
  if (claimed.cluster != options.self.cluster && options.self.role != Role::guest)
    return fail(Code::denied, "{} {} is of cluster '{}', this is cluster '{}'",
                role_name(claimed.role), claimed.name, claimed.cluster, options.self.cluster);
  const bool is_proven = !proven.cluster.empty();
  if (is_proven && (proven.cluster != claimed.cluster || proven.role != claimed.role ||
                    proven.name != claimed.name))
    return fail(Code::denied, "the hello says {} {} of '{}', the certificate {} {} of '{}'",
                role_name(claimed.role), claimed.name, claimed.cluster, role_name(proven.role),
                proven.name, proven.cluster);
  return claimed;
}

Result<Peer> check_hello(const proto::Hello& hello, const Identity& proven,
                         const ConnectionOptions& options) {
  TRY_DO(check_versions(hello, options));
  TRY(Identity identity, identify(hello, proven, options));
  if (hello.max_calls() > kMostCalls || hello.stream_window() < kSmallestWindow)
    return fail(Code::invalid, "the hello's limits make no sense: {} calls, a window of {} bytes",
                hello.max_calls(), hello.stream_window());
  if (options.admit) TRY_DO(options.admit(identity));
  Peer peer;
  peer.identity = std::move(identity);
  peer.address = options.address;
  peer.program_version = hello.program_version();
  peer.protocol = std::min(hello.highest_version(), options.highest_version);
  peer.max_calls = hello.max_calls();
  peer.stream_window = hello.stream_window();
  peer.max_message = hello.max_message();
  return peer;
}

Task<Result<Frame>> first_frame(Link& link, FrameReader& reader) {
  for (;;) {
    CO_TRY(auto frame, reader.next());
    if (frame) co_return *frame;
    auto more = co_await link.receive(reader);
    if (!more) co_return fail(more.error());
    if (!*more) co_return fail(Code::unavailable, "the connection was closed before a hello");
  }
}

Task<Result<proto::Hello>> receive_hello(Link& link, FrameReader& reader,
                                         const ConnectionOptions& options) {
  auto frame = co_await first_frame(link, reader);
  if (!frame) co_return fail(frame.error());
  const std::string_view payload = as_text(frame->payload);
  const bool known = frame->type == FrameType::hello || frame->type == FrameType::reject;
  if (!known || !payload.starts_with(kMagic))
    co_return fail(Code::corrupt, "the first frame is no hello; is {} a Tutti port?",
                   options.address);
  if (frame->type == FrameType::reject) co_return fail(rejection(frame->payload, options.address));
  const std::string_view body = payload.substr(kMagic.size());
  proto::Hello hello;
  if (!hello.ParseFromArray(body.data(), static_cast<int>(body.size())))
    co_return fail(Code::corrupt, "the hello does not parse");
  co_return hello;
}

Task<Result<void>> send_reject(Clock& clock, Link& link, Error why) {
  proto::Reject reject;
  reject.set_code(static_cast<uint32_t>(why.code()));
  reject.set_reason(why.text().substr(0, kMaxReason));
  const std::string frame = frame_of(FrameType::reject, reject);
  const Bytes part = as_bytes(frame);
  auto sent = co_await link.send({&part, 1});
  if (!sent) co_return sent;
  Task<Result<void>> parting = link.part();
  auto parted = co_await with_deadline(clock, clock.now() + kPartingTime, std::move(parting));
  static_cast<void>(parted);  // it was told, whether it closes or not
  co_return Result<void>();
}

Task<Result<Peer>> greet_without_deadline(Clock& clock, Link& link, FrameReader& reader, Side side,
                                          const ConnectionOptions& options) {
  auto proven = co_await link.handshake(reader);
  if (!proven) co_return fail(proven.error());
  const std::string ours = our_hello(options);
  const Bytes part = as_bytes(ours);
  if (side == Side::connecting) {
    auto sent = co_await link.send({&part, 1});
    if (!sent) co_return fail(sent.error());
  }
  auto hello = co_await receive_hello(link, reader, options);
  if (!hello) co_return fail(hello.error());
  auto peer = check_hello(*hello, *proven, options);
  if (!peer) {
    const Error& why = peer.error();
    auto told = co_await send_reject(clock, link, why);
    co_return fail(why.context(told ? "rejected a peer" : "could not tell a peer"));
  }
  if (side == Side::accepting) {
    auto sent = co_await link.send({&part, 1});
    if (!sent) co_return fail(sent.error());
  }
  co_return std::move(*peer);
}

}  // namespace

Error rejection(Bytes payload, std::string_view who) {
  std::string_view body = as_text(payload);
  proto::Reject reject;
  const bool sound = body.starts_with(kMagic);
  if (sound) body.remove_prefix(kMagic.size());
  if (!sound || !reject.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    reject.Clear();
    reject.set_reason("for a garbled reason");
  }
  auto code = static_cast<Code>(reject.code());
  if (reject.code() > static_cast<uint32_t>(Code::internal) || code == Code::cancelled)
    code = Code::denied;
  return Error(code, reject.reason().substr(0, kMaxReason))
      .context(fmt::format("rejected by {}", who));
}

std::string Peer::text() const { return fmt::format("{} ({})", who_text(identity), address); }

Task<Result<Peer>> greet(Clock& clock, Link& link, FrameReader& reader, Side side,
                         const ConnectionOptions& options) {
  reader.set_max_payload(kMaxHello);
  const Instant by = clock.now() + options.limits.hello_timeout;
  auto work = greet_without_deadline(clock, link, reader, side, options);
  auto peer = co_await with_deadline(clock, by, std::move(work));
  reader.set_max_payload(kMaxFramePayload);
  if (peer) co_return peer;
  if (peer.error().code() == Code::deadline)
    co_return fail(Code::deadline, "{} did not say hello within {}", options.address,
                   format_duration(options.limits.hello_timeout));
  co_return fail(peer.error().context("greeting " + options.address));
}

}  // namespace tutti::wire
