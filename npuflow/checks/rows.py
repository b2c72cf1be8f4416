"""Figures of an evaluation that keeps no outputs: added up from sample to sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.ir.noise import SignalToNoise
from npuflow.ir.types import Array
from npuflow.metrics import RowMetric


@dataclass
class ScoreRows:
    """What is kept of the samples so far: rows of the metric for the program and the float model, sums of
    signal and noise by output, answers that are equal, and outputs whose shapes differ."""

    metric: RowMetric
    mine: list[Any] = field(default_factory=list)
    theirs: list[Any] = field(default_factory=list)
    noise: dict[str, SignalToNoise] = field(default_factory=dict)
    unlike: dict[str, int] = field(default_factory=dict)
    equal: int = 0
    rows: bool = True                     # whether the first output of numbers is a row of scores

    def add(self, made: Mapping[str, Array], truth: Mapping[str, Array], label: Any) -> None:
        """One sample through the program and through the float model."""
        self.mine.append(self.metric.row(made, truth, label))
        self.theirs.append(self.metric.row(truth, truth, label))
        numbers = [name for name in truth if truth[name].dtype.kind == "f"]
        for name in numbers:
            own = self.noise.setdefault(name, SignalToNoise())
            if made[name].shape == truth[name].shape:
                own.add(truth[name], made[name])
            else:
                self.unlike[name] = self.unlike.get(name, 0) + 1
        if not numbers or truth[numbers[0]].ndim != 2 or len(truth[numbers[0]]) != 1:
            self.rows = False
            return
        first = numbers[0]
        self.equal += int(np.argmax(made[first]) == np.argmax(truth[first]))

    @property
    def sqnr_db(self) -> dict[str, float]:
        count = len(self.mine)
        return {n: one.decibels for n, one in self.noise.items() if self.unlike.get(n, 0) < count}

    @property
    def agreement(self) -> float | None:
        return self.equal / len(self.mine) if self.rows else None
