#include "world/real/ucx/ucx_carrier.h"

#include <algorithm>

#include "world/real/ucx/ucx_stream.h"

namespace tutti {

namespace {

constexpr unsigned kMessages = 0;  // UCX's number for all of ours
// Between two looks while something is under way: some ways of UCX do not tell when there is room.
constexpr Duration kTick = 1ms;
// What UCX does in one go, before others have their turn.
constexpr int kMaxRounds = 64;
// For who reads the last bytes of a stream that was closed.
constexpr Duration kPartingTime = 1s;
// A closed endpoint gives our memory back at once. If it ever did not, going on would mean that
// somebody writes into memory that is not his.
constexpr Duration kLongestClose = 30s;

}  // namespace

UcxPeer::~UcxPeer() { carrier.close(*this); }

// ---- Life ----

Result<std::unique_ptr<UcxCarrier>> UcxCarrier::open(RealWorld& world) {
  TRY(const UcxLibrary* ucx, ucx_library());
  std::unique_ptr<UcxCarrier> carrier(new UcxCarrier(world, *ucx));
  TRY_DO(carrier->start());
  return carrier;
}

Result<void> UcxCarrier::start() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_->ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return fail(ucx_error(*ucx_, status, "read the UCX_ variables"));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  // Not UCP_FEATURE_RMA: over TCP it lets any peer write anywhere in this process.
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucx_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_->ucp_config_release(config);
  if (status != UCS_OK)
    return fail(ucx_error(*ucx_, status, "begin to use UCX; is UCX_TLS or UCX_NET_DEVICES wrong?"));
  TRY_DO(start_worker());
  TRY_DO(world_.loop().add(descriptor_, EPOLLIN, *this));
  server_.spawn(serve());
  return {};
}

Result<void> UcxCarrier::start_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucs_status_t status = ucx_->ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return fail(ucx_error(*ucx_, status, "make a worker of UCX"));
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessages;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_message;
  handler.arg = this;
  status = ucx_->ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status == UCS_OK) status = ucx_->ucp_worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return fail(ucx_error(*ucx_, status, "listen to UCX"));
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucx_->ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return fail(ucx_error(*ucx_, status, "find our address in UCX"));
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucx_->ucp_worker_release_address(worker_, address);
  return {};
}

UcxCarrier::~UcxCarrier() {
  server_.kill();
  burials_.kill();
  shut_down();
}

void UcxCarrier::shut_down() {
  TUTTI_ASSERT(ends_.empty(), "a carrier outlives its streams");
  if (descriptor_ >= 0) world_.loop().remove(std::exchange(descriptor_, -1), *this);
  if (worker_ != nullptr) ucx_->ucp_worker_destroy(std::exchange(worker_, nullptr));
  if (context_ != nullptr) ucx_->ucp_cleanup(std::exchange(context_, nullptr));
}

Task<void> UcxCarrier::stop() {
  const Shield until_all_are_gone;
  auto buried = co_await burials_.join();
  server_.cancel();
  auto served = co_await server_.join();
  static_cast<void>(buried);
  static_cast<void>(served);
  shut_down();
}

// ---- Progress ----

unsigned UcxCarrier::progress() {
  TUTTI_ASSERT(!inside_, "UCX is not asked from its own callbacks");
  inside_ = true;
  const unsigned done = ucx_->ucp_worker_progress(worker_);
  inside_ = false;
  return done;
}

// Whatever was noted in callbacks; that may lead to more.
void UcxCarrier::settle() {
  while (!lost_.empty() || !ready_.empty()) {
    if (!lost_.empty()) {
      auto [peer, why] = std::move(lost_.back());
      lost_.pop_back();
      break_off(*peer, why);
      continue;
    }
    for (const uint64_t end : std::exchange(ready_, {}))
      if (const auto found = ends_.find(end); found != ends_.end()) found->second->advance();
  }
}

void UcxCarrier::pump() {
  again_ = true;
  for (int round = 0; round < kMaxRounds && again_; ++round) {
    again_ = progress() != 0;
    settle();
    // After this the descriptor tells of whatever comes; unless something has come already.
    if (!again_) again_ = ucx_->ucp_worker_arm(worker_) == UCS_ERR_BUSY;
  }
  if (again_) work_.ring();
}

void UcxCarrier::on_ready(uint32_t) { pump(); }

Task<void> UcxCarrier::serve() {
  for (;;) {
    Instant at = operations_ > 0 ? clock().now() + kTick : kNever;
    if (again_) at = clock().now();
    auto waited = co_await work_.until(at);
    if (!waited) co_return;
    pump();
    co_await yield();
  }
}

void UcxCarrier::progress_while(const bool& busy, Duration longest) {
  const Instant by = clock().now() + longest;
  while (busy && clock().now() < by) progress();
  again_ = true;
  work_.ring();
}

void UcxCarrier::began(UcxPeer& peer) {
  ++peer.operations;
  if (operations_++ == 0) work_.ring();
}

void UcxCarrier::ended(UcxPeer& peer) {
  --peer.operations;
  --operations_;
}

// ---- Peers ----

Result<std::shared_ptr<UcxPeer>> UcxCarrier::peer(std::string address) {
  std::weak_ptr<UcxPeer>& known = peers_[address];
  if (auto there = known.lock()) return there;
  auto made = std::make_shared<UcxPeer>(*this, std::move(address));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(made->address.data());
  // Without it a dead peer could hold our memory for ever.
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = on_endpoint_error, .arg = made.get()};
  const ucs_status_t status = ucx_->ucp_ep_create(worker_, &params, &made->endpoint);
  if (status == UCS_ERR_UNREACHABLE)
    return fail(
        Code::unsupported,
        "UCX has no way to the other host that survives its death; is UCX_TLS set to shared "
        "memory alone, or UCX_NET_DEVICES wrong? Add tcp to UCX_TLS");
  if (status != UCS_OK) return fail(ucx_error(*ucx_, status, "make an endpoint"));
  known = made;
  return made;
}

void UcxCarrier::on_endpoint_error(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& lost = *static_cast<UcxPeer*>(peer);
  lost.carrier.lost(lost, ucx_error(*lost.carrier.ucx_, status, "reach the other host"));
}

void UcxCarrier::break_off(UcxPeer& peer, const Error& why) {
  close(peer);
  const std::vector<UcxStream*> streams = peer.streams;
  for (UcxStream* stream : streams) stream->break_with(why);
}

void UcxCarrier::close(UcxPeer& peer) {
  if (const auto found = peers_.find(peer.address); found != peers_.end()) {
    const auto there = found->second.lock();
    if (there == nullptr || there.get() == &peer) peers_.erase(found);
  }
  if (peer.endpoint != nullptr) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request =
        ucx_->ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param);
    if (UCS_PTR_IS_PTR(request)) ucx_->ucp_request_free(request);
    const Instant by = clock().now() + kLongestClose;
    while (peer.operations > 0) {
      progress();
      TUTTI_ASSERT(clock().now() < by, "UCX gives memory back when an endpoint is closed");
    }
  }
  std::erase_if(lost_, [&](const auto& lost) { return lost.first == &peer; });
}

// ---- Messages ----

struct UcxCarrier::Copy {
  UcxPeer& peer;
  UcxHeader header;
  std::string bytes;
};

Result<void> UcxCarrier::send_copy(UcxPeer& peer, const UcxHeader& header, std::string bytes) {
  if (peer.endpoint == nullptr) return fail(Code::unavailable, "the other side is gone");
  auto copy = std::make_unique<Copy>(peer, header, std::move(bytes));
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = on_copy_sent;
  param.user_data = copy.get();
  const ucs_status_ptr_t request =
      ucx_->ucp_am_send_nbx(peer.endpoint, kMessages, &copy->header, sizeof copy->header,
                            copy->bytes.data(), copy->bytes.size(), &param);
  if (UCS_PTR_IS_ERR(request)) return fail(ucx_error(*ucx_, UCS_PTR_STATUS(request), "send"));
  if (request == nullptr) return {};
  (void)copy.release();  // to on_copy_sent()
  began(peer);
  return {};
}

void UcxCarrier::on_copy_sent(void* request, ucs_status_t status, void* copy) {
  const std::unique_ptr<Copy> sent(static_cast<Copy*>(copy));
  UcxCarrier& carrier = sent->peer.carrier;
  carrier.ucx_->ucp_request_free(request);
  carrier.ended(sent->peer);
  if (status != UCS_OK) carrier.lost(sent->peer, ucx_error(*carrier.ucx_, status, "send"));
}

ucs_status_t UcxCarrier::on_message(void* self, const void* header, size_t header_bytes, void* data,
                                    size_t bytes, const ucp_am_recv_param_t* param) {
  const auto& carrier = *static_cast<UcxCarrier*>(self);
  UcxHeader said;
  if (header_bytes != sizeof said) return UCS_OK;  // no message of ours
  std::memcpy(&said, header, sizeof said);
  // Of a stream that is gone: what was to be fetched is given back.
  const auto found = carrier.ends_.find(said.end);
  if (found == carrier.ends_.end()) return UCS_OK;
  const bool fetched_later = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return found->second->came(said, data, bytes, fetched_later);
}

// ---- Streams ----

Result<std::unique_ptr<CarriedStream>> UcxCarrier::make_end() {
  const uint64_t end = next_end_++;
  auto stream = std::make_unique<UcxStream>(*this, end);
  ends_.emplace(end, stream.get());
  return stream;
}

void UcxCarrier::listen(UcxTether& tether) { tether.strand.spawn(hear(tether)); }

Task<void> UcxCarrier::hear(UcxTether& tether) {
  std::array<std::byte, sizeof(uint64_t) + 1> word;
  size_t bytes = 0;
  while (bytes < word.size()) {
    const MutableBytes room = MutableBytes(word).subspan(bytes);
    auto got = co_await tether.connection->read(room);
    if (!got && got.error().code() == Code::cancelled) co_return;
    if (!got || *got == 0) break;
    bytes += *got;
  }
  std::optional<uint64_t> messages;
  if (bytes == sizeof(uint64_t)) messages = load_le<uint64_t>(word.data());
  if (tether.stream != nullptr) tether.stream->connection_ended(messages);
  tether.ended.ring();
}

void UcxCarrier::bury(std::unique_ptr<UcxTether> tether) {
  burials_.spawn(bury_strand(std::move(tether)));
}

Task<void> UcxCarrier::bury_strand(std::unique_ptr<UcxTether> tether) {
  const Shield until_it_is_gone;
  const Instant by = clock().now() + kPartingTime;
  (void)co_await tether->ended.until(by);
  tether->strand.cancel();
  auto joined = co_await tether->strand.join();
  static_cast<void>(joined);
}

}  // namespace tutti
