// tutti ir: what becomes of a model on its way to a program. Written in Python, as models are:
// python/tutti/ir.py.
#include "cli/ir.h"

#include <string_view>

#include "cli/python_verb.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kHelp = R"(tutti ir: what becomes of a model on its way to a program

usage: tutti ir FILE [options] [--KEY=VALUE …]
       tutti ir                              list the passes, and the steps to a program

FILE is a Python script that makes a tutti.Trainer: the graph of its step is shown, for the
configuration that is given; nothing is compiled or trained. Or it is a graph's text, as this
command prints it.

  --after PASS     the graph after this pass, all if left out; `traced` is before the first. Of
                   the last ones, from memory-plan on, the program. Given twice: the difference
                   between the two, but for numbers of values
  --program        the instructions that are executed, and where their buffers are
  --scratch=SIZE   with so much computed again that a step works in no more memory than this, if
                   that can be had; the pass `rematerialise`
  --mesh AXES      the step of every rank of a mesh: dp=2,tp=2; the pass `shard`
  --rules RULES    which axes split what, before what axes mean by their names: vocab=tp,time=
  --rank N         the graph of this rank, of which slices are its own
  --reshard-limit=SIZE  refuse to gather an operand to more than this; 1GiB if left out

examples:
  tutti ir examples/gpt.py --after traced --text=shakespeare.txt --preset=character
  tutti ir step.ir --after simplify-again --after fuse
  tutti ir step.ir --program
  tutti ir step.ir --mesh dp=2,tp=2 --after shard
  tutti ir step.ir --scratch=20MiB --after remove-unused --after rematerialise
)";

}  // namespace

int ir(int argc, char** argv) {
  return hand_over({.name = "ir", .module = "tutti.ir", .help = kHelp, .has_file = true}, argc, argv);
}

}  // namespace tutti::cli
