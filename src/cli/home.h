// The folder where a machine keeps what it is in a cluster: $TUTTI_HOME, or
// ~/.local/state/tutti. Only its owner may look inside.
//
//   machine.json          the machine's part in its cluster (Machine)
//   cluster/              certificates; on the head's machine the authority too
//   head.sock head/       the head's API, its log and pid
//   agent/agent.sock …    the agent's API, its log, keepers and pid
//   log/                  what head and agent print when they run in the background
#pragma once

#include <string>

#include "base/result.h"
#include "wire/rules.h"
#include "world/network.h"
#include "world/task.h"
#include "world/world.h"

namespace tutti::cli {

struct Home {
  std::string folder;

  // Made when it is not there. Refuses one whose sockets would have too long a name.
  static Result<Home> open();
  Result<void> make() const;  // its folder, for nobody but us

  std::string machine_file() const { return folder + "/machine.json"; }
  std::string cluster_folder() const { return folder + "/cluster"; }
  std::string head_folder() const { return folder + "/head"; }
  std::string agent_folder() const { return folder + "/agent"; }
  std::string log_file(std::string_view program) const {
    return folder + "/log/" + std::string(program);
  }
  std::string pid_file(std::string_view program) const {
    return folder + "/" + std::string(program) + "/pid";
  }
  Address head_socket() const { return Address::unix_socket(folder + "/head.sock"); }
  Address agent_socket() const { return Address::unix_socket(agent_folder() + "/agent.sock"); }
};

// More are a slip of the hand.
constexpr uint32_t kMostSlots = 100'000;

// What a machine is in its cluster.
struct Machine {
  std::string cluster;
  std::string name;  // of the host, and its agent
  std::string user;  // who runs it
  bool has_head = false;
  uint32_t slots = 0;     // 0: as many as it has cores
  uint32_t fan_out = 0;   // of the tree, where the head is; 0: the usual
  std::string listen;     // where its ports are: an address, of the head with the API's port
  std::string head_tree;  // addresses of the head; on its own machine known once it ran
  std::string head_api;

  wire::Identity user_identity() const { return {cluster, wire::Role::user, user}; }
};

// Code::not_found when this machine is in no cluster.
Task<Result<Machine>> load_machine(World& world, const Home& home);
Task<Result<void>> save_machine(World& world, const Home& home, Machine machine);

// Who we are to the kernel: our account's name, or its number.
std::string own_user_name(World& world);

// "no cluster is running here; start one with `tutti up`", as an error.
Error no_cluster();

}  // namespace tutti::cli
