"""docs/parallelism.md: what it says tutti ir prints. TUTTI_UPDATE=1 writes that anew."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/parallelism.md"


def test_page_is_what_tutti_ir_prints(tmp_path: Path) -> None:
    page = PAGE.read_text()
    graph = re.search(r"```\n(graph mlp.*?)```", page, re.DOTALL)
    assert graph is not None
    (tmp_path / "mlp.ir").write_text(graph[1])
    commands = 0

    def ran(block: re.Match[str]) -> str:
        nonlocal commands
        commands += 1
        command = [sys.executable, "-m", "tutti.ir", *block[1].split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return f"```\n$ tutti ir {block[1]}\n{done.stdout}{done.stderr}```"

    made = re.sub(r"```\n\$ tutti ir (.*?)\n.*?```", ran, page, flags=re.DOTALL)
    assert commands == 4
    if os.environ.get("TUTTI_UPDATE"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made
