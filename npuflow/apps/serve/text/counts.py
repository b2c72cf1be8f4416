"""Counts of the texts that a model made, and how long they took."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass
class Durations:
    """Seconds, and how many of them lie in which range."""

    sum: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self.buckets[bisect_left(SECONDS, seconds)] += 1

    @property
    def row(self) -> tuple[list[tuple[float, int]], int, float]:
        return list(zip(SECONDS, self.buckets, strict=False)), self.buckets[-1], self.sum


@dataclass
class TextCounts:
    """Of one model: answers by status, tokens, sessions that hold a cache and such that wait for one."""

    answers: Counter[int] = field(default_factory=Counter)
    seconds: Durations = field(default_factory=Durations)
    first: Durations = field(default_factory=Durations)
    prompt: int = 0
    generated: int = 0
    active: int = 0
    waiting: int = 0

    def add(self, status: int, seconds: float) -> None:
        self.answers[status] += 1
        self.seconds.add(seconds)
