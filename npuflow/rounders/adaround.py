"""AdaRound: every weight up or down, by descent on a relaxation that is pushed towards whole numbers.

Source: M. Nagel, R. A. Amjad, M. van Baalen, C. Louizos, T. Blankevoort, "Up or down? Adaptive rounding for
post-training quantization", 2020: rectified sigmoids between the two neighbouring codes, a regulariser whose
exponent is lowered while the descent goes on, Adam. The layer-wise objective of the paper, the mean squared
error of the layer's outputs in front of its activation function, is a quadratic form in the second moments of
its inputs. It is computed from these alone and exactly: every step has the gradient over all samples, where
implementations that read images have that of a batch, which is why some hundred steps do for their thousands.
The variant of the paper with the activation function inside of the objective does need images; see `[round]
mode = "blocks"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.rounders import ROUNDERS, LayerProblem, Reals, Rounder, Rounding
from npuflow.rounders._relaxed import Relaxed
from npuflow.rounders._starts import scales

TINY = 1e-30


@ROUNDERS.entry
@dataclass(frozen=True)
class AdaRound(Rounder):
    """Each weight to one of its two neighbouring codes, all weights of a layer together."""

    damp: Annotated[float, Range(1e-6, 10)] = 0.01
    """Share of the mean second moment that is added to each."""
    steps: Annotated[int, Range(1, 100_000)] = 200
    """Of the descent."""
    rate: Annotated[float, Range(1e-6, 10)] = 0.2
    """Of the descent: how far a weight's variable moves in a step."""
    push: Annotated[float, Range(0, 1000)] = 5.0
    """Weight of the regulariser against the error of rounding to the nearest, by weight."""
    starts: Annotated[int, Range(1, 6)] = 1
    """Scales that are tried, the most promising ones."""

    def __call__(self, problem: LayerProblem) -> Rounding:
        gram = problem.damped(self.damp)
        made = [self._descended(problem, gram, scale) for scale in scales(problem, gram, self.starts)]
        return problem.best(problem.nearest(), *made)

    def _descended(self, problem: LayerProblem, gram: Reals, scale: Reals) -> Rounding:
        wide, zero = problem.by_term(scale), problem.zeros
        real = problem.weight / wide
        low, high = problem.lo - zero, problem.hi - zero
        below = np.clip(np.floor(real), low, high)
        free = (below < high) & (real > below)            # the others have one neighbour alone
        if problem.keep is not None:
            below, free = np.where(problem.keep, below, 0.0), free & problem.keep
        off = problem.weight - problem.real(problem.nearest(scale))
        plain = (np.matmul(off, gram) * off).mean(-1, keepdims=True)
        gain = (2 / np.maximum(plain, TINY)).astype(np.float32)
        unit = np.broadcast_to(wide, below.shape).astype(np.float32)
        fixed = (wide * below - problem.weight).astype(np.float32)
        narrow, steps = gram.astype(np.float32), Relaxed.of(real - below, free)
        for step in range(self.steps):
            slope = gain * unit * np.matmul(fixed + unit * steps.taken, narrow)
            steps.descend(slope, self.rate, self.push, step / self.steps)
        return Rounding(below + (steps.taken > 0.5) + zero, scale)
