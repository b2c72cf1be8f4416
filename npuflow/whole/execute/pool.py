"""Arrays that values take turns in."""

from __future__ import annotations

import numpy as np

from npuflow.ir.types import Array


class Pool:
    """Arrays of bytes for a batch; what is given back serves again, unless everything is to stay readable."""

    def __init__(self, batch: int, keep: bool) -> None:
        self.batch, self.keep = batch, keep
        self._free: list[Array] = []
        self._lent: list[tuple[Array, Array]] = []           # what was taken, and the bytes that it lies in

    def take(self, dtype: str, size: int) -> Array:
        """An array with so many elements for every sample."""
        need = self.batch * size * np.dtype(dtype).itemsize
        fits = [a for a in self._free if need <= a.size <= 4 * need]
        if fits:
            whole = min(fits, key=lambda a: a.size)
            self._free = [a for a in self._free if a is not whole]
        else:
            whole = np.zeros(-(-max(need, 1) // 64) * 64, np.uint8)
        found = whole[:need].view(dtype)
        self._lent.append((found, whole))
        return found

    def give(self, array: Array) -> None:
        """The values of this array are no longer needed."""
        taken = [whole for lent, whole in self._lent if lent is array]
        self._lent = [one for one in self._lent if one[0] is not array]
        self._free += [] if self.keep else taken
