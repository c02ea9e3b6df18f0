#include "cli/verbs.h"

#include <fmt/format.h>

#include <string>

#include "base/version.h"
#include "cli/agent.h"
#include "cli/generate.h"
#include "cli/head.h"
#include "cli/ir.h"
#include "cli/jobs.h"
#include "cli/join.h"
#include "cli/keeper.h"
#include "cli/plot.h"
#include "cli/record.h"
#include "cli/run.h"
#include "cli/runs.h"
#include "cli/sim.h"
#include "cli/status.h"
#include "cli/sweep.h"
#include "cli/top.h"
#include "cli/train.h"
#include "cli/up.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kExamples = R"(
examples:
  tutti run -n 4 -- python train.py        start four ranks, as torchrun would
  tutti train examples/gpt.py --help       train a model: what can be said about it
  tutti up                                 make this machine a cluster that runs jobs
  tutti help run                           all about one command
)";

int overview() {
  fmt::print(
      "tutti: many computers train one model as if they were one\n\nusage: tutti COMMAND\n\n");
  for (const Verb& verb : all_verbs()) {
    if (!verb.summary.empty()) fmt::print("  {:<10} {}\n", verb.name, verb.summary);
  }
  fmt::print("{}", kExamples);
  return 0;
}

// `tutti help run` is `tutti run --help`, for every verb that has more to say than its summary.
int help(int argc, char** argv) {
  if (argc < 2) return overview();
  for (const Verb& verb : all_verbs()) {
    if (verb.name != argv[1] || verb.name == "help") continue;
    std::string word = "--help";
    char* words[] = {argv[0], word.data(), nullptr};
    return verb.main(2, words);
  }
  return overview();
}

int version(int, char**) {
  fmt::print("tutti {}\n", kVersion);
  return 0;
}

constexpr Verb kVerbs[] = {
    {"run", "start a gang of processes, or a job file, and end it as one", run},
    {"train", "train the model of a Python file or a program", train},
    {"sweep", "train with every combination of some values, side by side", sweep},
    {"runs", "show the runs in a folder, and in what they differ", runs},
    {"plot", "draw what runs recorded, on the terminal or as a picture", plot},
    {"generate", "text from a model that was trained", generate},
    {"ir", "show what becomes of a model on its way to a program", ir},
    {"submit", "the same as a job of the cluster, without waiting for it", submit},
    {"jobs", "show the jobs of the cluster", jobs},
    {"ps", "show the processes of its jobs", ps},
    {"top", "watch the cluster and its jobs, live", top},
    {"stuck", "show what a job waits for, and who holds it up", stuck},
    {"kill", "end a job", kill},
    {"signal", "send a signal to the processes of a job", signal},
    {"up", "start a cluster on this machine, in the background", up},
    {"status", "show the cluster and its hosts", status},
    {"token", "let another machine join the cluster", token},
    {"join", "make this machine a member of a cluster", join},
    {"forget", "remove a host that has left for good from the cluster", forget},
    {"down", "end what runs on this machine in the background", down},
    {"sim", "run a scenario on simulated machines", sim},
    {"record", "read what processes left in their flight recorders", record},
    {"help", "show this list, or all about one command", help},
    {"version", "print the version", version},
    {"head", "", head},
    {"agent", "", agent},
    {"keeper", "", keeper},
};

}  // namespace

std::span<const Verb> all_verbs() { return kVerbs; }

}  // namespace tutti::cli
