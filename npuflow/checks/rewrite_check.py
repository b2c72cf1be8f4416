"""The rewritten float graph beside the source model: how far outputs are apart, and which rule moved them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from npuflow.base.wording import first_line
from npuflow.compare.difference import Difference, difference, first_prefix
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import session_model
from npuflow.onnx.fed import SessionModel
from npuflow.onnx.run import CannotRunError, session
from npuflow.rewrite.rewrite import Applied

# of an output's largest value: two orders of the same sums in float32
SAME = 1e-4
# times the rounding of one number: what a network of half precision may add up to
SUMS = 40.0
# times what the source model itself changes when it is not optimised
ROOM = 30.0
MOST = 4                                  # rules that are looked for
READING = "reading the model"

Feed = Mapping[str, Array]
Replay = Callable[[tuple[str, ...], int | None], tuple[Graph, tuple[Applied, ...]]]
"""(rules left out, changes after which to stop) -> the graph and the changes made."""


@dataclass(frozen=True)
class OutputError:
    """Of one output over all samples: the largest difference, and that as a part of the source's largest
    value (None where they cannot be compared: `note`). `noise`: what the source itself differs by when
    onnxruntime does not optimise it.
    """

    name: str
    absolute: float | None
    relative: float | None
    note: str = ""
    noise: float = 0.0
    least: float = SAME

    @property
    def moved(self) -> bool:
        return self.relative is None or self.relative > self.limit

    @property
    def limit(self) -> float:
        return max(self.least, ROOM * self.noise)


@dataclass(frozen=True)
class RewriteCulprit:
    """A change that moved values, with the largest relative error of the outputs before and
    after it (None: not comparable)."""

    change: Applied
    before: float | None
    after: float | None


class SourceModel:
    """The source model's outputs on some samples; CannotRunError where onnxruntime does not run it."""

    def __init__(
        self, model: SessionModel, outputs: Sequence[str], feeds: Sequence[Feed], rounding: float = 0.0,
        fewer: bool = False,
    ) -> None:
        """`fewer`: the graph may have more rows than the source, whose loops end by data."""
        self.fewer = fewer
        self.least = max(SAME, SUMS * rounding)
        self.model, self.outputs, self.feeds = model, tuple(outputs), feeds
        self.session = session(model)
        self.wanted = _run(self.session, self.outputs, feeds)

    @cached_property
    def noise(self) -> dict[str, float]:
        """By output: the largest relative change when onnxruntime computes the source as it is written."""
        try:
            plain = _run(session(self.model, optimised=False), self.outputs, self.feeds)
        except CannotRunError:
            return {}
        return {e.name: e.relative or 0.0 for e in self._errors(plain)}

    @cached_property
    def repeats(self) -> bool:
        """Whether it gives the same numbers again, as a model that draws random numbers does not."""
        again = _run(self.session, self.outputs, self.feeds[:1])
        return all(not difference("", a, b).different for a, b in zip(again[0], self.wanted[0], strict=True))

    def errors(self, graph: Graph, feeds: Sequence[Feed] | None = None) -> tuple[OutputError, ...]:
        """The graph's outputs beside the source's; noise is measured where an error is large enough to need
        it. `feeds`: what the graph takes for the samples, where that is not what the source takes.
        """
        given = self.feeds if feeds is None else feeds
        results = _run(session(session_model(graph, self.outputs)), self.outputs, given)
        if self.fewer:
            results = [
                [_rows_of(a, b.shape) for a, b in zip(row, wanted, strict=True)]
                for row, wanted in zip(results, self.wanted, strict=True)
            ]
        found = self._errors(results)
        if not any(e.moved for e in found):
            return found
        noise = self.noise
        return tuple(replace(e, noise=noise.get(e.name, 0.0)) for e in found)

    def moved(self, graph: Graph) -> bool:
        return any(e.moved for e in self.errors(graph))

    def _errors(self, found: Sequence[Sequence[Array]]) -> tuple[OutputError, ...]:
        return tuple(
            replace(
                _error(name, [row[i] for row in self.wanted], [row[i] for row in found]), least=self.least
            )
            for i, name in enumerate(self.outputs)
        )


def culprits(
    source: SourceModel, replay: Replay, skip: tuple[str, ...] = ()
) -> tuple[tuple[RewriteCulprit, ...], bool]:
    """The changes that moved values, and whether the graph equals the source without their rules:
    of each run the change is found by bisection that takes the outputs over the limit; then the
    rules run again without its rule.
    """
    found: list[RewriteCulprit] = []
    while len(found) < MOST:
        graph, applied = replay(skip, None)
        if not source.moved(graph):
            return tuple(found), True
        start = replay(skip, 0)[0]
        if source.moved(start):
            return (*found, RewriteCulprit(Applied(READING, ""), 0.0, worst(source.errors(start)))), False
        count = first_prefix(len(applied), partial(_moved_by, source, replay, skip))
        before, after = (worst(source.errors(replay(skip, n)[0])) for n in (count - 1, count))
        found.append(RewriteCulprit(applied[count - 1], before, after))
        skip = (*skip, applied[count - 1].rule)
    return tuple(found), False


def _moved_by(source: SourceModel, replay: Replay, skip: tuple[str, ...], count: int) -> bool:
    """Whether the first changes, without the rules left out, move an output."""
    return source.moved(replay(skip, count)[0])


def worst(errors: Sequence[OutputError]) -> float | None:
    """The largest relative error; None where it is unknown."""
    known = [e.relative for e in errors]
    return None if None in known else max((e for e in known if e is not None), default=0.0)


def _run(ready: Any, outputs: Sequence[str], feeds: Sequence[Feed]) -> list[list[Array]]:
    try:
        return [[np.asarray(a) for a in ready.run(list(outputs), dict(feed))] for feed in feeds]
    except Exception as fault:  # onnxruntime's errors share no public base class
        raise CannotRunError(first_line(fault)) from fault


def _error(name: str, wanted: Sequence[Array], found: Sequence[Array]) -> OutputError:
    peak, absolute = 0.0, 0.0
    for a, b in zip(wanted, found, strict=True):
        one = difference(name, a, b)
        if note := _incomparable(one, a, b):
            return OutputError(name, None, None, note)
        peak, absolute = max(peak, one.peak), max(absolute, one.max_abs)
    return OutputError(name, absolute, absolute / (peak or 1.0))


def _rows_of(array: Array, shape: Sequence[int]) -> Array:
    """As much of an array as another one of this shape has."""
    return array[tuple(slice(0, size) for size in shape)] if array.ndim == len(shape) else array


def _incomparable(one: Difference, a: Array, b: Array) -> str:
    """Why a largest difference would say nothing."""
    if a.shape != b.shape:
        return f"its shape is {list(b.shape)} instead of {list(a.shape)}"
    if one.note and one.different:
        return f"{one.different} of {one.elements} values differ"
    return f"{one.strange} of {one.elements} values are finite in one of the two only" if one.strange else ""
