"""Counts of the texts that a model made, and how long they took."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass
class Durations:
    """`bounds`: the upper ends of the ranges, ascending; `buckets`: how many lie in each, and behind all."""

    bounds: tuple[float, ...]
    sum: float = 0.0
    buckets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.buckets = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self.buckets[bisect_left(self.bounds, seconds)] += 1

    @property
    def row(self) -> tuple[list[tuple[float, int]], int, float]:
        """How many by upper end, how many beyond, and the sum."""
        return list(zip(self.bounds, self.buckets, strict=False)), self.buckets[-1], self.sum


@dataclass
class TextCounts:
    """Of one model: answers by status, tokens, sessions that hold a cache and such that wait for one."""

    answers: Counter[int] = field(default_factory=Counter)
    seconds: Durations = field(default_factory=lambda: Durations(SECONDS))
    first: Durations = field(default_factory=lambda: Durations(SECONDS))
    prompt: int = 0
    generated: int = 0
    active: int = 0
    waiting: int = 0

    def add(self, status: int, seconds: float) -> None:
        self.answers[status] += 1
        self.seconds.add(seconds)
