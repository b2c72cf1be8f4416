"""Chooses the next token from logits: the largest, or one drawn by temperature and top-p."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import DataError, UsageError
from npuflow.runner.ports import Array


@dataclass(frozen=True)
class TokenSampling:
    """`temperature`: 0 takes the largest logit; above, logits are divided by it and a token is drawn.
    `top_p`: only from the fewest most likely tokens whose probabilities add up to it. `seed`: of the numbers
    that are drawn; the same seed gives the same text."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(
                f"the temperature is {self.temperature:g}",
                hint="0 for the most likely token, or up to about 2", code="NF-RUN-060",
            )
        if not 0 < self.top_p <= 1:
            raise UsageError(
                f"top-p is {self.top_p:g}", hint="a probability above 0, at most 1: 1 leaves no token out",
                code="NF-RUN-061",
            )
        if self.seed < 0:
            raise UsageError(f"the seed is {self.seed}", hint="0 or above", code="NF-RUN-062")

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def chosen(self, logits: Array, random: np.random.Generator) -> int:
        """The next token, of logits [vocabulary]. Of equal logits the first is the largest."""
        if np.isnan(logits).any():
            raise DataError(
                "the logits of the next token have NaN", hint="npuflow compare shows where it comes from",
                code="NF-RUN-063",
            )
        if not self.temperature:
            return int(logits.argmax())
        order = np.argsort(-logits, kind="stable")
        above = (logits[order].astype(np.float64) - float(logits[order[0]])) / self.temperature
        total = np.cumsum(np.exp(above))
        count = int(np.searchsorted(total, self.top_p * total[-1])) + 1
        total = total[:count]
        return int(order[min(np.searchsorted(total, random.random() * total[-1], "right"), len(total) - 1)])
