"""A worker that does nothing but count steps, and tells how far it is in its control page.

tutti submit examples/jobs/steps.toml; tutti top
"""

import itertools
import os
import time

from tutti import control

page = control.page()
print(f"worker {os.environ['RANK']} of {os.environ['WORLD_SIZE']} begins", flush=True)
for step in itertools.count(1):
    until = time.monotonic() + 0.05
    while time.monotonic() < until:  # the work
        pass
    time.sleep(0.2)
    if page is not None:
        page.step = step
        page.progress()
