"""Arrays that lie in files: pages that were read once need not stay in memory."""

from __future__ import annotations

import mmap
from tempfile import TemporaryFile
from typing import Any

LARGE = 1 << 24  # bytes from which an array that is kept may lie in a file


def forget(array: Any) -> None:
    """Let go of the pages of a mapped array; they are read again if they are needed.
    Nothing happens to other arrays."""
    base = mapped_by(array)
    if base is not None and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def spilled(array: Any, least: int = LARGE) -> Any:
    """The same numbers, read-only; those of `least` bytes and more are mapped from a temporary file that goes
    with the array. What is mapped already stays as it is, and so does what the disk has no room for.
    """
    import numpy as np

    if array.nbytes < max(least, 1) or array.dtype.hasobject or mapped_by(array) is not None:
        return array
    own = np.ascontiguousarray(array)
    try:
        with TemporaryFile(prefix="npuflow-") as file:
            file.write(own.reshape(-1).view(np.uint8).data)
            file.flush()
            held = mmap.mmap(file.fileno(), own.nbytes, access=mmap.ACCESS_READ)
    except OSError:
        return array
    return np.frombuffer(held, own.dtype).reshape(array.shape)


def mapped_by(array: Any) -> mmap.mmap | None:
    """What an array is mapped by, if it is."""
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return base
