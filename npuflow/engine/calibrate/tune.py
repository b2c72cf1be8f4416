"""Ranges judged by what they do to the layers that read the tensor: the [tune] and [search] tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.tables import Config
from npuflow.base.tables import Range as Within
from npuflow.engine.calibrate.observe import session
from npuflow.engine.calibrate.thresholds import Choice, Ranges
from npuflow.engine.quantize.types import activation_type
from npuflow.engine.to_onnx import export_model
from npuflow.hw.numerics import quantize
from npuflow.ir.contracts import CALIBRATORS, Grid
from npuflow.ir.graph import Graph, Node
from npuflow.ir.types import Array

if TYPE_CHECKING:
    import onnxruntime

Real = npt.NDArray[np.float64]
Span = tuple[float, float]


@dataclass(frozen=True)
class Tune(Config):
    """Try ranges between the KL threshold and the extrema; the table switches the step on."""

    candidates: Annotated[int, Within(2, 100)] = 10
    """Ranges tried per tensor, the one it has not counted."""
    samples: Annotated[int, Within(1, None)] = 8
    """Calibration samples whose layers are run with each."""


@dataclass(frozen=True)
class Search(Config):
    """Try threshold methods; the table switches the step on."""

    methods: tuple[Annotated[str, CALIBRATORS], ...] = ("minmax", "percentile", "kl", "mse", "octav", "ema")
    """With their defaults; the recipe's own method is tried with its options."""
    objective: Literal["sqnr", "cosine"] = "sqnr"
    """Of the quantised network's outputs against the float network's."""
    mix: bool = True
    """Also try a mixture: for each tensor the method that its consumers' outputs like best."""
    samples: Annotated[int, Within(2, None)] = 16
    """Calibration samples that judge."""


def spans_to_tune(chosen: Mapping[str, Choice], ranges: Ranges, tune: Tune) -> dict[str, list[Span]]:
    """Per tensor the range it has, and those between the KL threshold and the extrema, evenly spaced."""
    kl, minmax = CALIBRATORS["kl"](), CALIBRATORS["minmax"]()
    found = {}
    for name, one in chosen.items():
        if one.fixed:
            continue
        (a, b), (c, d) = kl(one.tensor, one.grid), minmax(one.tensor, one.grid)
        between = [(a + (c - a) * t, b + (d - b) * t) for t in np.linspace(0, 1, tune.candidates).tolist()]
        found[name] = list(dict.fromkeys([ranges[name], *between]))
    return {name: spans for name, spans in found.items() if len(spans) > 1}


def spans_to_search(chosen: Mapping[str, Choice], methods: Sequence[str]) -> dict[str, dict[str, Span]]:
    """Per method the range of every tensor."""
    made = {name: CALIBRATORS[name]() for name in methods}
    return {m: {n: replace(one, method=method).range() for n, one in chosen.items()} for m, method in made.items()}


def consumers_of(graph: Graph, on_npu: Callable[[int], bool], names: Iterable[str]) -> dict[str, list[Node]]:
    """The NPU nodes that read each value as an activation and write real numbers."""
    wanted = set(names)
    found: dict[str, list[Node]] = {name: [] for name in wanted}
    for index, node in enumerate(graph.nodes):
        if on_npu(index) and graph.type(node.outputs[0]).dtype == "float32":
            for name in wanted & set(node.inputs):
                found[name].append(node)
    return {name: nodes for name, nodes in found.items() if nodes}


def judged(
    graph: Graph,
    on_npu: Callable[[int], bool],
    spans: Mapping[str, Sequence[Span]],
    grids: Mapping[str, Grid],
    feeds: Iterable[Mapping[str, Array]],
) -> dict[str, Real]:
    """Per value [consumers, spans]: squared error of a consumer's output when the value alone has this range's codes.

    One pass of the float network per sample shows all the values; a consumer is run once per range, by itself.
    """
    consumers = consumers_of(graph, on_npu, spans)
    sessions = {id(n): _alone(graph, n) for nodes in consumers.values() for n in nodes}
    read = {v for _, inputs in sessions.values() for v in inputs}
    shown = [v for v in sorted({*consumers, *read}) if v not in graph.inputs]
    whole = session(export_model(graph, shown)) if shown else None
    fed = {i.name for i in whole.get_inputs()} if whole is not None else set()
    losses = {name: np.zeros((len(consumers[name]), len(spans[name]))) for name in consumers}
    for feed in feeds:
        made = whole.run(shown, {n: v for n, v in feed.items() if n in fed}) if whole is not None else []
        values = {**feed, **dict(zip(shown, made, strict=True))}
        for name, nodes in consumers.items():
            rounded = [_rounded(values[name], span, grids[name]) for span in spans[name]]
            for i, node in enumerate(nodes):
                runner, inputs = sessions[id(node)]
                others = {v: values[v] for v in inputs}
                truth = runner.run(None, others)[0].astype(np.float64)
                for j, array in enumerate(rounded):
                    output = runner.run(None, {**others, name: array})[0]
                    losses[name][i, j] += float(((output - truth) ** 2).sum())
    return losses


def _alone(graph: Graph, node: Node) -> tuple[onnxruntime.InferenceSession, list[str]]:
    """A session of one node, and the values it is fed."""
    inputs = [v for v in dict.fromkeys(node.inputs) if v and graph.const(v) is None]
    return session(export_model(graph, [node.outputs[0]], [node], inputs)), inputs


def _rounded(array: Array, span: Span, grid: Grid) -> Array:
    """The values that the codes of a range stand for."""
    kind = activation_type(*span, grid)
    codes = quantize(array, kind.scale[0], kind.zero_point[0], kind.lo, kind.hi)
    return ((codes - kind.zero_point[0]) * kind.scale[0]).astype(np.float32)


def best(spans: Sequence[Span], losses: Real) -> int:
    """The best range of each consumer, and of these the largest."""
    each = {int(np.argmin(row)) for row in losses}
    return max(each, key=lambda j: spans[j][1] - spans[j][0])
