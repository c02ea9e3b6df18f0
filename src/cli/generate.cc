// tutti generate: text from a model that was trained. What it does is written in Python, as models
// are: python/tutti/generate.py.
#include "cli/generate.h"

#include <string_view>

#include "cli/python_verb.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kHelp = R"(tutti generate: text from a model that was trained

usage: tutti generate [options] RUN

RUN is the folder of a run of `tutti train` (its --out). Text is printed as it comes, and how fast
it came on standard error.

  --prompt TEXT        what the text begins with; may be repeated: all go on at once
  --prompt-file FILE   the same, out of a file
  --prompt-tokens LIST numbers of tokens instead: 15,1036,7
  --tokens N           make so many at most (200)
  --temperature T      0: always the likeliest; 1: as likely as the model says (0.8)
  --top-k N            choose among the N likeliest only; 0: among all (0)
  --top-p P            among the likeliest that together have this probability (1)
  --seed N             the same seed makes the same text (0)
  --stop TEXT          end where this token comes; may be repeated
  --context N          see so many tokens at most; as many as were trained with if left out
  --keep N             take so many along when the context is full: half of it if left out; all of
                       it is nanoGPT's way, and slow; 0: end there
  --threads N          compute with so many; as many as cores if left out
  --json               print events (token, end, rate) as JSON lines

examples:
  tutti generate runs/a --prompt "ROMEO:" --tokens 400 --seed 1
  tutti generate runs/a --prompt "Once" --prompt "Never" --temperature 0 --json
)";

}  // namespace

int generate(int argc, char** argv) {
  return hand_over({.name = "generate", .module = "tutti.generate", .help = kHelp}, argc, argv);
}

}  // namespace tutti::cli
