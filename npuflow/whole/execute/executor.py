"""Runs a quantised graph on whole tensors, bit-equal to the reference interpreter.
It takes a batch of samples at a time.

Integer nodes are lowered as for one tile that is the whole tensor; their commands run on compiled kernels. A
node without such kernels runs by its operator's own specification. Host parts run on onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph, prune
from npuflow.ir.loops import Loop
from npuflow.ir.types import Array, FloatType, QuantType
from npuflow.kernels.fast import usable
from npuflow.place.partition import HostStep, Segment
from npuflow.run.driver import RunPart, driven
from npuflow.run.interpret import Interpreter
from npuflow.run.parts import constant_outputs, parts_of
from npuflow.whole.execute.looping import LoopRun, split
from npuflow.whole.execute.stretch import NodeCall, Stretch


def encoded(real: Array, quant: QuantType) -> Array:
    """The codes of a tensor with one scale, in C order."""
    if isinstance(quant, FloatType) and quant.element == "bfloat16" and real.dtype == np.float32:
        made = np.empty(real.shape, np.uint16)
        _shortened(np.ascontiguousarray(real).reshape(-1).view(np.uint32), made.reshape(-1))
        return made
    if isinstance(quant, FloatType):
        return np.ascontiguousarray(encode(real, quant))
    out = np.empty(real.shape, quant.dtype)
    flat = np.ascontiguousarray(real).reshape(-1)
    _encode(flat, quant.scale[0], quant.zero_point[0], quant.lo, quant.hi, out.reshape(-1))
    return out


@compiled
def _encode(real, scale, zero, lo, hi, out):  # type: ignore[no-untyped-def]
    least, most = np.float64(lo - zero), np.float64(hi - zero)
    for i in range(real.shape[0]):
        v = np.rint(np.float64(real[i]) / scale)
        v = 0.0 if v != v else min(max(v, least), most)
        out[i] = np.int32(v) + zero


def numbers(codes: Array, quant: QuantType) -> Array:
    """The float32 numbers that codes stand for."""
    if not (isinstance(quant, FloatType) and quant.element == "bfloat16" and usable()):
        return decode(codes, quant)
    made = np.empty(codes.shape, np.float32)
    _lengthened(np.ascontiguousarray(codes).reshape(-1), made.reshape(-1).view(np.uint32))
    return made


@compiled
def _shortened(bits, out):  # type: ignore[no-untyped-def]
    """Patterns of float32 as those of bfloat16, to the nearest, ties to even; there is one NaN."""
    for i in range(bits.shape[0]):
        v = np.int64(bits[i])
        near = (v + 0x7FFF + ((v >> 16) & 1)) >> 16
        out[i] = 0x7FC0 if (v & 0x7FFFFFFF) > 0x7F800000 else near


@compiled
def _lengthened(patterns, out):  # type: ignore[no-untyped-def]
    for i in range(patterns.shape[0]):
        v = np.int64(patterns[i])
        out[i] = (0x7FC0 | (v & 0x8000) if (v & 0x7FFF) > 0x7F80 else v) << 16


KINDS = 2  # bound stretches that are kept: whole batches and a rest
_Values = dict[str, list[Array]]


class Executor:
    """A quantised graph ready to run samples, at most `batch` at a time; one thread at a time.
    `kinds`: numbers of samples that it stays bound for."""

    def __init__(self, graph: Graph, numerics: Numerics, batch: int = 8, kinds: int = KINDS) -> None:
        self.graph, self.numerics, self.batch, self.kinds = graph, numerics, batch, kinds
        self.parts = tuple(
            piece for part in parts_of(graph)
            for piece in (split(graph, part) if isinstance(part, Segment) else (part,))
        )
        self._host = Interpreter(graph, numerics)
        self._bound: dict[tuple[int, bool], dict[int, Stretch | LoopRun]] = {}

    def run(
        self, inputs: Mapping[str, Array], keep: Iterable[str] | Callable[[str], bool] | None = None
    ) -> dict[str, Array]:
        """One sample; see `Interpreter.run`."""
        return self.run_many([inputs], keep)[0]

    def run_many(
        self,
        samples: Sequence[Mapping[str, Array]],
        keep: Iterable[str] | Callable[[str], bool] | None = None,
    ) -> list[dict[str, Array]]:
        """Values by id of every sample: the graph's outputs, and those that `keep` names."""
        named = frozenset() if keep is None or callable(keep) else frozenset(keep)
        wanted = keep if callable(keep) else named.__contains__
        found: list[dict[str, Array]] = []
        for start in range(0, len(samples), self.batch):
            found += self._together(samples[start : start + self.batch], wanted, keep is not None)
        return found

    def timed(self, samples: Sequence[Mapping[str, Array]]) -> list[tuple[NodeCall, float]]:
        """One batch, with processor seconds by call of the integer nodes."""
        self.run_many(samples)
        bound = self._stretches(len(samples), False).values()
        return [row for one in bound if isinstance(one, Stretch) for row in one.timed()]

    def _together(
        self, samples: Sequence[Mapping[str, Array]], wanted: Callable[[str], bool], keep: bool
    ) -> list[dict[str, Array]]:
        graph, count = self.graph, len(samples)
        stretches = self._stretches(count, keep)
        parts = [
            RunPart(part.inputs, self._runner(part, stretches.get(i), count, keep))
            for i, part in enumerate(self.parts)
        ]
        given: _Values = {v: [self._host.fed(v, s) for s in samples] for v in graph.inputs}
        kept = driven(parts, given, lambda v: v in graph.outputs or wanted(v))
        kept |= {v: [stored] * count for v, stored in constant_outputs(graph).items()}
        return [{v: arrays[b] for v, arrays in kept.items()} for b in range(count)]

    def _runner(
        self, part: Segment | Loop | HostStep, bound: Stretch | LoopRun | None, count: int, keep: bool
    ) -> Callable[[Mapping[str, list[Array]]], Mapping[str, list[Array]]]:
        if isinstance(bound, LoopRun):
            return bound.run
        if isinstance(part, HostStep):
            return partial(self._step, part, count)
        assert isinstance(part, Segment) and bound is not None
        return partial(self._npu, part, bound, keep)

    def _npu(
        self, part: Segment, stretch: Stretch, keep: bool, values: Mapping[str, list[Array]]
    ) -> _Values:
        for value in part.inputs:
            _put(stretch.held[value].logical, values[value])
        stretch.run()
        seen = [v for n in part.nodes for v in n.outputs if v and (keep or v in part.outputs)]
        given = {v: list(stretch.held[v].logical) for v in seen}
        # what parts behind it read alone need not outlive this run
        return {v: [a.copy() for a in some] if keep or v in self.graph.outputs else some
                for v, some in given.items()}

    def _step(self, step: HostStep, count: int, values: Mapping[str, list[Array]]) -> _Values:
        if step.kind == "model":
            rows = [self._host.model(step, {v: values[v][b] for v in step.inputs}) for b in range(count)]
            return {v: [row[v] for row in rows] for v in step.outputs}
        (node,) = step.nodes
        source, quant = values[node.inputs[0]], self.graph.values[node.outputs[0]].quant
        site = self.graph.site(node)
        plain = quant is not None and quant.per_tensor and not node.op.whole_numbers(site)
        if step.kind == "quantize" and quant is not None and plain and usable():
            return {node.outputs[0]: [encoded(array, quant) for array in source]}
        if step.kind == "dequantize":
            return {node.outputs[0]: [numbers(array, site.quant(0)) for array in source]}
        return {node.outputs[0]: [np.asarray(node.op.integer(site, [a], self.numerics)[0]) for a in source]}

    def _stretches(self, count: int, keep: bool) -> Mapping[int, Stretch | LoopRun]:
        key = count, keep
        if key not in self._bound:
            while len(self._bound) >= self.kinds:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = {
                i: Stretch(self.graph, part, self.numerics, count, keep) if isinstance(part, Segment)
                else LoopRun(self.graph, part, self.numerics, count, keep)
                for i, part in enumerate(self.parts)
                if not isinstance(part, HostStep)
            }
        return self._bound[key]


def real_outputs(
    graph: Graph, numerics: Numerics, samples: Sequence[Mapping[str, Array]]
) -> list[list[Array]]:
    """Per output what the program gives, sample by sample: codes as the numbers that they stand for. Parts of
    the host that none of them needs are left out: such have no outputs to ask for."""
    rows = Executor(prune(graph), numerics).run_many(samples)
    quants = [graph.values[o].quant for o in graph.outputs]
    return [
        [row[o] if quant is None else decode(row[o], quant) for row in rows]
        for o, quant in zip(graph.outputs, quants, strict=True)
    ]


def _put(to: Array, samples: Sequence[Array]) -> None:
    for b, array in enumerate(samples):
        to[b] = array
