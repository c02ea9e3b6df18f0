// tutti sweep: many experiments with one script. Written in Python: python/tutti/sweep.py.
#include "cli/sweep.h"

#include <string>
#include <string_view>

#include "cli/python_verb.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kHelp = R"(tutti sweep: many experiments side by side

usage: tutti sweep [options] FILE [--KEY=VALUE[,VALUE…] …]

FILE is a Python script that calls tutti.configure and makes a tutti.Trainer (see examples/gpt.py).
Every combination of the values of its keys is trained, each as by `tutti train`, in a folder of its
own. A key may be called by its end, where no other ends so: `rate` or `lr` for optim.rate.rate.
0..3 is 0,1,2,3. What is wrong with a key or value is told before anything runs.

The same command again goes on: what is done is left, what was interrupted goes on from what it
saved, what failed is tried again. Experiments that fail are named, and the others go on.

  --parallel N      so many at once (1); also behind FILE, as are the next four
  --out DIR         the folder of the sweep (runs/NAME-sweep, by the name of FILE)
  --workers N       how many train one experiment together
  --mesh AXES       how these are arranged: dp=2
  --json            print events (start, begin, end, finish) as JSON lines
  --timeout TIME    end an experiment after this long; it has failed then
  --grace TIME, --env KEY=VALUE, --local, --cluster
                    as of `tutti train`

The exit code is 0 when all are done, 1 when one failed, 2 when called wrongly.

examples:
  tutti sweep examples/gpt.py --text=a.txt --lr 1e-4,3e-4 --seed 0..3 --parallel 2
  tutti sweep examples/gpt.py --text=a.txt --preset=character --layers=2,4 --out=runs/depth
  tutti runs runs/depth --sort validation
)";

}  // namespace

int sweep(int argc, char** argv) {
  return hand_over({.name = "sweep",
                    .module = "tutti.sweep",
                    .help = kHelp,
                    .has_file = true,
                    .first = {"--tutti=" + own_program().value_or("tutti")}},
                   argc, argv);
}

}  // namespace tutti::cli
