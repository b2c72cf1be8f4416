"""Ranges judged by what they do to the layers that read the tensor: the [tune] and [search] tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.tables import Config
from npuflow.base.tables import Range as Within
from npuflow.calibrators import CALIBRATORS, Grid
from npuflow.ir.graph import Graph
from npuflow.ir.loops import steps_of
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import Array, TensorType, Value
from npuflow.onnx.export import session_model
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.quantise.types import activation_type
from npuflow.run.floats import FloatRun, plain_session
from npuflow.run.qdq import QdqBuilder
from npuflow.tune import tuned
from npuflow.tune.ranges.thresholds import RangeChoice, Ranges

Real = npt.NDArray[np.float64]
Span = tuple[float, float]
Attributes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Tune(Config):
    """Try ranges between the KL threshold and the extrema; the table switches the step on."""

    candidates: Annotated[int, Within(2, 100)] = 10
    """Ranges tried per tensor, the one it has not counted."""
    samples: Annotated[int, Within(1, None)] = 8
    """Calibration samples whose layers are run with each."""


@dataclass(frozen=True)
class SearchTable(Config, table="search"):
    """Try threshold methods; the table switches the step on."""

    methods: tuple[Annotated[str, CALIBRATORS], ...] = ("minmax", "percentile", "kl", "mse", "octav", "ema")
    """With their defaults; the recipe's own method is tried with its options."""
    objective: Literal["sqnr", "cosine", "metric"] = "sqnr"
    """The outputs against the float network's, or what the metric of [search.labelled]
    says (of equals the best SQNR)."""
    mix: bool = True
    """Also try a mixture: for each tensor the method that its consumers' outputs like best."""
    samples: Annotated[int, Within(2, None)] = 16
    """Calibration samples that judge."""


def spans_to_tune(chosen: Mapping[str, RangeChoice], ranges: Ranges, tune: Tune) -> dict[str, list[Span]]:
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


def spans_to_search(chosen: Mapping[str, RangeChoice], methods: Sequence[str]) -> dict[str, dict[str, Span]]:
    """Per method the range of every tensor."""
    made = {name: CALIBRATORS[name]() for name in methods}
    return {
        m: {n: replace(one, method=method).range() for n, one in chosen.items()} for m, method in made.items()
    }


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
    """Per value [consumers, spans]: squared error of a consumer's output when the
    value alone has this range's codes.

    One pass of the float network per sample shows many values; one run per value then
    has all its ranges and consumers.
    """
    consumers, held = consumers_of(graph, on_npu, spans), list(feeds)
    found = {name: np.zeros((len(nodes), len(spans[name]))) for name, nodes in consumers.items()}
    read = {name: _read(graph, nodes) for name, nodes in consumers.items()}
    network = FloatRun.of(graph, sorted({v for some in read.values() for v in some}))
    for names in _together(graph, consumers, spans):
        models = {name: _Rounded(graph, name, consumers[name], spans[name], grids[name]) for name in names}
        shown = {v for name in names for v in read[name]}
        for feed in held:
            values = {**feed, **network.run(feed, [v for v in network.made if v in shown])}
            for name, one in models.items():
                found[name] += one.losses(values)
    return found


def _together(
    graph: Graph, consumers: Mapping[str, Sequence[Node]], spans: Mapping[str, Sequence[Span]]
) -> Iterator[list[str]]:
    """Values in parts whose models fit into memory: each holds the consumers' weights once per range."""
    part: list[str] = []
    size = 0
    for name, nodes in consumers.items():
        held = [c for n in nodes for c in (graph.const(v) for v in n.inputs if v) if c is not None]
        own = sum(c.nbytes for c in held) * len(spans[name])
        if part and size + own > tuned.RANGE_WEIGHTS:
            yield part
            part, size = [], 0
        part.append(name)
        size += own
    if part:
        yield part


def _read(graph: Graph, nodes: Iterable[Node]) -> list[str]:
    """What some nodes read that is no constant."""
    return [v for v in dict.fromkeys(v for n in nodes for v in n.inputs) if v and graph.const(v) is None]


class _Rounded:
    """One value's ranges and consumers as one model: every range's codes, every consumer
    of each, every squared error."""

    def __init__(
        self, graph: Graph, name: str, nodes: Sequence[Node], spans: Sequence[Span], grid: Grid
    ) -> None:
        self.inputs = _read(graph, nodes)
        self.shape, own = (len(nodes), len(spans)), steps_of(graph)
        self.steps = {v: own[v] for v in self.inputs if v in own}
        self.kinds = {v: graph.type(v).shape for v in self.steps}
        kind, types = graph.type(name), [activation_type(*span, grid) for span in spans]
        coded = {f"{name}@{j}": Value(f"{name}@{j}", kind, quant) for j, quant in enumerate(types)}
        self.builder = QdqBuilder(
            graph.replaced(
                outputs=(), nodes=(), values=MappingProxyType({**graph.values, **coded}), state=()
            )
        )
        for value_id, value in coded.items():
            self.builder.quantise(name, value_id, value)
        wanted = []
        for i, node in enumerate(nodes):
            truth = self._consumer(graph, node, {}, f"{i}")
            for j, value_id in enumerate(coded):
                output = self._consumer(graph, node, {name: self.builder.real(value_id)}, f"{i}/{j}")
                self._host("Sub", (output, truth), f"{i}/{j}/error", self.builder.values[output].type)
                self._host(
                    "ReduceSumSquare",
                    (f"{i}/{j}/error",),
                    f"{i}/{j}/loss",
                    TensorType(()),
                    (("keepdims", 0),),
                )
                wanted.append(f"{i}/{j}/loss")
        self.session = plain_session(session_model(self.builder.graph(self.inputs, wanted)))

    def losses(self, values: Mapping[str, Array]) -> Real:
        """Of one sample; of a value in a loop those of all steps together."""
        steps = max(self.steps.values(), default=1)
        parts = {v: np.split(values[v], steps) if v in self.steps else [values[v]] for v in self.inputs}
        found = []
        for step in range(steps):
            fed = {v: some[step % len(some)] for v, some in parts.items()}
            fed.update((v, fed[v].reshape(shape)) for v, shape in self.kinds.items())
            found.append(self.session.run(None, fed))
        return np.array(found, np.float64).sum(0).reshape(self.shape)

    def _consumer(self, graph: Graph, node: Node, instead: Mapping[str, str], suffix: str) -> str:
        """The node once more, with another input; its first output's name. The border of a loop gives what it
        takes."""
        if node.op.border_of_loop:
            made, source = f"{node.outputs[0]}/{suffix}", node.inputs[0]
            self._host("Identity", (instead.get(source) or source,), made, graph.type(source))
            return made
        outputs = [f"{o}/{suffix}" if o else "" for o in node.outputs]
        for made, old in zip(outputs, node.outputs, strict=True):
            if made:
                self.builder.values[made] = Value(made, graph.type(old))
        inputs = tuple(instead.get(v) or (v and self.builder.real(v)) for v in node.inputs)
        self.builder.nodes.append(replace(node, inputs=inputs, outputs=tuple(outputs)))
        return outputs[0]

    def _host(
        self,
        op_type: str,
        inputs: tuple[str, ...],
        output: str,
        kind: TensorType,
        attributes: Attributes = (),
    ) -> None:
        op = OPS["host"](op_type=op_type, version=EXPORT_OPSET, attributes=attributes, types=(kind,))
        self.builder.values[output] = Value(output, kind)
        self.builder.nodes.append(Node(op, inputs, (output,)))


def best(spans: Sequence[Span], losses: Real) -> int:
    """The best range of each consumer, and of these the largest."""
    each = {int(np.argmin(row)) for row in losses}
    return max(each, key=lambda j: spans[j][1] - spans[j][0])
