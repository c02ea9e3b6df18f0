"""The page through which a rank is told of epochs and deaths, and tells how far it is.

    page = tutti.control.page()  # None outside of a job
    epoch = page.epoch
    for step in steps:
        if page.over(epoch):  # cheap: look as often as you like
            raise Restart(page.lost(epoch))
        page.step = step
        page.progress()

docs/control-page.md is the manual, include/tutti/control_page.h the same for C.
"""

import ctypes
import errno
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Set

from tutti._error import Error

__all__ = ["Page", "RankSet", "page"]

MAGIC = 0x4C544354  # "TCTL"
PAGE_BYTES = 1024
MAX_RANGES = 112
# Looks at a set that is being written; a writer that died within its write is not waited for.
LOOKS = 2000

FUTEX_WAIT = 0
FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98}


class RankSet(Set[int]):
    """A set of ranks, kept as ranges: 3 in ranks, len(ranks), ranks == {3, 4}."""

    def __init__(self, ranges: tuple[range, ...] = (), truncated: bool = False) -> None:
        self.ranges = ranges
        self.truncated = truncated  # there are more than these

    def __contains__(self, rank: object) -> bool:
        return any(rank in ranks for ranks in self.ranges)

    def __iter__(self) -> Iterator[int]:
        return (rank for ranks in self.ranges for rank in ranks)

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def __repr__(self) -> str:
        parts = [f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in self.ranges]
        return f"<ranks {', '.join([*parts, '…'] if self.truncated else parts) or 'none'}>"

    @classmethod
    def _from_iterable(cls, ranks) -> Set[int]:
        return frozenset(ranks)


class _Layout(ctypes.LittleEndianStructure):
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("layout", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("reserved_0", ctypes.c_uint32),
        ("epoch", ctypes.c_uint64),
        ("aborted", ctypes.c_uint64),
        ("word", ctypes.c_uint32),
        ("sequence", ctypes.c_uint32),
        ("dead_count", ctypes.c_uint32),
        ("dead_truncated", ctypes.c_uint32),
        ("returned_count", ctypes.c_uint32),
        ("reserved_1", ctypes.c_uint32),
        ("reserved_3", ctypes.c_uint64),
        ("progress", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("phase", ctypes.c_uint32),
        ("pid", ctypes.c_int32),
        ("record_offset", ctypes.c_uint64),
        ("record_bytes", ctypes.c_uint32),
        ("record_brief", ctypes.c_uint32),
        ("lifeline", ctypes.c_uint32),
        ("reserved_4", ctypes.c_uint32),
        ("reserved_2", ctypes.c_uint64 * 2),
        ("dead", ctypes.c_uint64 * MAX_RANGES),
    )


class Page:
    """A rank's control page, mapped. Any thread may use it."""

    def __init__(self, fd: int, offset: int) -> None:
        skipped = offset % mmap.ALLOCATIONGRANULARITY
        self._memory = mmap.mmap(fd, skipped + PAGE_BYTES, offset=offset - skipped)
        self._page = _Layout.from_buffer(self._memory, skipped)
        self._dead_at = skipped + _Layout.dead.offset
        self._lock = threading.Lock()  # of those who count
        if self._page.magic != MAGIC:
            raise Error(f"there is no control page at {offset} of descriptor {fd}", "corrupt")
        self._page.pid = os.getpid()

    @property
    def rank(self) -> int:
        return self._page.rank

    @property
    def epoch(self) -> int:
        """The present epoch: term << 32 | counter."""
        return self._page.epoch

    @property
    def aborted(self) -> bool:
        """Whether the present epoch is over."""
        return self.over(self._page.epoch)

    def over(self, epoch: int) -> bool:
        """Whether that epoch is over: whoever works or waits in it stops."""
        return self._page.aborted >= epoch

    @property
    def dead(self) -> RankSet:
        """Those who have died and are not in the present epoch, at one moment."""
        return self.lost(2**64 - 1)

    def lost(self, epoch: int) -> RankSet:
        """Those who were lost to whoever is in that epoch: the dead, and who is back in a later."""
        page = self._page
        for look in range(LOOKS + 1):
            before = page.sequence
            if before & 1 and look < LOOKS:
                continue
            count = min(page.dead_count, MAX_RANGES)
            returned = min(page.returned_count, (MAX_RANGES - count) // 2)
            words = struct.unpack_from(f"<{MAX_RANGES}Q", self._memory, self._dead_at)
            truncated = page.dead_truncated != 0
            if page.sequence == before:
                break
        packed = list(words[:count])
        for i in range(1, returned + 1):
            since, ranks = words[MAX_RANGES - 2 * i : MAX_RANGES - 2 * i + 2]
            packed += [ranks] if since > epoch else []
        pairs = sorted((ranks & 0xFFFFFFFF, ranks >> 32) for ranks in packed)
        apart: list[range] = []
        for first, last in pairs:
            if apart and first <= apart[-1].stop:
                apart[-1] = range(apart[-1].start, max(apart[-1].stop, last + 1))
            else:
                apart.append(range(first, last + 1))
        return RankSet(tuple(apart), truncated)

    @property
    def step(self) -> int:
        return self._page.step

    @step.setter
    def step(self, step: int) -> None:
        self._page.step = step

    @property
    def phase(self) -> int:
        return self._page.phase

    @phase.setter
    def phase(self, phase: int) -> None:
        self._page.phase = phase

    def progress(self) -> None:
        """Say that this rank got somewhere: one that is silent for long may be taken for hung."""
        with self._lock:
            self._page.progress += 1

    @property
    def word(self) -> int:
        """Changes whenever the epoch, what is over or the dead change; see wait()."""
        return self._page.word

    def wait(self, seen: int, timeout: float | None = None) -> bool:
        """Sleep until the word is no longer the one that was seen; False when the time is up.

        May return early for no reason: look again.
        """
        number = FUTEX_SYSCALL.get(os.uname().machine)
        if number is None:
            raise Error(f"cannot wait on {os.uname().machine}", "unsupported")
        libc = ctypes.CDLL(None, use_errno=True)
        limit = None
        if timeout is not None:
            limit = struct.pack("@qq", int(timeout), int(timeout % 1 * 1e9))
        word = ctypes.byref(self._page, _Layout.word.offset)
        done = libc.syscall(number, word, FUTEX_WAIT, ctypes.c_uint32(seen), limit, None, 0)
        return done == 0 or ctypes.get_errno() != errno.ETIMEDOUT


_found: Page | None = None


def page() -> Page | None:
    """This process's page; None outside of a job, and in a spare that has no rank yet."""
    global _found
    if _found is None:
        fd = os.environ.get("TUTTI_CONTROL_FD")
        offset = os.environ.get("TUTTI_CONTROL_OFFSET")
        if fd is None or offset is None:
            return None
        try:
            _found = Page(int(fd), int(offset))
        except (OSError, ValueError) as error:
            raise Error(f"cannot map the control page: {error}", "invalid") from error
    return _found
