"""A block's outputs and their gradients in numpy: what block reconstruction descends along.

Products with constant weights are those of the layer's columns (operator contract: `columns`, `rows`); the
slope of a function of single elements is the difference quotient of its own float semantics; operators that
move elements give gradients back to where the elements came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node, bound_array
from npuflow.ir.types import Array
from npuflow.ir.windows import Taps
from npuflow.tune.rounding.blocks import LayerBlock
from npuflow.tune.rounding.kernels import given_back, taken

Floats = npt.NDArray[np.float32]

STEP = 2.0**-10                           # of difference quotients, as a share of the number, at least of one


@dataclass(frozen=True)
class LayerRows:
    """What a layer multiplies its columns by, [groups, outputs, terms], and what it adds, one number an
    output."""

    rows: Floats
    bias: Floats | None


@dataclass
class BlockPass:
    """One sample's way through a block and back. `layers`: the layers that may change, by node; the others
    are as the graph has them."""

    graph: Graph
    block: LayerBlock
    _taps: dict[int, Taps] = field(default_factory=dict)
    _fixed: dict[int, LayerRows] = field(default_factory=dict)

    def forward(self, source: Array, layers: Mapping[int, LayerRows]) -> dict[str, Array]:
        """Every value of the block."""
        made: dict[str, Array] = {self.block.source: np.asarray(source, np.float32)}
        for at in range(self.block.first, self.block.stop):
            node = self.graph.nodes[at]
            if node.op.places(self.graph.site(node)):
                affine = layers.get(at) or self.affine(at)
                made[node.outputs[0]] = self._product(at, made[node.inputs[0]], affine)
            else:
                given = [made[v] if v in made else self.graph.const(v) for v in node.inputs]
                made[node.outputs[0]] = np.asarray(node.op.clipped(*given)[0], np.float32)
        return made

    def backward(
        self, made: Mapping[str, Array], slope: Floats, layers: Mapping[int, LayerRows]
    ) -> dict[int, LayerRows]:
        """The gradients of the layers. `slope`: that of the block's output."""
        slopes: dict[str, Floats] = {self.block.result: slope}
        found: dict[int, LayerRows] = {}
        for at in reversed(range(self.block.first, self.block.stop)):
            node = self.graph.nodes[at]
            own = slopes.pop(node.outputs[0], None)
            if own is None:
                continue
            if node.op.places(self.graph.site(node)):
                affine = layers.get(at) or self.affine(at)
                back, gradient = self._product_back(at, made, own, affine)
                if at in layers:
                    found[at] = gradient
                shares = {node.inputs[0]: back}
            else:
                shares = self._shares(node, made, own)
            for name, share in shares.items():
                if name != self.block.source:
                    slopes[name] = slopes[name] + share if name in slopes else share
        return found

    def affine(self, at: int) -> LayerRows:
        """A layer as the graph has it."""
        if at not in self._fixed:
            node = self.graph.nodes[at]
            weight = next(i for i, v in enumerate(node.inputs) if v and node.op.role(i) == "weight")
            real = self.graph.const(node.inputs[weight])
            assert real is not None
            rows = node.op.rows(real)
            groups = node.op.column_groups()
            matrix = np.ascontiguousarray(rows.reshape(groups, len(rows) // groups, -1), np.float32)
            bias = self.graph.const(node.inputs[weight + 1]) if len(node.inputs) > weight + 1 else None
            flat = None if bias is None else np.broadcast_to(bias.reshape(-1), (len(rows),))
            self._fixed[at] = LayerRows(matrix, None if flat is None else flat.astype(np.float32))
        return self._fixed[at]

    def _seen(self, at: int, source: Array) -> tuple[Taps, Floats]:
        """A layer's columns [groups, places, terms]."""
        node = self.graph.nodes[at]
        if at not in self._taps:
            count = node.op.places(self.graph.site(node))
            self._taps[at] = node.op.columns(source.shape, np.arange(count))
        taps = self._taps[at]
        shape = node.op.column_groups(), len(taps.first), taps.channels * taps.first.shape[1]
        columns = np.empty(shape, np.float32)
        taken(np.ascontiguousarray(source).reshape(-1), taps.first, taps.step, columns)
        return taps, columns

    def _product(self, at: int, source: Array, affine: LayerRows) -> Array:
        node = self.graph.nodes[at]
        _, columns = self._seen(at, source)
        found = np.matmul(columns, affine.rows.swapaxes(1, 2)) * np.float32(node.op.gain())
        if affine.bias is not None:
            found += (affine.bias * np.float32(node.op.bias_factor())).reshape(len(found), 1, -1)
        real = self._laid_out(node, found)
        if node.op.clip is None:
            return real
        lo, hi = (bound_array(c, real.ndim).astype(np.float32) for c in node.op.clip)
        return np.asarray(np.clip(real, lo, hi))

    def _product_back(
        self, at: int, made: Mapping[str, Array], slope: Floats, affine: LayerRows
    ) -> tuple[Floats, LayerRows]:
        node, source = self.graph.nodes[at], made[self.graph.nodes[at].inputs[0]]
        taps, columns = self._seen(at, source)
        own = rows_of(self.graph, node, slope * inside(node, made[node.outputs[0]]))
        gain = np.float32(node.op.gain())
        rows = np.matmul(own.swapaxes(1, 2), columns) * gain
        bias = own.sum(1).reshape(-1) * np.float32(node.op.bias_factor())
        back = np.zeros(source.size, np.float32)
        if node.inputs[0] != self.block.source:
            given_back(np.matmul(own, affine.rows) * gain, taps.first, taps.step, back)
        return back.reshape(source.shape), LayerRows(rows, bias)

    def _laid_out(self, node: Node, found: Floats) -> Floats:
        """[groups, places, outputs] as the tensor lies: channels in front of places where there is a window.
        """
        shape = self.graph.type(node.outputs[0]).shape
        flat = np.moveaxis(found, 0, 1).reshape(found.shape[1], -1)
        if not _windowed(self.graph, node):
            return flat.reshape(shape)
        return np.ascontiguousarray(np.moveaxis(flat.reshape(shape[0], *shape[2:], shape[1]), -1, 1))

    def _shares(self, node: Node, made: Mapping[str, Array], slope: Floats) -> dict[str, Floats]:
        """The gradients of a node's operands that are not constant."""
        given = [made[v] if v in made else self.graph.const(v) for v in node.inputs]
        own = slope * inside(node, made[node.outputs[0]])
        found: dict[str, Floats] = {}
        for at, name in enumerate(node.inputs):
            if name not in made:
                continue
            back = moved_back if node.op.moves_data else _through
            share = back(node, given, at, own)
            found[name] = found[name] + share if name in found else share
        return found


def rows_of(graph: Graph, node: Node, real: Array) -> Array:
    """A tensor that lies as a layer's output does as [groups, places, outputs]."""
    groups = node.op.column_groups()
    last = np.moveaxis(real, 1, -1) if _windowed(graph, node) else real
    flat = last.reshape(-1, last.shape[-1])
    return np.ascontiguousarray(np.moveaxis(flat.reshape(len(flat), groups, -1), 1, 0))


def _windowed(graph: Graph, node: Node) -> bool:
    weight = next(i for i, v in enumerate(node.inputs) if v and node.op.role(i) == "weight")
    return len(graph.type(node.inputs[weight]).shape) > 2


def inside(node: Node, result: Array) -> Array:
    """Where a fused clip lets gradients pass."""
    if node.op.clip is None:
        return np.ones((), np.float32)
    lo, hi = (bound_array(c, result.ndim) for c in node.op.clip)
    return np.asarray((result > lo) & (result < hi), np.float32)


def _through(node: Node, given: Sequence[Array | None], at: int, slope: Floats) -> Floats:
    """Of one operand of an element-wise operator."""
    source = given[at]
    assert source is not None
    far = (np.maximum(np.abs(source), 1) * STEP).astype(np.float32)
    ends = []
    for sign in (1, -1):
        shifted = [source + sign * far if i == at else one for i, one in enumerate(given)]
        ends.append(np.asarray(node.op.reference(*shifted)[0], np.float64))
    found = np.asarray(slope * (ends[0] - ends[1]) / (2 * np.broadcast_to(far, ends[0].shape)))
    return folded(found, source.shape).astype(np.float32)


def folded(slope: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an operand of a shape from that of what it was broadcast to."""
    extra = slope.ndim - len(shape)
    slope = slope.sum(tuple(range(extra))) if extra else slope
    wide = tuple(d for d, n in enumerate(shape) if n == 1 and slope.shape[d] > 1)
    return np.asarray(slope.sum(wide, keepdims=True) if wide else slope)


def moved_back(node: Node, given: Sequence[Array | None], at: int, slope: Array) -> Floats:
    """Of the operand of an operator that moves its elements: each goes back to where it came from; what came
    from nowhere is fill."""
    source = given[at]
    assert source is not None

    def moved(first: int) -> Array:
        numbered = np.arange(first, first + source.size, dtype=np.float64).reshape(source.shape)
        operands = (numbered if i == at else one for i, one in enumerate(given))
        return np.asarray(node.op.reference(*operands)[0])

    places = moved(0)
    real = moved(source.size) - places == source.size
    found = np.bincount(places[real].astype(np.int64), slope[real], source.size)
    return found.reshape(source.shape).astype(np.float32)
