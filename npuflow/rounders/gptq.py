"""GPTQ: rounds one weight of every output after another; following weights make up for the error.

Source: E. Frantar, S. Ashkboos, T. Hoefler, D. Alistarh, "GPTQ: accurate post-training quantization for
generative pre-trained transformers", 2022 (with the order by activation size and the lazy blocks of its
code). Scales stay. An output that comes out worse than rounded to the nearest is rounded so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Range
from npuflow.rounders import ROUNDERS, LayerProblem, Rounder, Rounding
from npuflow.rounders._feedback import feedback


@ROUNDERS.entry
@dataclass(frozen=True)
class Gptq(Rounder):
    """Error feedback in blocks."""

    damp: Annotated[float, Range(1e-6, 10)] = 0.01
    """Share of the mean second moment that is added to each."""
    act_order: bool = True
    """Terms of large second moment first."""
    block: Annotated[int, Range(1, 4096)] = 64
    """Terms that are updated at once: speed alone, but for the last bits of sums."""

    def __call__(self, problem: LayerProblem) -> Rounding:
        made = feedback(problem, problem.damped(self.damp), problem.scale, self.block, self.act_order)
        return problem.best(problem.nearest(), made)
