"""Coordinate descent on codes and scales, from several starts.

Source: A. Zhang, Z. Yang, N. Wang, Y. Qin, J. Xin, X. Li, P. Yin, "COMQ: a backpropagation-free algorithm for
post-training quantization", 2024: each code in turn to its best value, then each scale to its best value,
both in closed form. Here the layer is seen through its second moments alone, and starts are several: rounded
to the nearest under finer scales, and rounded with error feedback (GPTQ). Every output keeps its best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.rounders import ROUNDERS, LayerProblem, Reals, Rounder, Rounding, stored
from npuflow.rounders._feedback import feedback
from npuflow.rounders._starts import scales

TINY = 1e-300


@ROUNDERS.entry
@dataclass(frozen=True)
class Coordinate(Rounder):
    """Each weight's code in turn, then the scale, until nothing moves."""

    damp: Annotated[float, Range(1e-6, 10)] = 0.01
    """Share of the mean second moment that is added to each."""
    starts: Annotated[int, Range(1, 6)] = 2
    """Scales from which every output descends, the most promising ones."""
    sweeps: Annotated[int, Range(1, 1000)] = 20
    """How often all codes are visited at most."""
    block: Annotated[int, Range(1, 4096)] = 64
    """Terms that are updated at once: speed alone, but for the last bits of sums."""

    def __call__(self, problem: LayerProblem) -> Rounding:
        gram = problem.damped(self.damp)
        moved = np.matmul(problem.weight, gram)
        tried = [problem.nearest()]
        for scale in scales(problem, gram, self.starts):
            for start in (problem.nearest(scale), feedback(problem, gram, scale, self.block, True)):
                tried.append(self._descended(problem, gram, moved, start))
        return problem.best(*tried)

    def _descended(self, problem: LayerProblem, gram: Reals, moved: Reals, start: Rounding) -> Rounding:
        """`moved`: the weights times the moments."""
        codes, scale = start.codes - problem.zeros, start.scale
        slope = moved - np.matmul(problem.by_term(scale) * codes, gram) if problem.part else (
            moved - scale[..., None] * np.matmul(codes, gram)
        )
        for sweep in range(self.sweeps):
            changed = _sweep(problem, gram, codes, scale, slope, self.block)
            if not changed:
                break
            if not (problem.fixed or problem.pinned) and sweep < self.sweeps - 1:
                if problem.part:
                    if not sweep & (sweep + 1):               # after 1, 2, 4, 8, ... sweeps: it is as dear
                        scale, slope = _refit_parts(problem, gram, codes, scale, moved, slope)
                    continue
                new = _refit(problem, codes, scale, moved, slope)
                slope = moved - (new / scale)[..., None] * (moved - slope)
                scale = new
        return Rounding(codes + problem.zeros, scale)


def _sweep(problem: LayerProblem, gram: Reals, codes: Reals, scale: Reals, slope: Reals, block: int) -> int:
    """Every code once, in place; `slope`: what is left of the weights times the
    moments. Gives how many changed."""
    terms, changed = gram.shape[-1], 0
    low, high = (np.broadcast_to(end - problem.zeros, codes.shape) for end in (problem.lo, problem.hi))
    for first in range(0, terms, block):
        last = min(first + block, terms)
        inner = gram[:, first:last, first:last]
        near, steps = slope[..., first:last].copy(), np.zeros((*scale.shape[:2], last - first))
        for k in range(last - first):
            now = codes[..., first + k]
            own = scale[..., first + k] if problem.part else scale
            ends = low[..., first + k], high[..., first + k]
            wanted = np.clip(np.rint(now + near[..., k] / (own * inner[:, None, k, k])), *ends)
            wanted = wanted if problem.keep is None else np.where(problem.keep[..., first + k], wanted, 0.0)
            step = wanted - now
            moves = int(np.count_nonzero(step))
            if moves:
                changed += moves
                codes[..., first + k] = wanted
                steps[..., k] = step = own * step
                near -= step[..., None] * inner[:, None, k, :]
        if steps.any():
            slope -= np.matmul(steps, gram[:, first:last])
    return changed


def _refit(problem: LayerProblem, codes: Reals, scale: Reals, moved: Reals, slope: Reals) -> Reals:
    """The best scales for codes (less their zero points)."""
    along, across = (moved * codes).sum(-1), ((moved - slope) * codes).sum(-1) / np.maximum(scale, TINY)
    if problem.shared:
        along, across = np.broadcast_to(along.sum(), along.shape), np.broadcast_to(across.sum(), across.shape)
    fits = (along > 0) & (across > 0)
    return np.where(fits, stored(along / np.where(fits, across, 1.0)), scale)


def _refit_parts(
    problem: LayerProblem, gram: Reals, codes: Reals, scale: Reals, moved: Reals, slope: Reals
) -> tuple[Reals, Reals]:
    """The best scale of every part in turn, the others as they are, as kept; and the slope."""
    found, slope = scale.copy(), slope.copy()
    for first in range(0, codes.shape[-1], problem.part):
        last = min(first + problem.part, codes.shape[-1])
        own = codes[..., first:last]
        curve = (np.matmul(own, gram[:, first:last, first:last]) * own).sum(-1)
        step = (slope[..., first:last] * own).sum(-1) / np.maximum(curve, TINY)
        new = found[..., first] + step
        new = np.where((curve > 0) & (new > 0), problem.number(new), found[..., first])
        change = (new - found[..., first])[..., None]
        slope -= np.matmul(change * own, gram[:, first:last])
        found[..., first:last] = new[..., None]
    if problem.sub_bits is None:
        return found, slope
    kept = problem.stored(found)
    return kept, moved - np.matmul(kept * codes, gram)
