"""Where accuracy goes: every integer tensor, made real again, against the float
network on the same samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuflow.compare.comparison import Comparison
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode
from npuflow.ir.graph import Graph
from npuflow.ir.loops import steps_of
from npuflow.ir.noise import SignalToNoise
from npuflow.ir.types import Array
from npuflow.run.floats import FloatRun
from npuflow.whole.execute.executor import Executor

PAIRS = 200                               # values of a tensor that are kept beside their float ones
STRETCHES = 4                             # parts of a loop's steps that are compared apart


@dataclass(frozen=True)
class StepStretch:
    """A part of a loop's steps, `first` to `last` counted from 1: SQNR in dB (None: no error), and the
    largest magnitude in the float network."""

    first: int
    last: int
    sqnr: float | None
    peak: float


@dataclass(frozen=True)
class TensorFidelity:
    """Of one tensor over all samples: SQNR in dB (None: no error), cosine, the share of codes at an end
    of their range; and of how many values the float network has no number (NaN, infinity), which are
    not compared. `apart`: in how many of the `samples` its shape is another than in the float network,
    which are not compared either. `stretches`: of a value of a loop's body, quarters of the steps in turn.
    """

    sqnr: float | None
    cosine: float
    ends: float
    strange: int = 0
    apart: int = 0
    samples: int = 0
    # of the first sample, at places spread evenly over the tensor: float values, and what the codes stand for
    pairs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    stretches: tuple[StepStretch, ...] = ()

    def __str__(self) -> str:
        if self.samples and self.apart == self.samples:
            return "of another shape than in the float network in every sample: not compared"
        found = f"{'exact' if self.sqnr is None else f'{self.sqnr:.1f} dB'}, cosine {self.cosine:.5f}"
        if self.apart:
            found += f", {self.apart} of {self.samples} samples of another shape left out"
        return found + (f", {self.strange} values that are no numbers left out" if self.strange else "")


@dataclass
class _Sums:
    """`steps`: of the loop that the value is in, whose steps lie behind each other; 0: it is in none."""

    steps: int = 0
    compared: Comparison = field(default_factory=Comparison)
    stretches: list[tuple[SignalToNoise, float]] = field(default_factory=list)
    pairs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    ends: int = 0
    count: int = 0
    apart: int = 0
    samples: int = 0

    def add(self, real: Array, found: Array, ends: int) -> None:
        self.samples += 1
        if real.shape != found.shape:
            self.apart += 1
            return
        self.compared.add(real, found)
        if not self.pairs[0]:
            numbers = np.isfinite(real)
            a, b = (array[numbers].astype(np.float64) for array in (real, found))
            at = np.unique(np.linspace(0, max(a.size - 1, 0), min(a.size, PAIRS)).astype(np.int64))
            self.pairs = tuple(map(_short, a[at])), tuple(map(_short, np.nan_to_num(b[at])))
        self.ends += ends
        self.count += real.size
        if self.steps >= STRETCHES:
            self._add_stretches(real, found)

    def _add_stretches(self, real: Array, found: Array) -> None:
        known = self.stretches or [(SignalToNoise(), 0.0) for _ in range(STRETCHES)]
        self.stretches = []
        for (sums, peak), (first, last) in zip(known, _quarters(self.steps), strict=True):
            rows = slice(first * len(real) // self.steps, last * len(real) // self.steps)
            part = real[rows]
            sums.add(part, found[rows])
            finite = np.abs(part[np.isfinite(part)])
            self.stretches.append((sums, max(peak, float(finite.max(initial=0.0)))))

    def result(self) -> TensorFidelity:
        sums = self.compared
        share = self.ends / max(self.count, 1)
        stretches = (
            StepStretch(first + 1, last, part.measured, _short(peak))
            for (part, peak), (first, last) in zip(self.stretches, _quarters(self.steps), strict=False)
        )
        return TensorFidelity(
            sums.measured, sums.cosine, share, sums.strange, self.apart, self.samples, self.pairs,
            tuple(stretches),
        )


def _quarters(steps: int) -> Iterator[tuple[int, int]]:
    """Where each of the stretches of so many steps begins and ends."""
    for k in range(STRETCHES):
        yield k * steps // STRETCHES, (k + 1) * steps // STRETCHES


def _short(number: float) -> float:
    """As many digits as a figure shows."""
    return float(f"{number:.5g}")


def measure(
    float_graph: Graph, graph: Graph, numerics: Numerics, feeds: Sequence[Mapping[str, Array]]
) -> dict[str, TensorFidelity]:
    """Value id -> fidelity, for the quantised values that the float graph has too and
    for the graph's float outputs."""
    shared = [v for v in graph.values if v in float_graph.values and _compared(graph, v)]
    outputs = dict(zip(float_graph.outputs, graph.outputs, strict=True))
    wanted = list(dict.fromkeys([*shared, *float_graph.outputs]))
    executor, steps = Executor(graph, numerics, 1), steps_of(float_graph)
    sums = {v: _Sums(steps.get(v, 0)) for v in wanted}
    for feed, made in _floats(float_graph, wanted, feeds):
        real = {**feed, **made}
        found = executor.run(feed, keep={*shared, *outputs.values()})
        for value_id in wanted:
            held = value_id if value_id in found else outputs.get(value_id, value_id)
            quant = graph.values[held].quant
            array = found[held]
            if not np.issubdtype(real[value_id].dtype, np.floating):
                continue
            ends = 0
            if quant is not None and not graph.values[held].number:
                ends = int(((array <= quant.lo) | (array >= quant.hi)).sum())
            sums[value_id].add(real[value_id], array if quant is None else decode(array, quant), ends)
    return {v: s.result() for v, s in sums.items() if s.count or s.apart}


def _floats(
    graph: Graph, wanted: Sequence[str], feeds: Sequence[Mapping[str, Array]]
) -> Iterator[tuple[Mapping[str, Array], dict[str, Array]]]:
    """Every sample with its float values. Where the weights take more memory than the values of all samples,
    as in a language model, the float network runs on all samples and is freed before the executor runs."""
    network = FloatRun.of(graph, wanted)
    rows: Iterator[tuple[Mapping[str, Array], dict[str, Array]]] = ((f, network.run(f)) for f in feeds)
    kinds = [graph.type(v) for v in wanted]
    weights = sum(array.nbytes for array in graph.consts.values())
    if all(k.is_static for k in kinds) and len(feeds) * sum(4 * k.size for k in kinds) < weights:
        rows = iter([*rows])
        del network
    yield from rows


def _compared(graph: Graph, value_id: str) -> bool:
    value = graph.values[value_id]
    return value.quant is not None and value.const is None and value_id not in graph.inputs

