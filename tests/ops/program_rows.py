"""Rows of the table of single-operator programs: nodes as a user's network has them, five shapes each, and
what their operands are like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


PLACES = ("alone", "behind", "front", "second")


@dataclass(frozen=True)
class Index:
    """An input of indices from 0 up to but not including `top`."""

    shape: tuple[int, ...]
    top: int


@dataclass(frozen=True)
class Row:
    """An operator. `nodes`: in ONNX's text form, from the inputs x, u, v, ... to the results y, t, ...

    `shapes`: one network each; tuples are shapes of float inputs, Index inputs of indices, arrays constants,
    all else fills the placeholders of `nodes`. `guards`: what is in front of the operator so that operands
    are as it needs them, by input (see GUARDS in programs.py). `jumps`: discontinuous, steep, or giving
    integers: its results are compared with those of onnxruntime on the program's own operands; equal
    is what rounds to the same code, or is `off` codes away where several operators round one after the
    other. `places`: not in front of a layer where results have poles, whose size hides all else."""

    name: str
    nodes: str
    shapes: Sequence[dict[str, Any]]
    guards: dict[str, str] = field(default_factory=dict)
    jumps: bool = False
    off: float = 0.5
    places: tuple[str, ...] = PLACES
    opset: int = 20


def normal(*shape: int, scale: float = 1.0) -> Array:
    rng = np.random.default_rng([len(shape), *shape])
    return (rng.normal(size=shape) * scale).astype(np.float32)


def uniform(low: float, high: float, *shape: int) -> Array:
    return np.random.default_rng([len(shape), *shape]).uniform(low, high, shape).astype(np.float32)


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


def real(value: float) -> Array:
    return np.array(value, np.float32)


ANY = [(1, 4, 6, 6), (1, 3, 7, 5), (2, 24), (1, 9, 16), (1, 8, 1, 12)]
X = [{"x": s} for s in ANY]
IMAGES = [(1, 4, 6, 6), (1, 3, 9, 7), (2, 4, 6, 6), (1, 8, 5, 5), (1, 6, 4, 12)]
IMAGE = [{"x": s} for s in IMAGES]
ROWS = [{"x": s} for s in [(1, 6, 16), (4, 32), (1, 12, 24), (2, 5, 8), (1, 2, 7, 12)]]
PAIRS = [
    ((1, 4, 6, 6), (1, 4, 6, 6)),
    ((1, 4, 6, 6), (1, 4, 1, 1)),
    ((2, 24), (24,)),
    ((1, 9, 16), (1, 9, 1)),
    ((1, 1, 4, 12), (1, 6, 4, 1)),
]
XU = [{"x": a, "u": b} for a, b in PAIRS]


def each(shapes: Sequence[dict[str, Any]], *more: dict[str, Any]) -> list[dict[str, Any]]:
    """The shapes, each with what stands in the same place of `more`; one serves all."""
    return [{**s, **more[k % len(more)]} for k, s in enumerate(shapes)]
