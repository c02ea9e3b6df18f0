// How commands reach the cluster this machine is in.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "cli/home.h"
#include "cluster/client.h"
#include "wire/seals.h"

namespace tutti::cli {

// This machine's cluster, as a user of it. close() the client before it dies.
struct Cluster {
  World& world;
  Home home;
  Machine machine;
  std::unique_ptr<wire::CertifiedSeals> seals;
  std::unique_ptr<ClusterClient> client;

  // A head answers, or the error says what to do. On the head's machine no certificate is needed.
  static Task<Result<std::unique_ptr<Cluster>>> open(World& world);
  static Task<Result<std::unique_ptr<Cluster>>> open(World& world, Home home);
  // Whether the head answers (again); the error says what to do.
  Task<Result<void>> reach();
  // For what is asked over TCP.
  Task<Result<void>> load_certificate();
};

// The body of a command that asks the cluster something: opens it, runs the body, prints an error
// as "tutti VERB: …". Gives the exit code.
int with_cluster(std::string_view verb, const std::function<Task<Result<int>>(Cluster&)>& body);

}  // namespace tutti::cli
