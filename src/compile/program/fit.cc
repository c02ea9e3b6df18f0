#include "compile/program/fit.h"

#include "compile/passes/passes.h"
#include "compile/passes/rematerialise.h"
#include "compile/program/lower.h"

namespace tutti {

Result<FittedProgram> fit_program(const Graph& graph, int64_t most_bytes) {
  Graph kept = optimize(graph, "remove-unused");
  FittedProgram fitted{.graph = kept};
  TRY(fitted.program, lower_to_program(optimize(kept)));
  std::vector<std::string> recomputed;
  while (fitted.program.arena_bytes > most_bytes) {
    const auto choices = find_recomputations(kept);
    if (choices.empty()) break;
    kept = rematerialise(kept, choices.front());
    recomputed.push_back(choices.front().text);
    TRY(Program smaller, lower_to_program(optimize(kept)));
    if (smaller.arena_bytes >= fitted.program.arena_bytes) continue;
    fitted.program = std::move(smaller);
    fitted.recomputed = recomputed;
    fitted.graph = kept;
  }
  return fitted;
}

}  // namespace tutti
