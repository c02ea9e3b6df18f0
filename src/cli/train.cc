// tutti train: a Python file or a program that trains a model, as a gang of workers.
#include "cli/train.h"

#include <fmt/format.h>

#include <span>
#include <string>

#include "cli/complain.h"
#include "cli/run.h"
#include "cli/run_options.h"
#include "cli/table.h"
#include "world/real/terminal.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kHelp = R"(tutti train: train the model of a Python file or a program

usage: tutti train [options] FILE [--KEY=VALUE …]

FILE is a Python script that makes a tutti.Trainer (see examples/gpt.py), or a program; what comes
after it is its own: `tutti train FILE --help` lists its keys. It runs as a gang of supervised
processes, as from `tutti run`, with what is trained in memory that outlives them (the vault).

  --workers N       how many train it together (1); may also stand behind FILE, as --mesh,
                    --restarts and --spares
  --mesh AXES       how they are arranged: dp=4, zero1=4 (moments in shards) or fsdp=4 (weights
                    too) share the data, tp=2 products; dp=2,tp=2 both
  --restarts N      how often in an hour another goes on in the place of a worker that was killed,
                    where that one was (3; 0 for one worker, and with --local)
  --spares N        processes that wait for that, with tutti imported (0)
  --timeout TIME    end it after this long, with exit code 124: 90s, 10m, 1h30m
  --grace TIME      between SIGTERM and SIGKILL when it is ended (5s)
  --env KEY=VALUE   set for it; may be repeated
  --cwd DIR         the folder it starts in
  --json            print events (start, output, exit, verdict) as JSON lines
  --local           on this machine, as a child of this command, cluster or not
  --cluster         as a job of the cluster, or not at all

examples:
  tutti train examples/gpt.py --text=shakespeare.txt --preset=character --out=runs/a
  tutti train examples/gpt.py --text=shakespeare.txt --preset=character --out=runs/a --resume
  tutti train examples/gpt.py --text=shakespeare.txt --lanes=4 --workers 4 --mesh dp=4
  tutti train examples/gpt.py --text=shakespeare.txt --workers 4 --mesh dp=2,tp=2
  tutti train examples/gpt.py --train=train.bin --validation=val.bin --model.layers=6 --json
)";

constexpr uint32_t kRestarts = 3;

// Only a cluster starts a worker again; without one there is one for this run alone.
Result<void> decide_restarts(RunOptions& options) {
  const bool can = !options.local;
  if (!can && (options.restarts.value_or(0) > 0 || options.spares > 0))
    return fail(Code::invalid,
                "with --local nobody is started again: leave out --local, or --restarts and "
                "--spares");
  if (!options.restarts) options.restarts = can && options.ranks > 1 ? kRestarts : 0;
  if (options.spares == 0) return {};
  if (!options.command[0].ends_with(".py"))
    return fail(Code::invalid, "--spares are of Python scripts; {} is a program",
                options.command[0]);
  if (!options.replaces())
    return fail(Code::invalid, "--spares {} have no use: no worker is started again; --restarts 3",
                options.spares);
  return {};
}

// Python of its PATH, so that an environment that is active is used.
constexpr const char* kPython = "python3";

}  // namespace

int train(int argc, char** argv) {
  auto options = parse_train_options(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (!options) return complain("train", options.error(), kCalledWrongly);
  if (options->help) {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (options->command[0].ends_with(".toml"))
    return complain("train",
                    Error(Code::invalid, "a job file is run by `tutti run`, not trained with"),
                    kCalledWrongly);
  if (const auto decided = decide_restarts(*options); !decided)
    return complain("train", decided.error(), kCalledWrongly);
  options->prefix = false;
  if (wants_colour(kStandardOutput) && !options->json)
    options->environment.push_back(
        fmt::format("TUTTI_TERMINAL={}", terminal_size(kStandardOutput).columns));
  if (options->command[0].ends_with(".py"))
    options->command.insert(options->command.begin(), kPython);
  return run_as("train", std::move(*options));
}

}  // namespace tutti::cli
