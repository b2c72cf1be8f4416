"""Rounding column by column, the error of each carried into the columns that are still to be rounded."""

from __future__ import annotations

import numpy as np

from npuflow.rounders import LayerProblem, Reals, Rounding


def feedback(problem: LayerProblem, gram: Reals, scale: Reals, block: int, ordered: bool) -> Rounding:
    """`gram`: the damped moments; `ordered`: the terms of largest second moment first, else as they are."""
    terms = gram.shape[-1]
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    order = (
        np.argsort(-diagonal, axis=-1, kind="stable")
        if ordered
        else np.broadcast_to(np.arange(terms), diagonal.shape)
    )
    sorted_gram = np.take_along_axis(np.take_along_axis(gram, order[:, :, None], 1), order[:, None, :], 2)
    # The upper Cholesky factor of the inverse holds, row by row, what is left of the
    # inverse once a term is settled.
    factor = np.linalg.cholesky(np.linalg.inv(sorted_gram)).swapaxes(1, 2)
    weight = np.take_along_axis(problem.weight, order[:, None, :], 2)
    codes = np.empty_like(weight)
    wide, zeros = (np.broadcast_to(one, weight.shape) for one in (problem.by_term(scale), problem.zeros))
    if problem.part:
        wide, zeros = (np.take_along_axis(one, order[:, None, :], 2) for one in (wide, zeros))
    keep = None if problem.keep is None else np.take_along_axis(problem.keep, order[:, None, :], 2)
    for first in range(0, terms, block):
        last = min(first + block, terms)
        errors = np.empty((*weight.shape[:2], last - first))
        for k in range(first, last):
            column, zero = weight[..., k], zeros[..., k]
            code = np.clip(np.rint(column / wide[..., k]) + zero, problem.lo, problem.hi)
            code = code if keep is None else np.where(keep[..., k], code, zero)
            error = (column - wide[..., k] * (code - zero)) / factor[:, None, k, k]
            codes[..., k], errors[..., k - first] = code, error
            weight[..., k:last] -= error[..., None] * factor[:, None, k, k:last]
        weight[..., last:] -= np.matmul(errors, factor[:, first:last, last:])
    back = np.argsort(order, axis=-1, kind="stable")
    return Rounding(np.take_along_axis(codes, back[:, None, :], 2), scale)
