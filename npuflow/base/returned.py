"""Memory that goes back to the system: an allocator keeps what was freed, so that a process grows."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

MUCH = 1 << 28                            # bytes that are worth a fraction of a second


class Returned:
    """Memory of this process that goes back to the system between two steps, or behind a part of one that
    took much. `held`: what was left the last time."""

    held = 0

    def give_back(self, much: int = MUCH) -> None:
        """Collect cycles, and return what the allocator keeps, where the process has grown by so many bytes.
        What is returned has to be mapped again by who needs it next."""
        if present() < self.held + much:
            return
        gc.collect()
        with suppress(OSError, AttributeError):    # another allocator than glibc's
            ctypes.CDLL(None).malloc_trim(0)
        self.held = present()


RETURNED = Returned()


def present() -> int:
    """The memory that this process has now that lies in no file; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0
