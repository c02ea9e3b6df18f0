// tutti plot: what runs recorded, as curves. Written in Python: python/tutti/plot.py.
#include "cli/plot.h"

#include <string_view>

#include "cli/python_verb.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kHelp = R"(tutti plot: what runs recorded, as curves

usage: tutti plot RUN [RUN …] [options]

RUN is the folder of a run, or one with several. Curves are drawn on the terminal, or into a
picture; of more runs than can be told apart, those with the lowest loss.

  --metric NAME   loss (if left out), validation, rate, norm, tokens/s, of_peak, memory_bytes, or
                  another key of the records
  --log           on a logarithmic scale
  --png FILE      a picture instead, for which Pillow has to be there
  --json          the points instead

examples:
  tutti plot runs/a
  tutti plot runs/a runs/b --metric validation --log
  tutti plot sweeps/rates --png rates.png
)";

}  // namespace

int plot(int argc, char** argv) {
  return hand_over({.name = "plot", .module = "tutti.plot", .help = kHelp}, argc, argv);
}

}  // namespace tutti::cli
