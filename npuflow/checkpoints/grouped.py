"""Stored weights with a scale for every group of columns: the codes of a checkpoint as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from npuflow.ir.types import Array


@dataclass(frozen=True, eq=False)
class Grouped:
    """A matrix [rows, columns] of codes from 0 to 2^bits - 1.

    Element (r, c) is `scales[r, g] * (codes[r, c] - zeros[r, g])`, or `scales[r, g] * codes[r, c] +
    minima[r, g]`, with g the group of column c: `c // group`, or `order[c]` where the columns of a group are
    not neighbours. `zeros` and `minima` exclude each other; without either, zero is code 0.
    """

    codes: Array                          # uint8 [rows, columns]
    bits: int
    group: int
    scales: Array                         # float16 or float32 [rows, groups]
    zeros: Array | None = None            # uint8 or int16 [rows, groups]
    minima: Array | None = None           # float16 or float32 [rows, groups]
    order: Array | None = None            # int32 [columns]

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.codes.shape
        return rows, columns

    def channels(self, chosen: Array | slice) -> Grouped:
        """Some of the rows, in the order asked for: no number changes."""

        def of(array: Array | None) -> Array | None:
            return None if array is None else array[chosen]

        codes, scales = self.codes[chosen], self.scales[chosen]
        return replace(self, codes=codes, scales=scales, zeros=of(self.zeros), minima=of(self.minima))

    def floats(self) -> Array:
        """float32 [rows, columns]; every step is rounded to float32, as the formats' own libraries do."""
        if self.order is not None:
            return self._ordered(self.order)
        rows, columns = self.shape
        wide = self.codes.astype(np.float32).reshape(rows, -1, self.group)
        if self.zeros is not None:
            wide -= self.zeros.astype(np.float32)[..., None]
        wide *= self.scales.astype(np.float32)[..., None]
        if self.minima is not None:
            wide += self.minima.astype(np.float32)[..., None]
        return wide.reshape(rows, columns)

    def _ordered(self, order: Array) -> Array:
        wide = self.codes.astype(np.float32)
        if self.zeros is not None:
            wide -= self.zeros.astype(np.float32)[:, order]
        wide *= self.scales.astype(np.float32)[:, order]
        if self.minima is not None:
            wide += self.minima.astype(np.float32)[:, order]
        return wide
