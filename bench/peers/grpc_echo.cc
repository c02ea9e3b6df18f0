// gRPC's side of bench_wire.py, in every way its C++ library offers; the benchmark takes the best.
//
//   grpc_echo serve STYLE [--tls FOLDER]            prints its port, runs until it is killed
//   grpc_echo call STYLE PORT BYTES IN_FLIGHT SECONDS [--tls FOLDER]
//
// STYLE is sync (a thread per call in flight), callback, queue (one thread on a completion queue)
// or spin (the same, polling instead of sleeping). FOLDER has ca.pem, and key and certificate of
// server and client.
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../measure.h"
#include "echo.grpc.pb.h"

namespace {

using tutti::bench::Echo;
using tutti::bench::Packet;
using tutti::bench::Usage;

[[noreturn]] void die(const std::string& why) {
  std::cerr << "grpc_echo: " << why << "\n";
  std::exit(1);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) die("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// How a completion queue is waited on.
bool next(grpc::CompletionQueue& queue, bool spin, void** tag, bool* ok) {
  if (!spin) return queue.Next(tag, ok);
  for (;;) {
    const auto status = queue.AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (status == grpc::CompletionQueue::TIMEOUT) continue;
    return status == grpc::CompletionQueue::GOT_EVENT;
  }
}

grpc::Status tell_usage(Usage* usage) {
  usage->set_cpu_ns(cpu_ns());
  return grpc::Status::OK;
}

class SyncService final : public Echo::Service {
  grpc::Status Call(grpc::ServerContext*, const Packet* request, Packet* reply) override {
    reply->set_payload(request->payload());
    return grpc::Status::OK;
  }
  grpc::Status Used(grpc::ServerContext*, const Packet*, Usage* usage) override {
    return tell_usage(usage);
  }
};

class CallbackService final : public Echo::WithCallbackMethod_Call<Echo::Service> {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const Packet* request,
                                 Packet* reply) override {
    reply->set_payload(request->payload());
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::Status Used(grpc::ServerContext*, const Packet*, Usage* usage) override {
    return tell_usage(usage);
  }
};

class QueueService final : public Echo::WithAsyncMethod_Call<Echo::Service> {
  grpc::Status Used(grpc::ServerContext*, const Packet*, Usage* usage) override {
    return tell_usage(usage);
  }
};

// One of the calls a queue server has ready for whoever comes.
class QueuedCall {
 public:
  QueuedCall(QueueService& service, grpc::ServerCompletionQueue& queue)
      : service_(service), queue_(queue) {
    wait();
  }
  void proceed() {
    if (answered_) return wait();
    answered_ = true;
    reply_.set_payload(request_.payload());
    responder_->Finish(reply_, grpc::Status::OK, this);
  }

 private:
  void wait() {
    answered_ = false;
    responder_.reset();
    context_ = std::make_unique<grpc::ServerContext>();
    responder_ = std::make_unique<grpc::ServerAsyncResponseWriter<Packet>>(context_.get());
    service_.RequestCall(context_.get(), &request_, responder_.get(), &queue_, &queue_, this);
  }
  QueueService& service_;
  grpc::ServerCompletionQueue& queue_;
  std::unique_ptr<grpc::ServerContext> context_;
  std::unique_ptr<grpc::ServerAsyncResponseWriter<Packet>> responder_;
  Packet request_;
  Packet reply_;
  bool answered_ = false;
};

void serve(const std::string& style, const char* folder) {
  grpc::ServerBuilder builder;
  int port = 0;
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (folder != nullptr) {
    const std::string at = std::string(folder) + "/";
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = read_file(at + "ca.pem");
    options.pem_key_cert_pairs.push_back(
        {read_file(at + "grpc-server.key"), read_file(at + "grpc-server.pem")});
    credentials = grpc::SslServerCredentials(options);
  }
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const bool queued = style == "queue" || style == "spin";
  SyncService sync;
  CallbackService callback;
  QueueService queue_service;
  if (style == "sync") builder.RegisterService(&sync);
  if (style == "callback") builder.RegisterService(&callback);
  if (queued) builder.RegisterService(&queue_service);
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  if (queued) queue = builder.AddCompletionQueue();
  const auto server = builder.BuildAndStart();
  if (!server) die("the server does not start");
  std::cout << port << std::endl;
  if (!queued) return server->Wait();
  constexpr size_t kReady = 128;
  std::vector<std::unique_ptr<QueuedCall>> calls;
  for (size_t i = 0; i < kReady; ++i)
    calls.push_back(std::make_unique<QueuedCall>(queue_service, *queue));
  void* tag = nullptr;
  bool ok = false;
  while (next(*queue, style == "spin", &tag, &ok)) static_cast<QueuedCall*>(tag)->proceed();
}

struct Load {
  std::string style;
  size_t bytes = 64;
  size_t in_flight = 1;
};

void check(const grpc::Status& status, const Packet& reply, const Load& load) {
  if (!status.ok()) die(status.error_message());
  if (reply.payload().size() != load.bytes) die("a short echo");
}

using Latencies = std::vector<uint64_t>;

void call_sync(Echo::Stub& stub, const Load& load, uint64_t until, Latencies& all) {
  std::mutex lock;
  const auto work = [&] {
    Latencies mine;
    Packet request;
    request.set_payload(std::string(load.bytes, 'x'));
    uint64_t before = now_ns();
    while (before < until) {
      grpc::ClientContext context;
      Packet reply;
      check(stub.Call(&context, request, &reply), reply, load);
      const uint64_t after = now_ns();
      mine.push_back(after - before);
      before = after;
    }
    const std::lock_guard guard(lock);
    all.insert(all.end(), mine.begin(), mine.end());
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < load.in_flight; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

// One call in flight after another.
struct Line {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Packet>> reader;
  Packet request;
  Packet reply;
  grpc::Status status;
  uint64_t before = 0;
};

void call_queue(Echo::Stub& stub, const Load& load, uint64_t until, Latencies& all) {
  grpc::CompletionQueue queue;
  std::vector<Line> lines(load.in_flight);
  const auto start = [&](Line& line, uint64_t now) {
    line.before = now;
    line.context = std::make_unique<grpc::ClientContext>();
    line.reader = stub.AsyncCall(line.context.get(), line.request, &queue);
    line.reader->Finish(&line.reply, &line.status, &line);
  };
  for (Line& line : lines) {
    line.request.set_payload(std::string(load.bytes, 'x'));
    start(line, now_ns());
  }
  size_t running = lines.size();
  void* tag = nullptr;
  bool ok = false;
  while (running != 0 && next(queue, load.style == "spin", &tag, &ok)) {
    Line& line = *static_cast<Line*>(tag);
    check(line.status, line.reply, load);
    const uint64_t now = now_ns();
    all.push_back(now - line.before);
    if (now < until) {
      start(line, now);
    } else {
      --running;
    }
  }
  queue.Shutdown();
}

void call_callback(Echo::Stub& stub, const Load& load, uint64_t until, Latencies& all) {
  std::mutex lock;
  std::condition_variable done;
  size_t running = load.in_flight;
  std::vector<Line> lines(load.in_flight);
  std::vector<Latencies> latencies(load.in_flight);
  std::function<void(size_t)> start = [&](size_t index) {
    Line& line = lines[index];
    line.before = now_ns();
    line.context = std::make_unique<grpc::ClientContext>();
    stub.async()->Call(line.context.get(), &line.request, &line.reply,
                       [&, index](const grpc::Status& status) {
                         check(status, lines[index].reply, load);
                         const uint64_t now = now_ns();
                         latencies[index].push_back(now - lines[index].before);
                         if (now < until) return start(index);
                         const std::lock_guard guard(lock);
                         if (--running == 0) done.notify_one();
                       });
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    lines[i].request.set_payload(std::string(load.bytes, 'x'));
    start(i);
  }
  std::unique_lock guard(lock);
  done.wait(guard, [&] { return running == 0; });
  for (const Latencies& mine : latencies) all.insert(all.end(), mine.begin(), mine.end());
}

void call(const Load& load, Echo::Stub& stub, double seconds, Latencies& all) {
  const uint64_t until = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  if (load.style == "sync") return call_sync(stub, load, until, all);
  if (load.style == "callback") return call_callback(stub, load, until, all);
  call_queue(stub, load, until, all);
}

uint64_t server_cpu_ns(Echo::Stub& stub) {
  grpc::ClientContext context;
  Usage usage;
  const grpc::Status status = stub.Used(&context, Packet(), &usage);
  if (!status.ok()) die(status.error_message());
  return usage.cpu_ns();
}

std::shared_ptr<grpc::Channel> connect(const char* port, const char* folder) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (folder != nullptr) {
    const std::string at = std::string(folder) + "/";
    arguments.SetSslTargetNameOverride("server");
    credentials = grpc::SslCredentials({read_file(at + "ca.pem"), read_file(at + "grpc-client.key"),
                                        read_file(at + "grpc-client.pem")});
  }
  return grpc::CreateCustomChannel(std::string("127.0.0.1:") + port, credentials, arguments);
}

}  // namespace

int main(int count, char** arguments) {
  const char* folder = nullptr;
  if (count >= 3 && std::strcmp(arguments[count - 2], "--tls") == 0) {
    folder = arguments[count - 1];
    count -= 2;
  }
  if (count == 3 && std::strcmp(arguments[1], "serve") == 0) {
    serve(arguments[2], folder);
    return 0;
  }
  if (count != 7 || std::strcmp(arguments[1], "call") != 0)
    die("serve STYLE | call STYLE PORT BYTES IN_FLIGHT SECONDS; --tls FOLDER");
  const Load load{arguments[2], std::strtoull(arguments[4], nullptr, 10),
                  std::strtoull(arguments[5], nullptr, 10)};
  const auto stub = Echo::NewStub(connect(arguments[3], folder));
  Latencies latencies;
  call(load, *stub, kWarmUpSeconds, latencies);
  latencies.clear();
  latencies.reserve(1 << 22);
  Measurement measurement;
  measurement.begin(server_cpu_ns(*stub));
  call(load, *stub, std::atof(arguments[6]), latencies);
  measurement.end();
  for (const uint64_t latency : latencies) measurement.add(latency);
  measurement.print(server_cpu_ns(*stub));
  return 0;
}
