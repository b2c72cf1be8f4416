"""Memory as stages declare it and as the machine has it: how many steps may run at once."""

from __future__ import annotations

import gc
import os
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from npuflow.base.returned import MUCH, RETURNED

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
SHARE = 24                  # of the machine's memory: growth after which a step gives back what others freed
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def size(text: str) -> int:
    """The bytes of "4GB", "512 MiB" or "2.5g"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if match is None or match[2] == "i":
        raise ValueError(f'"{text}" is no amount of memory; "4GB" or "512MiB" is')
    return int(float(match[1]) * _UNITS[match[2]])


def shown(number: int) -> str:
    """An amount of memory as people say it."""
    return f"{number / 1e9:.3g} GB" if number >= 10**9 else f"{number / 1e6:.3g} MB"


def machine() -> int:
    """What the processes of this machine, or of this container, may take together."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # no such control group, or no limit in it ("max")
            found = min(found, int(Path(path).read_text()))
    return found


_machine = cache(machine)


def collect_rarely() -> None:
    """Look for reference cycles after every 10,000 new objects, not after 700: steps make millions of small
    objects and hardly a cycle. All objects are still looked at after a million: a cycle may hold arrays."""
    gc.set_threshold(10_000, 10, 10)


def between_steps() -> None:
    """What a process does for its memory before a step."""
    collect_rarely()
    RETURNED.give_back(max(MUCH, _machine() // SHARE))


def peak() -> int:
    """The most that this process has had in memory at once; 0 where the system does not say."""
    with suppress(ImportError):
        import resource

        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found if sys.platform == "darwin" else found * 1024
    return 0


class MemoryBudget:
    """The tasks that run, by name, and the memory that they have claimed of what there is."""

    def __init__(self, whole: int) -> None:
        self.whole = whole
        self.tasks: set[str] = set()
        self._taken: dict[str, int] = {}

    def fits(self, need: int) -> bool:
        """Whether a task may start now. One that needs more than there is runs when no other claims any."""
        return not need or not self._taken or sum(self._taken.values()) + need <= self.whole

    def take(self, name: str, need: int) -> None:
        self.tasks.add(name)
        if need:
            self._taken[name] = need

    def give(self, name: str) -> None:
        self.tasks.discard(name)
        self._taken.pop(name, None)
