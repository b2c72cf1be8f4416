"""Scales that a rounding starts from: shares of the format's usual ones, the most promising first."""

from __future__ import annotations

import numpy as np

from npuflow.rounders import LayerProblem, Reals

FINER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)    # scales that are tried, as shares of the format's usual ones
POWERS = (1.0, 0.5)                       # the same where scales are powers of two


def scales(problem: LayerProblem, gram: Reals, count: int) -> list[Reals]:
    """The most promising scales of every output, by the error of rounding to the nearest under each."""
    if problem.pinned:
        return [problem.scale]
    shares = POWERS if problem.fixed else FINER
    tried = [problem.scale * share for share in shares]
    tried = tried if problem.fixed else [problem.stored(scale) for scale in tried]
    found = []
    for scale in tried:
        off = problem.weight - problem.real(problem.nearest(scale))
        found.append((np.matmul(off, gram) * off).sum(-1))
    errors = np.stack(found)
    if problem.shared:
        errors = np.broadcast_to(errors.sum((1, 2), keepdims=True), errors.shape)
    order = np.argsort(errors, axis=0, kind="stable")[: min(count, len(tried))]
    places = order[..., None] if problem.part else order
    return [np.take_along_axis(np.stack(tried), one[None], 0)[0] for one in places]
