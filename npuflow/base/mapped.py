"""Arrays that lie in files: pages that were read once need not stay in memory."""

from __future__ import annotations

import mmap
from typing import Any


def forget(array: Any) -> None:
    """Let go of the pages of a mapped array; they are read again if they are needed.
    Nothing happens to other arrays."""
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
