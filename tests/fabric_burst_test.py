"""Workers that are killed in bursts, and their successors while they start."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fabric_tools import ENVIRONMENT, digests_of, example, start_example
from run_tools import PATIENCE_S, Marked
from run_tools import tutti as run_tutti

STEPS = "2000"
BURSTS = 12
LONGEST_PAUSE_S = 0.3
APART_S = 0.003  # kills of one burst


@pytest.fixture(scope="module")
def undisturbed() -> set[str]:
    done = run_tutti("--local", "-n", "4", "--", *example("--steps", STEPS), env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return digests_of(done.stdout)


def kill_bursts(gang: Marked, running: subprocess.Popen[str], chance: random.Random) -> int:
    killed = 0
    for _ in range(BURSTS):
        time.sleep(chance.uniform(0, LONGEST_PAUSE_S))
        # Ranks and spares, also those that have not begun to work yet.
        living = [int(line.split()[0]) for line in gang.living() if "mlp_numpy" in line]
        for pid in chance.sample(living, min(len(living), chance.randint(1, 3))):
            if running.poll() is not None:
                return killed
            with contextlib.suppress(ProcessLookupError):  # it had been told to end
                os.kill(pid, signal.SIGKILL)
                killed += 1
            time.sleep(chance.uniform(0, APART_S))
    return killed


@pytest.mark.parametrize("seed", range(3))
def test_the_example_loses_no_step_in_bursts_of_kills(
    gang: Marked, tmp_path: Path, undisturbed: set[str], seed: int
) -> None:
    with start_example(gang, tmp_path, STEPS, spares=2) as running:
        killed = kill_bursts(gang, running, random.Random(seed))
        output, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0 and killed > 0, output
    assert digests_of(output) == undisturbed, output
