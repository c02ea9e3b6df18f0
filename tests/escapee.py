"""Starts processes that try to outlive their job in every way an ordinary user has.

Each writes its number and its start to the file that is named first, before it goes into hiding.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
GENERATIONS = 2000
BOMB_DEPTH = 5

BOOK = sys.argv[1]
libc = ctypes.CDLL(None)


def write_down() -> None:
    started = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    book = os.open(BOOK, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(book, f"{os.getpid()} {started}\n".encode())
    os.close(book)


def ignore_signals() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


def sleep_nameless() -> None:
    """As another program, with no environment, no files, and a name of the kernel's."""
    write_down()
    ignore_signals()
    os.closerange(0, 1024)
    os.execve("/bin/sleep", ["[kworker/0:1]", "1000"], {})


def daemon() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0)
    sleep_nameless()


def nohup() -> None:
    write_down()
    os.execvp("nohup", ["nohup", "sleep", "1000"])


def other_group() -> None:
    os.setpgid(0, 0)
    libc.prctl(PR_SET_NAME, b"rank-keeper")
    libc.prctl(PR_SET_DUMPABLE, 0)
    write_down()
    ignore_signals()
    time.sleep(1000)


def own_reaper() -> None:
    """Keeps its orphans to itself."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(PR_SET_PDEATHSIG, 0)
    write_down()
    ignore_signals()
    if os.fork() == 0:
        daemon()
    time.sleep(1000)


def runaway() -> None:
    """Is always another process than the one that was just seen."""
    ignore_signals()
    for _ in range(GENERATIONS):
        if os.fork():
            os._exit(0)
        os.setsid()
        write_down()
        time.sleep(0.001)
    time.sleep(1000)


def bomb(depth: int = BOMB_DEPTH) -> None:
    ignore_signals()
    for _ in range(depth):
        if os.fork() == 0:
            write_down()
            bomb(depth - 1)
    time.sleep(1000)


def start(way: Callable[[], None]) -> None:
    if os.fork() == 0:
        way()


for way in (daemon, nohup, other_group, own_reaper, runaway, bomb):
    start(way)
# Whoever could have hidden has, once all of the bomb has gone off.
while len(Path(BOOK).read_text().splitlines() if Path(BOOK).exists() else []) < 200:
    time.sleep(0.01)
Path(BOOK + ".hidden").touch()
if sys.argv[2] == "finish":
    os._exit(0)
ignore_signals()
time.sleep(1000)
