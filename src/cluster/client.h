// A user of a cluster: submits jobs, watches them, follows what they print. Survives a head or an
// agent that is started anew meanwhile. Belongs to one strand's executor; close() before it dies.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cluster/api.h"
#include "wire/connection.h"
#include "wire/seals.h"
#include "wire/server.h"
#include "world/semaphore.h"
#include "world/world.h"

namespace tutti {

// A connection to one server, made when it is wanted and again after it broke.
class ApiCaller {
 public:
  ApiCaller(World& world, Address address, wire::MakeSeal make_seal, wire::Identity self);
  ~ApiCaller();

  // One try when there is none. Code::unavailable when nobody is there.
  Task<Result<wire::Connection*>> connected();
  template <class Request, class Reply>
  Task<Result<Reply>> ask(const wire::Method<Request, Reply>& method, Request request) {
    auto connection = co_await connected();
    if (!connection) co_return fail(std::move(connection).error());
    co_return co_await (*connection)->call(method, request);
  }
  Task<void> close();

 private:
  Task<Result<wire::Connection*>> connect();

  World& world_;
  Address address_;
  wire::MakeSeal make_seal_;
  wire::Identity self_;
  std::unique_ptr<wire::Connection> connection_;
  Semaphore connecting_{1};  // strands that want one at the same time get the same
  Scope running_{Scope::Root{}};
};

// Told of a job, on the strands that wait for it.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void on_change(const cluster::JobInfo& info) = 0;
  // The head does not answer; it is asked again until it does.
  virtual void on_head_away(const Error& why) = 0;
};

// Many jobs, and what becomes of each; on the strands that wait for them.
class ManyJobs {
 public:
  virtual ~ManyJobs() = default;
  virtual size_t count() const = 0;
  // Made when it is wanted, and again when the head was started anew meanwhile.
  virtual cluster::SubmitRequest request(size_t place) = 0;
  virtual void on_submitted(size_t place, uint64_t job) = 0;
  virtual void on_refused(size_t place, const Error& why) = 0;
  // Of those whose request asks for it.
  virtual void on_over(size_t place, const cluster::JobInfo& info) = 0;
  virtual void on_head_away(const Error& why) = 0;
};

// Told what a job does on one host.
class OutputListener {
 public:
  virtual ~OutputListener() = default;
  // Told twice when the agent was started anew, which finds what runs and what has ended since.
  virtual void on_event(const cluster::ProcessEvent& event) = 0;
  // No bytes are the end of the stream (1 output, 2 error).
  virtual Task<Result<void>> on_output(uint32_t process, uint8_t stream, Bytes bytes) = 0;
};

// How far somebody has followed a job on a host; kept from one call to the next.
struct OutputPlace {
  cluster::HostAbout host;
  cluster::OutputRequest next;   // the job, and from where on
  uint64_t epoch = 0;            // up to which everything was told, as far as the host knows
  std::optional<Error> trouble;  // with the last try, when it did not get to the end
};

struct ClientOptions {
  Address head;
  std::string own_host;  // whose agent is asked on its Unix socket
  Address own_agent;
  wire::Identity self;
};

class ClusterClient {
 public:
  ClusterClient(World& world, wire::Seals& seals, ClientOptions options);

  // Whether a head answers.
  Task<Result<void>> connect();
  template <class Request, class Reply>
  Task<Result<Reply>> ask(const wire::Method<Request, Reply>& method, Request request) {
    return head_.ask(method, std::move(request));
  }

  // Submits the job, once however often the head is asked, and gives what became of it.
  Task<Result<cluster::JobInfo>> run(cluster::SubmitRequest request, JobListener& listener);
  Task<Result<cluster::JobInfo>> watch(uint64_t job, JobListener& listener);
  // To ask a host's agent; outlived by this client, and closed before it dies.
  Result<std::unique_ptr<ApiCaller>> agent_of(const cluster::HostAbout& host);
  // Submits them without waiting for one before the next, each once however often the head is
  // asked.
  Task<Result<void>> submit_many(ManyJobs& jobs);
  // Until nothing of the job is there any more, or cancelled; goes on where `place` is. An agent
  // that does not answer is looked for again: the head knows where it is now.
  Task<Result<void>> follow(OutputPlace& place, OutputListener& listener);
  Task<void> close() { return head_.close(); }

 private:
  template <class Request>
  Task<Result<cluster::JobInfo>> watch_with(
      const wire::StreamMethod<Request, cluster::JobInfo>& method, Request request,
      JobListener& listener);
  template <class Request>
  Task<Result<cluster::JobInfo>> watch_once(
      const wire::StreamMethod<Request, cluster::JobInfo>& method, const Request& request,
      JobListener& listener);
  Task<Result<bool>> find_again(OutputPlace& place);
  wire::MakeSeal seal_for(Address::Kind kind, wire::Roles roles);

  World& world_;
  wire::Seals& seals_;
  ClientOptions options_;
  ApiCaller head_;
};

}  // namespace tutti
