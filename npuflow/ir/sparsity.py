"""Weights of which some are zero: patterns, which weights to keep, and what the others become.

Source: E. Frantar, D. Alistarh, "SparseGPT: massive language models can be accurately pruned in one-shot",
2023 (the order of selection and the compensation by what follows); every set of a group is tried here, and
the kept weights of an output are refitted together at the end, in least squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MOST_SETS = 70                            # sets of a group that are all tried: those of 4:8
AT_ONCE = 1 << 25                         # numbers of the systems that are solved at once


@dataclass(frozen=True)
class Pattern:
    """Of every `of` consecutive input channels of an output at most `keep` are not zero."""

    keep: int
    of: int

    @classmethod
    def read(cls, text: str) -> Pattern | None:
        """From "2:4"; None for anything else."""
        keep, colon, of = text.partition(":")
        if not colon or not keep.isdecimal() or not of.isdecimal() or not 0 < int(keep) < int(of):
            return None
        return cls(int(keep), int(of))

    def __str__(self) -> str:
        return f"{self.keep}:{self.of}"

    def holds(self, rows: npt.NDArray[np.generic]) -> bool:
        """Whether weights [outputs, terms] have it."""
        if rows.shape[-1] % self.of:
            return False
        return bool(((rows.reshape(-1, self.of) != 0).sum(1) <= self.keep).all())

    def strongest(self, score: Reals) -> Mask:
        """The highest scores [outputs, terms] of every group; of equals the first."""
        grouped = score.reshape(len(score), -1, self.of)
        order = np.argsort(-grouped, axis=-1, kind="stable")[..., : self.keep]
        mask = np.zeros(grouped.shape, np.bool_)
        np.put_along_axis(mask, order, True, -1)
        return mask.reshape(score.shape)


def selected(weight: Reals, gram: Reals, pattern: Pattern) -> Mask:
    """What to keep of a layer's weights [outputs, terms], group after group: the set whose zeros cost the sum
    of the layer's products least, the weights behind it making up for what they can. `gram`: second moments
    of the terms, damped."""
    upper = np.linalg.cholesky(np.linalg.inv(gram)).T
    left, mask = weight.copy(), np.ones(weight.shape, np.bool_)
    drop = pattern.of - pattern.keep
    every = comb(pattern.of, drop) <= MOST_SETS
    for first in range(0, weight.shape[1], pattern.of):
        last = first + pattern.of
        own = upper[first:last, first:last]
        inverse, now = own.T @ own, left[:, first:last]
        zero = (
            _cheapest(now, inverse, drop) if every else ~pattern.strongest(now**2 / np.diagonal(inverse))
        )
        mask[:, first:last] = ~zero
        left[:, first:] -= _shares(now, inverse, zero) @ (own.T @ upper[first:last, first:])
    return mask


def _cheapest(weight: Reals, inverse: Reals, drop: int) -> Mask:
    """The set of `drop` weights of a group whose zeros cost least, by output."""
    sets = list(combinations(range(weight.shape[1]), drop))
    costs = np.empty((len(sets), len(weight)))
    for i, one in enumerate(sets):
        part = weight[:, one]
        costs[i] = (part @ np.linalg.inv(inverse[np.ix_(one, one)]) * part).sum(1)
    zero = np.zeros(weight.shape, np.bool_)
    np.put_along_axis(zero, np.asarray(sets)[costs.argmin(0)], True, 1)
    return zero


def _shares(weight: Reals, inverse: Reals, zero: Mask) -> Reals:
    """By what multiples of the rows of the inverse an output moves, so that its weights in `zero` vanish."""
    found = np.zeros(weight.shape)
    at = np.argsort(~zero, axis=1, kind="stable")[:, : int(zero[0].sum())]
    systems = inverse[at[:, :, None], at[:, None, :]]
    part = np.take_along_axis(weight, at, 1)
    np.put_along_axis(found, at, np.linalg.solve(systems, part[..., None])[..., 0], 1)
    return found


def refitted(gram: Reals, along: Reals, mask: Mask) -> Reals:
    """The weights [outputs, terms], zero outside of `mask`, whose products come closest in least squares.
    `gram`: damped second moments; `along`: what weights without zeros would make of them (weight @ gram)."""
    found = np.zeros(along.shape)
    counts = mask.sum(1)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        step = max(1, int(AT_ONCE // (count * count)))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            at = np.argsort(~mask[some], axis=1, kind="stable")[:, :count]
            part = np.take_along_axis(along[some], at, 1)
            solved = np.linalg.solve(gram[at[:, :, None], at[:, None, :]], part[..., None])[..., 0]
            whole = np.zeros((len(some), along.shape[1]))
            np.put_along_axis(whole, at, solved, 1)
            found[some] = whole
    return found
