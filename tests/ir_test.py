"""tutti ir, and the walk of docs/compiler-walk.md, which is what it prints.

TUTTI_UPDATE=1 writes the page anew.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/compiler-walk.md"
SMALL = "examples/small.py"

WORDS = {
    "traced": (
        "What the model's code and its gradient are, with AdamW: one graph for the whole step. The"
        " two blocks are one `repeat`; their weights are one tensor with a dimension `layer`, and"
        " what the gradient needs of each round is kept, stacked. The gradient is a second `repeat`"
        " that goes from the last round to the first. Every operation has the line that asked for"
        " it."
    ),
    "expand": "Larger operations without kernels of their own are written in primitives.",
    "simplify": "Arithmetic with 0 and 1 and of constants is done; divisions become products.",
    "merge-equal": "What is computed twice is computed once.",
    "join-losses": "The gradient of the loss comes first, and gives the loss as well.",
    "join-pads": "Nothing here: gradients of slices would be put side by side instead of added.",
    "remove-unused": "What nobody reads is not computed, nor carried through rounds.",
    "join-gradients": (
        "The gradient of an input and those of weights that follow from the same, which a schedule"
        " could have apart, are one operation where both are wanted."
    ),
    "sink-sums": "Nothing here: with several atoms, sums of gradients would go into the rounds.",
    "simplify-again": "Nothing that was not seen before.",
    "fuse": "What lies between products and norms becomes loops: `fused`, with a body of its own.",
    "remove-unused-again": "Constants that went into loops are not needed outside any more.",
}

STEPS = {
    "memory-plan": (
        "Instructions over inputs, outputs and one arena, in which everything has its place; the"
        " rounds one after the other, over the same kernels, which are printed as C. A product with"
        " an edge (`then`) does what follows to its blocks while they are in the cache."
    ),
    "schedule": (
        "`beside 2` says that a thread may begin while others are still busy with the two"
        " instructions before; without it all have to be done. Products that run beside each other"
        " pack what all threads read in a `room` of their own."
    ),
    "packing": (
        "Nothing here: weights that products with few rows read several times, as those of several"
        " atoms do, would stay packed, as panels."
    ),
}


def tutti_ir(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tutti.ir", *words], cwd=ROOT, capture_output=True, text=True
    )


def shown(*words: str) -> str:
    done = tutti_ir(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def walk() -> str:
    passes = shown().split()
    assert passes == [*WORDS, *STEPS]
    page = (
        "# A small model on its way to a program\n\n"
        "[examples/small.py](../examples/small.py) has words of 4 numbers, two blocks and a tied"
        " head. Here is what [the compiler](compiler.md) makes of a step of its training, pass by"
        " pass; `tutti ir` shows the same of any model. A test holds this page to what it prints.\n"
    )
    before = previous = ""
    for name in passes:
        after = shown("--after", name, SMALL)
        page += f"\n## {name}\n\n{(WORDS | STEPS)[name]}\n"
        if name in ("traced", "memory-plan"):
            page += f"\n```\n$ tutti ir --after {name} {SMALL}\n{after}```\n"
        elif after != before:
            change = shown("--after", previous, "--after", name, SMALL)
            command = f"$ tutti ir --after {previous} --after {name} {SMALL}"
            page += f"\n```diff\n{command}\n{change}```\n"
        before, previous = after, name
    assert shown("--program", SMALL) == before
    return page


def test_page_is_what_the_compiler_does() -> None:
    page = walk()
    if os.environ.get("TUTTI_UPDATE"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


def test_text_reads_back(tmp_path: Path) -> None:
    graph = tmp_path / "step.ir"
    graph.write_text(shown("--after", "traced", SMALL))
    assert shown("--after", "fuse", str(graph)) == shown("--after", "fuse", SMALL)
    assert shown("--program", str(graph)) == shown("--program", SMALL)


def test_any_text_goes_on_to_the_same_program(tmp_path: Path) -> None:
    program = shown("--program", SMALL)
    for name in ("simplify-again", "fuse", "remove-unused-again"):
        graph = tmp_path / f"{name}.ir"
        graph.write_text(shown("--after", name, SMALL))
        assert shown("--program", str(graph)) == program
        assert shown(str(graph)) == shown(SMALL)


def test_with_little_scratch_values_are_computed_again() -> None:
    names = shown().split()
    names.insert(names.index("remove-unused") + 1, "rematerialise")
    assert shown("--scratch=1MiB").split() == names
    kept = shown("--after", "remove-unused", SMALL)
    assert shown("--scratch=1MiB", "--after", "rematerialise", SMALL) == kept
    assert shown("--scratch=1KiB", "--after", "remove-unused", SMALL) == kept
    again = shown("--scratch=1KiB", "--after", "rematerialise", SMALL)
    assert "kept4" in kept
    assert "kept4" not in again

    def arena(text: str) -> int:
        return int(text.splitlines()[0].split()[-2])

    less = arena(shown("--scratch=1KiB", "--after", "memory-plan", SMALL))
    assert less < arena(shown("--after", "memory-plan", SMALL))


def test_a_mesh_shards_the_step_before_other_passes(tmp_path: Path) -> None:
    mesh = ["--mesh=dp=2,tp=2", "--rules=time="]
    assert shown(*mesh).split()[:3] == ["traced", "shard", "expand"]
    assert shown("--after=traced", *mesh, SMALL) == shown("--after=traced", SMALL)
    whole = shown("--after=shard", *mesh, SMALL)
    heading, *rest = whole.splitlines()
    assert heading == "# mesh dp=2,tp=2 by time=,batch=dp,heads=tp,hidden=tp"
    assert "# blocks.*.up.weight: f32[layer=2, embed=4, hidden=8/tp]" in rest
    assert 'all_reduce(%4) {axis="tp", ranks=2}' in whole
    graph = tmp_path / "step.ir"
    graph.write_text(whole)
    assert shown("--after=fuse", str(graph)) == shown("--after=fuse", *mesh, SMALL)


def test_the_graph_of_one_rank_has_its_own_slices() -> None:
    gpt = ["examples/gpt.py", "--preset=character", "--text=LICENSE", "--model.layers=1"]
    ranks = [shown("--mesh=tp=2", "--after=shard", f"--rank={rank}", *gpt) for rank in (0, 1)]
    assert "own_slice" in shown("--mesh=tp=2", "--after=shard", *gpt)
    for rank, text in enumerate(ranks):
        assert "own_slice" not in text
        assert f'slice(%1) {{dim="time", size=32, start={32 * rank}}}' in text
    program = shown("--mesh=tp=2", "--after=schedule", "--rank=1", *gpt)
    for call in ("all_reduce", "all_gather", "reduce_scatter"):
        assert f'call="{call}"' in program


def test_configuration_goes_to_the_script() -> None:
    words = ["--preset=character", "--model.layers=3", "--text=LICENSE"]
    before = shown("--after", "traced", "examples/gpt.py", *words)
    assert "layer=3," in before
    assert shown("examples/gpt.py", *words, "--after", "traced") == before


def test_differences_are_of_operations_not_of_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "step.ir"
    file.write_text(
        """graph g(%x: f32[n=2]) {
  %0 = constant() {value=1.0} : f32[n=2]
  %1 = mul(%x, %0) : f32[n=2]
  %2 = exp(%1) : f32[n=2]
  %3 = exp(%x) : f32[n=2]
  %4 = add(%2, %3) : f32[n=2]
  return %4 as "y"
}
"""
    )
    assert shown(str(file), "--after=simplify", "--after=merge-equal") == (
        """--- simplify
+++ merge-equal
@@ -1,6 +1,5 @@
 graph g(%x: f32[n=2]) {
   %0 = constant() {value=1.0} : f32[n=2]
-  %1 = exp(%x) : f32[n=2]
   %1 = exp(%x) : f32[n=2]
   %2 = add(%1, %1) : f32[n=2]
   return %2 as "y"
"""
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--after", "fuze", SMALL], "there is no pass fuze; did you mean fuse?"),
        (["--after", "fuse"] * 3 + [SMALL], "--after can be given once, or twice"),
        (["README.md", "--afer=fuse"], "there is no option --afer=fuse for a graph's text"),
        (["--scratch=much", SMALL], "much"),
        (["--rank=0", SMALL], "--rank is of a mesh: give --mesh=dp=2,tp=2 as well"),
        (["--mesh=dp", SMALL], "mesh dp: `dp` is no axis with its size"),
        (["--mesh=dp=2", "--rules=time=", "--rank=2", SMALL], "rank 2 is none of mesh dp=2; use 0"),
        (["--mesh=dp=2", "--rules=bach=dp", SMALL], "did you mean batch?"),
        (["--mesh=tp=3", SMALL], "hidden=8 of state blocks.*.up.weight does not divide by the 3"),
        (["nothing.ir"], "cannot read nothing.ir"),
        (["README.md"], "README.md:3:5: expected `graph`"),
    ],
)
def test_mistakes_are_told(words: list[str], said: str) -> None:
    done = tutti_ir(*words)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_without_a_trainer(tmp_path: Path) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("x = 1\n")
    done = tutti_ir(str(script))
    assert done.returncode == 1
    assert "nothing.py ended without making a tutti.Trainer" in done.stderr
