"""tutti.Error as a person sees it who runs a script."""

import os
import subprocess
import sys
from pathlib import Path

from model_tools import ROOT

SCRIPT = """\
import tutti
from tutti import nn

class Model(nn.Module):
    def __call__(self, x):
        return x + nn.arange(a=4) if x.size("a") == 4 else x.relu()

def main(size):
    nn.trace(Model(), x=nn.f32(a=size))

main(SIZE)
"""


def error_of(tmp_path: Path, size: int) -> list[str]:
    file = tmp_path / "small.py"
    file.write_text(SCRIPT.replace("SIZE", str(size)))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    words = [sys.executable, file]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_a_mistake_ends_a_script_with_its_own_lines_alone(tmp_path: Path) -> None:
    lines = error_of(tmp_path, 4)
    places = [line.rpartition(", line ")[2] for line in lines if line.startswith("  File ")]
    assert places == ["11, in <module>", "9, in main", "6, in __call__"]
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("tutti.Error: small.py:6: add: f32[a=4] and i32[a=4] are of diff")


def test_other_exceptions_are_shown_whole(tmp_path: Path) -> None:
    lines = error_of(tmp_path, 3)
    assert lines[-1] == "AttributeError: Tensor has no attribute relu; use nn.relu(x)"
    assert any("_tensor.py" in line for line in lines)
