"""Finds the residual stream of a pre-norm transformer.
That is the values that additions carry from block to block, the layers that write to it, and the
normalisations that alone read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.tune.correct.fold_back import Refused

SQUARES = ("power", "product")


@dataclass(frozen=True)
class StreamNorm:
    """A normalisation of a stream value. `inside`: results of the nodes that read the value; `centred`: the
    value without its mean (the value itself where no mean is subtracted); `quotient`: the division; `out`:
    the result with `factor` and `addend` (None: it has none)."""

    value: str
    inside: tuple[str, ...]
    centred: str
    quotient: Node
    out: str
    factor: Array | None = None
    addend: Array | None = None


@dataclass(frozen=True)
class StreamWriter:
    """What an addition adds to a stream: through `tail`, operators that keep channels in place, comes the
    result of `layer` (None: of something that is no layer). `factor`: of each channel, on the way."""

    value: str
    layer: Node | None
    factor: Array | None = None
    scaled: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResidualStream:
    """`values`: all of them, of `width` channels along the last dimension; `roots`: those that no addition
    makes."""

    width: int
    values: tuple[str, ...]
    roots: tuple[str, ...]
    norms: tuple[StreamNorm, ...]
    writers: tuple[StreamWriter, ...]


def streams(graph: Graph, moves: bool = False) -> list[ResidualStream]:
    """Those of a network. `moves`: rows of a stream that are picked belong to it. Refused: why there is
    none."""
    view = _View(graph, moves)
    norms = {one.value: one for one in map(view.norm, graph.nodes) if one is not None}
    if not norms:
        raise Refused("no LayerNorm or RMSNorm over channels was found")
    found: list[ResidualStream] = []
    seen: set[str] = set()
    for value in norms:
        if value not in seen:
            one = view.stream(value, norms)
            seen |= set(one.values)
            found.append(one)
    return found


@dataclass
class _View:
    graph: Graph
    moves: bool = False

    def __post_init__(self) -> None:
        self.makers: Mapping[str, Node] = self.graph.producer()
        self.readers = self.graph.consumers()

    def norm(self, node: Node) -> StreamNorm | None:
        """The normalisation that ends in this quotient."""
        if node.op.algebra != "quotient" or any(self.graph.const(v) is not None for v in node.inputs):
            return None
        centred, deviation = node.inputs
        chain: list[Node] = []
        for wanted in (("root",), ("sum",), ("mean",), SQUARES):
            made = self.makers.get(deviation)
            if made is None or made.op.algebra not in wanted:
                return None
            chain.append(made)
            deviation = next(v for v in made.inputs if self.graph.const(v) is None)
        square, mean = chain[3], chain[2]
        rank = len(self.graph.type(centred).shape)
        if deviation != centred or mean.op.reduced(rank) != (rank - 1,):
            return None
        consts = map(self.graph.const, square.inputs)
        probe = [np.array([-3.0, 2.0]) if one is None else one for one in consts]
        if not np.allclose(square.op.reference(*probe)[0], (9.0, 4.0)):
            return None
        value, inside = centred, (square.outputs[0], node.outputs[0])
        sub = self.makers.get(centred)
        if sub is not None and sub.op.algebra == "difference":
            first = self.makers.get(sub.inputs[1])
            if first is not None and first.op.algebra == "mean" and first.inputs[0] == sub.inputs[0]:
                if first.op.reduced(rank) != (rank - 1,) or len(self.readers[centred]) != 2:
                    return None
                value, inside = sub.inputs[0], (first.outputs[0], sub.outputs[0])
        out, factor = self._constant(node.outputs[0], "product")
        out, addend = self._constant(out, "sum")
        return StreamNorm(value, inside, centred, node, out, factor, addend)

    def _constant(self, value: str, what: str) -> tuple[str, Array | None]:
        """The result of the only reader where it is a product or sum with a constant by channel."""
        readers = self.readers.get(value, [])
        if len(readers) != 1 or readers[0].op.algebra != what or value in self.graph.outputs:
            return value, None
        other = [v for v in readers[0].inputs if v != value]
        stored = self.graph.const(other[0]) if other else None
        width = self.graph.type(value).shape[-1]
        if stored is None or stored.size not in (1, width) or stored.shape[-1:] not in ((width,), (1,), ()):
            return value, None
        return readers[0].outputs[0], np.broadcast_to(stored.astype(np.float64).reshape(-1), (width,))

    def stream(self, start: str, norms: Mapping[str, StreamNorm]) -> ResidualStream:
        """The values that additions tie to one."""
        width = self.graph.type(start).shape[-1]
        values, left, writers = dict[str, None](), [start], list[StreamWriter]()
        while left:
            value = left.pop()
            if value in values:
                continue
            values[value] = None
            made = self.makers.get(value)
            for operand in self._summed(made):
                if self._shared(operand):
                    left.append(operand)
                else:
                    writers.append(self._writer(operand))
            left += self._read(value, norms)
        roots = tuple(v for v in values if not self._made_of(self.makers.get(v), values))
        used = tuple(one for v, one in norms.items() if v in values)
        return ResidualStream(width, tuple(values), roots, used, tuple(writers))

    def _summed(self, node: Node | None) -> Sequence[str]:
        """The operands of an addition of two computed values of one shape."""
        if node is None or node.op.algebra != "sum":
            return ()
        if any(self.graph.const(v) is not None for v in node.inputs):
            return ()
        same = {self.graph.type(v).shape for v in (*node.inputs, *node.outputs)}
        return node.inputs if len(same) == 1 else ()

    def _made_of(self, node: Node | None, values: Mapping[str, None]) -> bool:
        """Whether a value is a sum, or rows of another value of the stream."""
        if node is None or self._summed(node):
            return node is not None
        return node.inputs[0] in values and self._picks(node)

    def _shared(self, value: str) -> bool:
        return len(self.readers[value]) > 1

    def _read(self, value: str, norms: Mapping[str, StreamNorm]) -> list[str]:
        """The sums that read a value; everything else must be its normalisation."""
        if value in self.graph.outputs:
            raise Refused(f'the residual stream "{value}" is an output of the network')
        inside = norms[value].inside if value in norms else ()
        found = []
        for node in self.readers[value]:
            if node.outputs[0] in inside:
                continue
            if not self._summed(node) and not self._picks(node):
                raise Refused(
                    f"{node.name} reads the residual stream without a normalisation (as where blocks end "
                    "in a normalisation: post-norm)"
                )
            found.append(node.outputs[0])
        return found

    def _picks(self, node: Node | None) -> bool:
        """Whether a node moves whole rows of its one computed input, channels in their order."""
        if not self.moves or node is None or not node.op.moves_data:
            return False
        site = self.graph.site(node)
        if any(self.graph.const(v) is None for v in node.inputs[1:] if v) or len(site.out_shape) < 1:
            return False
        width, shape = site.out_shape[-1], site.shape(0)
        if not shape or shape[-1] != width:
            return False
        channels = np.broadcast_to(np.arange(width), shape)
        made = np.asarray(node.op.reference(channels, *site.consts[1:])[0])
        return np.array_equal(made, np.broadcast_to(np.arange(width), made.shape))

    def _writer(self, value: str) -> StreamWriter:
        """The layer behind an operand, and what scales its channels on the way."""
        factor, scaled, at = None, list[str](), value
        while True:
            node = self.makers.get(at)
            if node is None or len(self.readers[at]) != 1 or node.op.clip is not None:
                return StreamWriter(value, None)
            if node.op.algebra == "affine" and self.graph.const(node.inputs[1]) is not None:
                return StreamWriter(value, node, factor, tuple(scaled))
            if node.op.algebra == "product" and factor is None:
                before = next((v for v in node.inputs if self.graph.const(v) is None), "")
                out, factor = self._constant(before, "product") if before else ("", None)
                if factor is None or out != at:
                    return StreamWriter(value, None)
                scaled.append(at)
                at = before
            elif node.op.algebra == "view" and self._kept(node):
                at = node.inputs[0]
            else:
                return StreamWriter(value, None)

    def _kept(self, node: Node) -> bool:
        shapes = self.graph.type(node.inputs[0]).shape, self.graph.type(node.outputs[0]).shape
        return shapes[0][-1] == shapes[1][-1]
