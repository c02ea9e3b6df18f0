#include "cluster/exchange_server.h"

#include "base/log.h"
#include "cluster/host_job.h"

namespace tutti {
namespace {

// Of all ranks of a host, each with some threads that wait.
constexpr size_t kMostConnections = 16'384;
// A request is a few bytes from the same host; who does not send it is stuck.
constexpr Duration kRequestPatience = 10s;
constexpr uid_t kRoot = 0;

ExchangeAnswer refusal(const Error& why) {
  return {.ok = false, .code = why.code(), .gang_epoch = 0, .message = why.text(), .value = {}};
}

// For as long as it lives, however it ends.
class Count {
 public:
  explicit Count(uint32_t& counted) : counted_(counted) { ++counted_; }
  ~Count() { --counted_; }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;

 private:
  uint32_t& counted_;
};

}  // namespace

Task<Result<void>> ExchangeServer::serve(std::string path) {
  Address address = Address::unix_socket(std::move(path));
  auto listener = co_await world_.network().listen(std::move(address));
  if (!listener) co_return fail(listener.error().context("listen for ranks"));
  listeners_.push_back(std::move(*listener));
  listeners_.back()->serve(*this, strands_);
  co_return {};
}

void ExchangeServer::on_connection(std::unique_ptr<Stream> stream) {
  if (calls_ >= kMostConnections || strands_.cancelled()) return;
  strands_.spawn(serve_one(std::move(stream)));
}

Task<void> ExchangeServer::serve_one(std::unique_ptr<Stream> stream) {
  const Count counted(calls_);
  const ExchangeAnswer reply = co_await answer(*stream);
  const std::string encoded = encode(reply);
  const Bytes bytes = as_bytes(encoded);
  (void)co_await stream->write(bytes);
}

// A socket that only our own user and root can reach needs no question.
Result<void> ExchangeServer::check_user(Stream& stream, const HostJob& job) const {
  if (!serves_others_) return {};
  TRY(const Credentials peer, stream.peer_credentials());
  const uid_t own = world_.processes().own_uid();
  if (peer.uid == own || peer.uid == kRoot || peer.uid == job.user(own)) return {};
  TUTTI_LOG(warn, "refused a call of another user",
            {{"job", job.job()}, {"uid", peer.uid}, {"pid", peer.pid}});
  return fail(Code::denied, "job {} is of uid {}, and you are uid {}", job.job(), job.user(own),
              peer.uid);
}

Task<ExchangeAnswer> ExchangeServer::answer(Stream& stream) {
  Task<Result<ExchangeRequest>> reading = read_request(stream);
  const Instant patience = world_.clock().now() + kRequestPatience;
  auto request = co_await with_deadline(world_.clock(), patience, std::move(reading));
  if (!request) co_return refusal(request.error());
  HostJob* job = find_(request->job);
  if (job == nullptr)
    co_return refusal(
        Error(Code::not_found, fmt::format("job {} is not on this host", request->job)));
  if (auto allowed = check_user(stream, *job); !allowed) co_return refusal(allowed.error());
  if (request->op == ExchangeRequest::Op::ready) {
    job->on_spare_ready(request->process);
    co_return ExchangeAnswer{};
  }
  std::shared_ptr<HostExchange> exchange = job->exchange();
  co_return co_await HostExchange::ask(std::move(exchange), std::move(*request));
}

}  // namespace tutti
