"""Sparse constants of TFLite files, made dense.

A sparse tensor is stored as a tree: one level for each dimension, and one more for each dimension that is
cut into blocks, in the order `TraversalOrder`. A dense level has every index; a compressed one (CSR) names
those present by segments and indices. The format is that of the TFLite schema (`SparsityParameters`), after
Chou, Kjolstad and Amarasinghe, "Format Abstraction for Sparse Tensor Algebra Compilers", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from npuflow.ir.types import Array


@dataclass(frozen=True)
class Level:
    """One level of the tree: `size` indices, or `indices[segments[p]:segments[p + 1]]` below entry `p`."""

    size: int
    segments: Array | None = None
    indices: Array | None = None


@dataclass(frozen=True)
class Sparsity:
    """How the values of a sparse tensor lie. `order[k]` is the dimension of level k: below the rank one of
    the tensor, from there on the block of dimension `blocks[order[k] - rank]`."""

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[Level, ...]


def places(sparsity: Sparsity, shape: tuple[int, ...]) -> Array:
    """Flat indices, int64[stored values], of the stored values in the dense tensor of `shape`.

    Raises ValueError for levels that do not fit the shape."""
    rank = len(shape)
    if sorted(sparsity.order) != list(range(rank + len(sparsity.blocks))) or len(sparsity.levels) != len(
        sparsity.order
    ):
        raise ValueError("the levels of a sparse tensor do not fit its rank")
    at = np.zeros((len(sparsity.order), 1), np.int64)  # index of each dimension and block, entry by entry
    for dimension, level in zip(sparsity.order, sparsity.levels, strict=True):
        parent, index = _below(level, at.shape[1])
        at = at[:, parent]
        at[dimension] = index
    sizes = [0] * len(sparsity.order)
    for dimension, level in zip(sparsity.order, sparsity.levels, strict=True):
        sizes[dimension] = level.size
    for block, dimension in enumerate(sparsity.blocks):
        at[dimension] = at[dimension] * sizes[rank + block] + at[rank + block]
    whole = at[:rank]
    if rank and (whole.min(initial=0) < 0 or np.any(whole.max(axis=1, initial=0) >= np.array(shape))):
        raise ValueError("an index of a sparse tensor lies outside its shape")
    return np.ravel_multi_index(tuple(whole), shape) if rank else np.zeros(1, np.int64)


def dense(values: Array, where: Array, shape: tuple[int, ...]) -> Array:
    """The tensor of `shape` with `values` at `where` and 0 elsewhere."""
    held = np.zeros(prod(shape), values.dtype)
    held[where] = values
    return held.reshape(shape)


def _below(level: Level, entries: int) -> tuple[Array, Array]:
    """Parent and index of each entry of a level below `entries` entries."""
    if level.segments is None or level.indices is None:
        return np.repeat(np.arange(entries), level.size), np.tile(np.arange(level.size), entries)
    counts = np.diff(level.segments)
    if (
        len(counts) != entries
        or np.any(counts < 0)
        or level.segments[0]
        or level.segments[-1] != len(level.indices)
    ):
        raise ValueError("the segments of a sparse tensor do not fit its indices")
    return np.repeat(np.arange(entries), counts), level.indices
