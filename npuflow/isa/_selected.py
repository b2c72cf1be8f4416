"""Which row of a table an index means: the same in all commands that take indices from memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled


def rows_meant(index: npt.NDArray[Any], entries: int, wrap: int) -> npt.NDArray[np.int64]:
    """`wrap` is added to a negative index; the last row stands for whatever is still outside."""
    at = index.astype(np.int64)
    at = np.where(at < 0, at + wrap, at)
    return np.where((at < 0) | (at >= entries), entries - 1, at)


@compiled
def row_meant(index, entries, wrap):  # type: ignore[no-untyped-def]
    at = np.int64(index)
    if at < 0:
        at += wrap
    return entries - 1 if at < 0 or at >= entries else at
