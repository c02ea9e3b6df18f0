import os
import signal
from collections.abc import Iterator

import pytest
from run_tools import Marked


@pytest.fixture
def gang() -> Iterator[Marked]:
    mark = Marked()
    yield mark
    left = mark.living()
    for line in left:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    assert not left
