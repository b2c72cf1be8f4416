"""Where an output matters: boxes, offsets and sizes only at places whose score is high.

Known from the network alone: one output, or part of one, is a map of scores, and another has numbers for the
same places. Their shapes are equal but for one axis, that of the channels. Scores are what a Sigmoid gives,
or one number a place beside several, which a Sigmoid outside of the network reads. They must be high at few
places: a mask of half the picture is no map of objects, and depth beside it matters everywhere.

One number beside one score, which marks any share of the places, may be a guess where the score is low: the
pitch of sound that has none. The numbers show it: there they jump from place to place, and elsewhere not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.tune.parts import OutputPart

LEAST = 64                                # places from which on numbers are a map
FEW = 0.1                                 # of its places that a map of objects marks, at most
HALF = {"threshold": 0.5, "": 0.0}        # the score from which on there is an object: probabilities, logits
SIDE = 16                                 # places side by side from which on an axis is none of channels
MOST = 0.9                                # of its places that such a score marks, at most
NEAR = 0.1                                # of 0 and 1, as half of such scores are at least
JUMP = 0.1                                # of the variance, what guesses differ by from place to place ...
CALM = 0.25                               # ... at least, and of that what other numbers do at most
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ObjectPlaces:
    """Where a part of an output counts: by sample, elements of the part; `scores`: which part says so."""

    scores: str
    flags: Sequence[_Flags]

    def of(self, values: Array, sample: int) -> Array:
        return values.ravel()[self.flags[sample]]


def places(
    graph: Graph, truth: Sequence[Sequence[Array]], parts: Sequence[OutputPart]
) -> tuple[ObjectPlaces | None, ...]:
    """Of every part, by the float network's outputs (as samples of each); None: it counts everywhere."""
    shapes = [tuple(graph.type(graph.outputs[p.output]).shape) for p in parts]
    return tuple(_of(i, shapes, truth, parts) for i in range(len(parts)))


def _of(
    mine: int, shapes: Sequence[tuple[int, ...]], truth: Sequence[Sequence[Array]],
    parts: Sequence[OutputPart],
) -> ObjectPlaces | None:
    part, shape = parts[mine], shapes[mine]
    if part.answers:
        return None
    for i, other in enumerate(parts):
        axis = _channels(shapes[i], shape) if i != mine else None
        if axis is None or other.answers not in HALF:
            continue
        columns, own = _columns(other, shapes[i], axis), _columns(part, shape, axis)
        if columns is None or own is None or not (other.answers or len(columns) == 1 < len(own)):
            continue
        high = [a.reshape(shapes[i]).take(columns, axis) > HALF[other.answers] for a in truth[other.output]]
        marks = _marks(high, axis)
        if marks is not None:
            spread = [np.broadcast_to(one, shape) for one in marks]
            flags = [(m if part.at is None else m.reshape(-1)[part.at]).ravel() for m in spread]
            return ObjectPlaces(other.name, flags)
    return _certain(mine, shapes, truth, parts)


def _channels(scores: tuple[int, ...], shape: tuple[int, ...]) -> int | None:
    """The axis along which a place has its numbers: the only one that differs, or, in one output, the one
    with the fewest."""
    if len(scores) != len(shape) or len(shape) < 3:
        return None
    apart = [k for k, (a, b) in enumerate(zip(scores, shape, strict=True)) if a != b]
    if len(apart) > 1:
        return None
    inner = range(1, len(shape))
    axis = apart[0] if apart else min(inner, key=lambda k: shape[k])
    count = int(np.prod(shape)) // max(shape[axis], 1)
    return axis if count >= LEAST else None


def _columns(part: OutputPart, shape: tuple[int, ...], axis: int) -> npt.NDArray[np.int64] | None:
    """The channels of a part, if it has them at every place."""
    if part.at is None:
        return np.arange(shape[axis])
    found = np.unique(np.unravel_index(part.at.ravel(), shape)[axis])
    whole = len(found) * (int(np.prod(shape)) // shape[axis])
    return found if part.at.size == whole else None


def _marks(high: Sequence[_Flags], axis: int) -> list[_Flags] | None:
    """By sample, places with an object: some channel that marks few of all places is high there. None where
    no channel does."""
    if not high:
        return None
    others = tuple(k for k in range(high[0].ndim) if k != axis)
    share = np.mean([one.mean(others) for one in high], axis=0)
    few = np.flatnonzero((share > 0) & (share <= FEW))
    if not len(few):
        return None
    return [np.asarray(one.take(few, axis).any(axis, keepdims=True)) for one in high]


# --- single numbers that are guesses where a score is low


def _certain(
    mine: int, shapes: Sequence[tuple[int, ...]], truth: Sequence[Sequence[Array]],
    parts: Sequence[OutputPart],
) -> ObjectPlaces | None:
    """Where a part's numbers are no guesses, by another one of the same shape."""
    own, shape = truth[parts[mine].output], shapes[mine]
    sides = [k for k, size in enumerate(shape) if k and size > 1]
    few = not 0 < len(sides) <= 2 or min(shape[k] for k in sides) < SIDE
    if few or parts[mine].at is not None or _scores(own):
        return None
    for i, other in enumerate(parts):
        scores = truth[other.output]
        if i == mine or other.at is not None or shapes[i] != shape or not _scores(scores):
            continue
        high = [np.asarray(one > HALF["threshold"]) for one in scores]
        if np.mean(high) <= MOST and _guesses(own, high, sides):
            return ObjectPlaces(other.name, [one.ravel() for one in high])
    return None


def _scores(values: Sequence[Array]) -> bool:
    """Whether numbers are probabilities of which most are certain, some of both kinds."""
    if not values or any(one.min() < 0 or one.max() > 1 for one in values):
        return False
    sides = np.mean([[(one < NEAR).mean(), (one > 1 - NEAR).mean()] for one in values], axis=0)
    return bool(sides.min() > 0 and sides.sum() >= 0.5)


def _guesses(values: Sequence[Array], high: Sequence[_Flags], sides: Sequence[int]) -> bool:
    """Whether numbers jump from place to place where flags are not set, and hardly where they are."""
    spread = 2 * float(np.var(np.concatenate([one.astype(np.float64).ravel() for one in values])))
    jumps = []
    for flagged in (False, True):
        found: list[Array] = []
        for one, flags in zip(values, high, strict=True):
            there = flags == flagged
            for axis in sides:
                pairs = np.logical_and(*_neighbours(there, axis))
                before, behind = _neighbours(one.astype(np.float64), axis)
                found.append((behind - before)[pairs] ** 2)
        every = np.concatenate(found)
        if every.size < LEAST:
            return False
        jumps.append(float(every.mean()))
    low, certain = jumps
    return low > JUMP * spread > 0 and certain < CALM * low


def _neighbours(values: Array, axis: int) -> tuple[Array, Array]:
    """All but the last and all but the first along an axis."""
    count = values.shape[axis]
    return values.take(range(count - 1), axis), values.take(range(1, count), axis)
