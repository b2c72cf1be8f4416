"""Costs a fusion group under mixed widths, from sums over layers and border traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

STEEPEST = 32.0                           # exponent from which on engines count as overlapping entirely


class GroupSums(NamedTuple):
    """Of a group at some levels: array cycles of its layers, cycles of those on the host and of casts, cycles
    to load tables of functions, and bytes over its border."""

    array: float
    host: float
    casts: float
    tables: float
    moved: float

    def replaced(self, old: GroupSums, new: GroupSums) -> Self:
        """With new sums in the place of the old ones of some layers; the same to the last bit where these are
        equal."""
        return type(self)(*(b + (n - o) for b, n, o in zip(self, new, old, strict=True)))


@dataclass(frozen=True)
class GroupCost:
    """A fusion group: its layers, cycles with narrow operands by engine, the exponent of their p-norm and
    cycles beyond it, and bytes by unit of what crosses its border."""

    layers: tuple[int, ...]
    array: float
    vector: float
    transfers: float
    exponent: float
    rest: float
    crossing: Mapping[int, float]

    def cycles(self, sums: GroupSums, plain: float, bytes_: float) -> float:
        """`plain`, `bytes_`: array cycles and bytes at the recipe's widths."""
        times = sums.array / plain if plain else 1.0
        growth = sums.moved / bytes_ if bytes_ else 1.0
        parts = self.array * times, self.vector + sums.casts, self.transfers * growth + sums.tables
        return norm(parts, self.exponent) + self.rest + sums.host


def overlap(parts: Sequence[float], cycles: float) -> float:
    """The p at which the engines' p-norm gives the group's cycles: large where they
    overlap, 1 where they take turns."""
    low, high = 1.0, STEEPEST
    if cycles >= sum(parts) or not any(parts):
        return low
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if norm(parts, middle) > cycles else (low, middle)
    return high


def norm(parts: Sequence[float], p: float) -> float:
    most = max(parts)
    return most * sum((x / most) ** p for x in parts) ** (1 / p) if most else 0.0
