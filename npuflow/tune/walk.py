"""A graph run stretch by stretch over many samples at once, so that changing a layer
recomputes the layer alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from npuflow.base.processors import PROCESSORS
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph
from npuflow.ir.loops import after, before
from npuflow.ir.types import Array
from npuflow.onnx.export import session_model
from npuflow.run.floats import plain_session
from npuflow.run.qdq import QdqBuilder

Feed = Mapping[str, Array]


@dataclass
class WalkedStretch:
    """A stretch from where a walk is, and what it made of each sample so far."""

    graph: Graph
    stop: int
    outputs: list[str]
    session: Any
    bytes: int                            # of memory that a sample takes, roughly
    rows: dict[int, list[Array]] = field(default_factory=dict)


@dataclass
class SampleWalk:
    """Samples on their way through a float or quantised graph. Of what was computed only what later nodes
    read is kept (and the graph's outputs), as codes where there are codes, and as float32 numbers where the
    type is a narrower float.

    Integer nodes run as float operators between exact roundings to codes, in onnxruntime: the codes are those
    of the integer specification but for sums that lie within float32's error of a rounding boundary.
    """

    graph: Graph
    feeds: Sequence[Feed]
    at: int = 0                           # nodes before this one are done
    values: dict[str, list[Array]] = field(default_factory=dict)
    tried: list[WalkedStretch] = field(default_factory=list)

    def __post_init__(self) -> None:
        for value_id in self.graph.inputs:
            quant = self.graph.values[value_id].quant
            fed = [f[value_id] for f in self.feeds]
            coded = quant is not None and fed and fed[0].dtype.kind == "f"
            self.values[value_id] = [encode(a, quant) for a in fed] if quant is not None and coded else fed

    def to(self, stop: int, keep: Iterable[str] = ()) -> None:
        """Run the nodes up to (not with) `stop`, or up to the loop that it lies in; `keep`: values wanted
        although no later node reads them."""
        stop = before(self.graph, stop)
        if stop > self.at:
            wanted = {*self._needed_from(stop), *keep}
            made = self.ahead(stop, wanted)
            self.values = {k: v for k, v in {**self.values, **made}.items() if k in wanted}
            self.at = stop
            self.tried = []

    def ahead(
        self, stop: int, wanted: Iterable[str], graph: Graph | None = None, samples: slice = slice(None)
    ) -> dict[str, list[Array]]:
        """Values that the nodes up to `stop` make, without going there; `graph`: the same nodes with other
        constants. What was made once from here is not made again."""
        graph = graph or self.graph
        nodes = range(self.at, stop)
        made = {o for i in nodes for o in graph.nodes[i].outputs if o}
        outputs = [v for v in dict.fromkeys(wanted) if v in made]
        places = range(*samples.indices(len(self.feeds)))
        if not outputs or not places:
            return {v: [] for v in outputs}
        one = next(
            (t for t in self.tried if t.graph is graph and t.stop == stop and t.outputs == outputs), None
        )
        if one is None:
            read = [
                v for v in dict.fromkeys(v for i in nodes for v in graph.nodes[i].inputs) if v in self.values
            ]
            session = stretch(graph, nodes, read, outputs)
            one = WalkedStretch(graph, stop, outputs, session, pass_bytes(graph, nodes))
            self.tried.append(one)
        fed = [i.name for i in one.session.get_inputs()]
        session, missing = one.session, [k for k in places if k not in one.rows]
        rows = PROCESSORS.all_of(
            lambda k: session.run(None, {v: self.values[v][k] for v in fed}), missing, one.bytes
        )
        one.rows.update(zip(missing, rows, strict=True))
        return {v: [one.rows[k][j] for k in places] for j, v in enumerate(outputs)}

    def read(self, node: int, value_id: str) -> list[Array]:
        """What a node reads, of every sample; in a loop what all steps made, stacked. The walk has come as
        far as it goes without that node."""
        if value_id in self.values:
            return self.values[value_id]
        return self.ahead(after(self.graph, node), [value_id])[value_id]

    def real(self, value_id: str, arrays: Sequence[Array]) -> list[Array]:
        """Codes of a value as the numbers they stand for; floats as they are."""
        value = self.graph.values[value_id]
        if value.quant is None or value.number:
            return list(arrays)
        return [decode(a, value.quant) for a in arrays]

    def _needed_from(self, start: int) -> set[str]:
        return {*self.graph.outputs, *(v for n in self.graph.nodes[start:] for v in n.inputs if v)}


def pass_bytes(graph: Graph, nodes: Iterable[int] | None = None) -> int:
    """What a pass of a sample through these nodes, or all, takes of memory, roughly: some values as large as
    the largest, as floats."""
    some = range(len(graph.nodes)) if nodes is None else nodes
    made = (graph.type(o) for i in some for o in graph.nodes[i].outputs if o)
    return 4 * max((4 * prod(kind.shape) for kind in made), default=0)


def stretch(
    graph: Graph, nodes: Iterable[int], inputs: Sequence[str], outputs: Sequence[str]
) -> Any:
    """Some consecutive nodes as a session of their own, codes in and codes out; numbers of the NPU's float
    types are float32, because numpy does not have them all."""
    builder = QdqBuilder(graph)
    for value_id in inputs:
        if graph.values[value_id].number:
            builder.number_input(value_id)
        elif graph.values[value_id].quant is not None:
            builder.coded_input(value_id)
    for i in nodes:
        builder.node(graph.nodes[i])
    shown = [builder.real(v) if graph.values[v].number else v for v in outputs]
    return plain_session(session_model(builder.graph(inputs, shown)))
