// tutti runs: the runs in a folder. Written in Python: python/tutti/runs.py.
#include "cli/runs.h"

#include <string_view>

#include "cli/python_verb.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kHelp = R"(tutti runs: the runs in a folder, and in what they differ

usage: tutti runs [FOLDER] [options]

FOLDER is where runs of `tutti train` and `tutti sweep` are (runs), at any depth. Of each:
whether it runs, is done, has failed, or was interrupted and can be gone on with (--resume); its
last step and losses; how fast it is; when it last recorded something; and the keys of its
configuration in which runs here differ. Where a terminal has no room for all of these, the
least important are left out.

  --sort WHAT   by name, loss, validation (the lowest first) or when (the latest first); by name
                if left out
  --json        all of them, with their whole configurations

examples:
  tutti runs
  tutti runs sweeps/rates --sort validation
  tutti runs --json | jq '.[] | select(.status == "failed") | .why'
)";

}  // namespace

int runs(int argc, char** argv) {
  return hand_over({.name = "runs", .module = "tutti.runs", .help = kHelp}, argc, argv);
}

}  // namespace tutti::cli
