"""Arrays that values take turns in."""

from __future__ import annotations

import numpy as np

from npuflow.ir.types import Array


class Pool:
    """Arrays of bytes for a batch; what is given back serves again, unless everything is to stay readable."""

    def __init__(self, batch: int, keep: bool) -> None:
        self.batch, self.keep = batch, keep
        self._free: list[Array] = []
        self._whole: dict[int, Array] = {}

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
        self._whole[id(found)] = whole
        return found

    def give(self, array: Array) -> None:
        """The values of this array are no longer needed."""
        whole = self._whole.pop(id(array), None)
        if whole is not None and not self.keep:
            self._free.append(whole)
