"""State of a form that is not the one it was made with."""

from fabric_tools import lines_of, ranks


def told(count: int, script: str) -> list[str]:
    caught = "\n".join(f"    {line}" for line in script.strip().splitlines())
    telling = "except tutti.Error as error:\n    print(error.code, error)\n"
    return lines_of(ranks(count, f"try:\n{caught}\n{telling}"))


def test_a_replica_is_opened_with_the_shapes_it_was_made_with() -> None:
    first = 'tutti.vault.Replica(fabric, {"w": (4, 4), "b": (4,)})\n'
    assert told(1, first + first) == []
    for shapes, words in (
        ('{"w": (2, 8), "b": (4,)}', "w [4, 4] where this program has w [2, 8]"),
        ('{"w": (4, 4), "c": (4,)}', "b [4] where this program has c [4]"),
        ('{"w": (4, 4)}', "b [4] where this program has nothing more"),
        ('{"w": (4, 4), "b": (4,), "c": (1,)}', "nothing more where this program has c [1]"),
    ):
        (line,) = told(1, first + f"tutti.vault.Replica(fabric, {shapes})")
        assert "invalid the vault has replica with " + words in line, line
        assert "another name" in line, line


TRAINED = """
model = tutti.vault.Replica(fabric, SHAPES)
for each in model.weights.values(): each[...] = WEIGHT
model.set_born()
for step in model.steps(2):
    for each in model.gradients.values(): each[...] = 1
    model.take_step()
print(model.digest())
"""


def trained(shapes: str, weight: str, count: int = 2) -> list[str]:
    return told(count, TRAINED.replace("SHAPES", shapes).replace("WEIGHT", weight))


def test_replicas_that_begin_with_different_weights_or_shapes_take_no_step() -> None:
    alike = trained('{"w": (4, 4)}', "0.5")
    assert len({line.split()[1] for line in alike}) == 1 and len(alike) == 2
    for line in trained('{"w": (4, 4)}', "rank", 3):
        assert "began with different weights on ranks 0 and 1" in line, line
        assert "before set_born()" in line, line
    for line in trained('{"w": (4, 4) if rank else (2, 8)}', "0.5"):
        assert "different names or shapes by ranks 0 and 1" in line, line


def test_a_step_without_steps_is_compared_too() -> None:
    script = TRAINED.replace("for step in model.steps(2):", "if True:")
    lines = told(2, script.replace("SHAPES", '{"w": (9,)}').replace("WEIGHT", "rank"))
    assert len(lines) == 2 and all("different weights" in line for line in lines), lines
