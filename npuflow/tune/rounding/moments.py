"""Exact integer sums and products of a layer's columns, so that parts merge to equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.rounders import Reals
from npuflow.tune.rounding.columns import Codes

Int64s = npt.NDArray[np.int64]
# products of two magnitudes of 15 bits whose sum float64 holds exactly
EXACT = 1 << 22
# numbers that are multiplied at once: few enough, as float64, for the processor's caches
AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Moments:
    """`count`: columns; `sums` [groups, terms] and `gram` [groups, terms, terms], in units of
    the grid and of its square."""

    count: int
    sums: Int64s
    gram: Int64s
    fraction: int

    @classmethod
    def empty(cls, groups: int, terms: int, fraction: int) -> Moments:
        return cls(
            0, np.zeros((groups, terms), np.int64), np.zeros((groups, terms, terms), np.int64), fraction
        )

    def plus(self, other: Moments) -> Moments:
        return self._with(other, 1)

    def minus(self, other: Moments) -> Moments:
        """Without a part that was added before."""
        return self._with(other, -1)

    def _with(self, other: Moments, sign: int) -> Moments:
        if self.fraction != other.fraction:
            raise ValueError(
                f"moments on grids of {self.fraction} and {other.fraction} bits behind the point do not add "
                "up"
            )
        sums, gram = self.sums + sign * other.sums, self.gram + sign * other.gram
        return Moments(self.count + sign * other.count, sums, gram, self.fraction)

    @property
    def mean(self) -> Reals:
        """[groups, terms]"""
        return np.ldexp(self.sums / max(self.count, 1), -self.fraction)

    def around(self, center: Reals | None) -> Reals:
        """[groups, terms, terms]: the mean product of every two terms' distances to
        `center` (None: to zero)."""
        raw = np.ldexp(self.gram / max(self.count, 1), -2 * self.fraction)
        if center is None:
            return raw
        cross = self.mean[:, :, None] * center[:, None, :]
        return np.asarray(raw - cross - cross.swapaxes(1, 2) + center[:, :, None] * center[:, None, :])


def of_columns(found: Iterable[Codes], fraction: int) -> Moments | None:
    """The moments of some columns; None without any."""
    total: Moments | None = None
    held: list[Codes] = []
    rows = 0
    room = np.empty(0)

    def added() -> Moments:
        nonlocal room
        size = sum(one.size for one in held)
        room = room if room.size >= size else np.empty(size)
        part = _exact(held, fraction, room)
        if total is None:
            return part
        np.add(total.gram, part.gram, out=total.gram)
        return Moments(total.count + part.count, total.sums + part.sums, total.gram, fraction)

    for one in found:
        if held and (rows + one.shape[1] > EXACT or rows * one[:, 0].size >= AT_ONCE):
            total = added()
            held, rows = [], 0
        held.append(one)
        rows += one.shape[1]
    return added() if held else total


def _exact(held: Sequence[Codes], fraction: int, room: Reals) -> Moments:
    """Of at most EXACT columns, or one sample's, widened in `room`. Products in float64 are whole numbers
    below 2^53, whatever their order."""
    groups, _, terms = held[0].shape
    count = sum(one.shape[1] for one in held)
    wide = room[: groups * count * terms].reshape(groups, count, terms)
    np.concatenate(held, axis=1, out=wide)
    # One matrix with itself is half the work, but costs a call a group.
    gram = np.stack([x.T @ x for x in wide]) if groups < terms else np.matmul(wide.swapaxes(1, 2), wide)
    sums = np.matmul(np.ones(count), wide)
    return Moments(count, sums.astype(np.int64), gram.astype(np.int64), fraction)
