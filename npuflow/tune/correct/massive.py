"""Carries massive channels of a decoder's residual stream at a fraction of their scale.

The first token of a text reaches a hundred times what all others do, in one or two channels of the stream.
Codes of 16 bits that hold it leave few to the others. A power of two less in these channels is exact in
floats: rows of the weights that write to the stream are scaled, and the scales of the norms that read it.

Root mean squares of such rows in 16 bits: a row is divided by its own peak before it is squared, as squares
of the massive one would leave nothing to the others. Where a layer's results are normalised, the first
token's may be the row that is far smaller than all others. A code of a peak is exact, a share of it is
rounded to 2^-15, the mean of squares lies between 1 / width and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph, prune
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import Array, FloatType, GroupedType, QuantType, Value
from npuflow.ir.verify import verify
from npuflow.run.floats import FloatRun
from npuflow.tune.correct.fold_back import Refused
from npuflow.tune.correct.products import ProductEdits
from npuflow.tune.correct.residual import ResidualStream, StreamNorm, StreamWriter, streams
from npuflow.tune.walk import Feed

Real = npt.NDArray[np.float64]
Types = Mapping[str, QuantType | FloatType | GroupedType]
FAR = 32.0                                # times what the median channel reaches: a channel is massive
APART = 16.0                              # times the smallest row's root mean square: the largest is massive
LOWEST = 2.0 ** -14                       # of the largest peak of a value: smaller ones count as this one


@dataclass(frozen=True)
class MassiveStream:
    """What is done to a stream: by channel the power of two that it is divided by, and by value of the stream
    the largest magnitude that samples had there, before that. `bounds`: of values of its norms, which no row
    leaves, whatever samples had."""

    channels: tuple[tuple[int, int], ...]
    peaks: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def factors(self, width: int) -> Real:
        found = np.ones(width)
        for channel, power in self.channels:
            found[channel] = 2.0 ** power
        return found


MassiveStreams = Mapping[str, MassiveStream]
"""By the first root of a stream."""


def massive(graph: Graph, feeds: Sequence[Feed]) -> MassiveStreams:
    """The streams that have channels far above all others on samples, or rows: a rotation of the stream
    spreads the massive channel of a token over all of them."""
    known = {one.roots[0]: one for one in _plain(graph)}
    names = list(dict.fromkeys(v for one in known.values() for v in one.values))
    if not names or not feeds:
        return {}
    run, reach, sizes = FloatRun.of(graph, names), dict[str, Real](), dict[str, list[Real]]()
    for feed in feeds:
        values = {**feed, **run.run(feed)}
        for name in names:
            array = values[name].astype(np.float64).reshape(-1, values[name].shape[-1])
            reach[name] = np.maximum(reach.get(name, 0.0), np.abs(array).max(0))
            sizes.setdefault(name, []).append(np.sqrt(np.square(array).mean(1)))
    found = {}
    for root, stream in known.items():
        medians = {v: float(np.median(reach[v])) for v in stream.values}
        if not all(medians.values()):         # most channels are silent: nothing tells what is usual
            continue
        usual = np.stack([reach[v] / medians[v] for v in stream.values]).max(0)
        far = tuple((int(c), ceil(log2(usual[c] / FAR))) for c in np.flatnonzero(usual > FAR))
        if len(far) < stream.width // 2 and (far or any(_apart(sizes[v]) for v in stream.values)):
            found[root] = MassiveStream(far, {v: float(reach[v].max()) for v in stream.values})
    return found


def _apart(sizes: Sequence[Real]) -> bool:
    """Whether some rows are far larger than others; rows of zeros are none."""
    every = np.concatenate(sizes)
    return bool(every.max() > APART * every[every > 0].min(initial=inf))


@dataclass(frozen=True)
class ScaledStreams:
    """The network with streams in other scales, the types of its weights that are stated, and the streams
    with the bounds of what their norms make."""

    graph: Graph
    stated: Mapping[str, Any]
    streams: MassiveStreams


def carried(graph: Graph, stated: Types, found: MassiveStreams) -> ScaledStreams:
    """Scale what writes to the streams and what reads them."""
    types, known = dict(stated), dict(found)
    for root, one in found.items():
        stream = next((s for s in _plain(graph) if s.roots[0] == root), None)
        if stream is not None:
            work = _Carrying(graph, stream, one, types)
            graph = work.done()
            known[root] = replace(one, bounds=work.bounds)
    return ScaledStreams(graph, types, known)


def _plain(graph: Graph) -> list[ResidualStream]:
    """Streams that root mean squares read, and nothing that takes a mean out."""
    try:
        every = streams(graph, moves=True)
    except Refused:
        return []
    return [one for one in every if one.roots and all(n.centred == n.value for n in one.norms)]


@dataclass
class _Carrying:
    """One stream. `types`: those of weights that the model states, changed in place."""

    graph: Graph
    stream: ResidualStream
    massive: MassiveStream
    types: dict[str, Any]
    behind: dict[str, list[Node]] = field(default_factory=dict)       # by the value that they stand behind
    instead: dict[str, str] = field(default_factory=dict)             # values that readers take
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edits = ProductEdits(self.graph)
        self.factors = self.massive.factors(self.stream.width)
        self.makers, self.readers = self.graph.producer(), self.graph.consumers()

    def done(self) -> Graph:
        if self.massive.channels:
            for writer in self.stream.writers:
                if writer.layer is None or not self._scaled(writer):
                    self._divided(writer.value)
            for root in self.stream.roots:
                self._divided(root)
        made = {norm.quotient.outputs[0]: self._normed(norm) for norm in self.stream.norms}
        nodes = [n for v in self.graph.inputs for n in self.behind.get(v, ())]
        for node in self.graph.nodes:
            now = self.edits.nodes[node.outputs[0]]
            now = replace(now, inputs=tuple(self.instead.get(v, v) for v in now.inputs))
            nodes += made.get(node.outputs[0], [now])
            nodes += [n for v in node.outputs for n in self.behind.get(v, ())]
        return verify(prune(self.edits.done(nodes)), "scaling channels of the residual stream")

    # --- what writes to the stream
    def _scaled(self, writer: StreamWriter) -> bool:
        """Whether the layer's own weights take the factors."""
        node = writer.layer
        assert node is not None
        own = [v for v in node.inputs[1:] if v]
        weight, *more = (self.graph.const(v) for v in own)
        axis = node.op.channel_axis(self.graph.site(node), 1)
        if axis is None or weight is None or any(len(self.readers[v]) > 1 for v in own):
            return False
        if weight.shape[axis] != len(self.factors) or any(b is None or b.ndim > 1 for b in more):
            return False
        if own[0] in self.types:
            kind = self.types[own[0]]
            changed = self._grouped(kind, weight.shape) if isinstance(kind, GroupedType) else None
            if changed is None:
                return False
            self.types[own[0]] = changed
        by = self.factors.reshape([-1 if d == axis else 1 for d in range(weight.ndim)])
        self._store(own[0], weight / by)
        for name, bias in zip(own[1:], more, strict=True):
            assert bias is not None
            self._store(name, bias / self.factors)
        return True

    def _grouped(self, kind: GroupedType, shape: tuple[int, ...]) -> GroupedType | None:
        """The same codes with scales and minima of rows divided; None where float16 has not the new ones."""
        groups = kind.groups(shape)
        if kind.axis is None or len(groups.scales) != len(self.factors):
            return None
        by = self.factors[:, None]
        minima = None if groups.minima is None else (groups.minima / by).astype(np.float32)
        made = replace(groups, scales=(groups.scales / by).astype(np.float32), minima=minima)
        return GroupedType.of(made, kind.axis, kind.loaded) if made.exact == groups.exact else None

    def _store(self, name: str, array: Array) -> None:
        """Another array for a constant that one layer reads."""
        other = self.edits.store(f"{name}:carried", array)
        value = self.edits.values.pop(other)
        self.edits.values[name] = replace(value, id=name)

    def _divided(self, value: str) -> None:
        """A product behind a value, which its readers take."""
        by = self.edits.store(f"{value}:factors", 1 / self.factors)
        node = self._node(OPS["mul"](), (value, by), f"{value}:carried")
        self.behind.setdefault(value, []).append(node)
        self.instead[value] = node.outputs[0]

    # --- what reads it
    def _normed(self, norm: StreamNorm) -> list[Node]:
        """x over its root mean square, scaled by the row's own peak before it is squared."""
        y, x = norm.quotient.outputs[0], self.instead.get(norm.value, norm.value)
        own, nodes = (len(self.edits.values[x].type.shape) - 1,), list[Node]()

        def add(op: Op, inputs: Sequence[str | float], what: str) -> str:
            name = f"{y}:{what}" if what else y
            store = self.edits.store
            taken = [v if isinstance(v, str) else store(f"{y}:number", np.array(v)) for v in inputs]
            nodes.append(self._node(op, taken, name, norm.quotient.origin))
            return name

        least = LOWEST * self.massive.peaks[self._seen(norm.value)]
        whole = x
        if self.massive.channels:
            whole = add(OPS["mul"](), (x, self.edits.store(f"{y}:factors", self.factors)), "whole")
        size = add(OPS["abs"](), (whole,), "size")
        peak = add(OPS["reducemax"](axes=own, clip=(least, inf)), (size,), "peak")
        share = add(OPS["div"](), (whole, peak), "share")
        square = add(OPS["mul"](), (share, share), "square")
        mean = add(OPS["reducemean"](axes=own), (square,), "variance")
        root = add(OPS["div"](), (float(np.sqrt(self._epsilon(norm))), peak), "root")
        more = add(OPS["mul"](), (root, root), "epsilon")
        total = add(OPS["add"](), (mean, more), "offset")
        deviation = add(OPS["sqrt"](), (total,), "deviation")
        self.bounds |= {share: (-1.0, 1.0), **dict.fromkeys((square, mean, total, deviation), (0.0, 1.0))}
        if norm.factor is None or not self.massive.channels:
            add(OPS["div"](), (share, deviation), "")
            return nodes
        part = add(OPS["div"](), (x, peak), "part")
        self.bounds[part] = (-1.0, 1.0)
        add(OPS["div"](), (part, deviation), "")
        product = self.readers[y][0]
        at = next(i for i, v in enumerate(product.inputs) if v != y)
        gain = self.edits.store(f"{product.inputs[at]}:carried", norm.factor * self.factors)
        inputs = tuple(gain if i == at else v for i, v in enumerate(product.inputs))
        self.edits.nodes[product.outputs[0]] = replace(product, inputs=inputs)
        return nodes

    def _seen(self, value: str) -> str:
        """The value of which samples were seen that a value has rows of."""
        while value not in self.massive.peaks:
            value = self.makers[value].inputs[0]
        return value

    def _epsilon(self, norm: StreamNorm) -> float:
        total = self.makers[self.makers[norm.quotient.inputs[1]].inputs[0]]
        return next(float(c.reshape(-1)[0]) for v in total.inputs if (c := self.graph.const(v)) is not None)

    def _node(self, op: Op, inputs: Sequence[str], name: str, origin: tuple[str, ...] = ()) -> Node:
        """An operator whose result is a new value, or one that another node made."""
        (made,) = op.infer(*(self.edits.values[v].type for v in inputs))
        self.edits.values[name] = Value(name, made)
        return Node(op, tuple(inputs), (name,), origin or (name,))
