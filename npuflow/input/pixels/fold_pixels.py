"""Float graphs whose inputs become pixels: the normalisation moves through data movement
into the first weighted layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from npuflow.input.pixels.pixel_map import ChannelMap, Map, Reals, carried
from npuflow.input.pixels.pixel_padding import PixelBorder, added, bordered
from npuflow.input.pixels.pixels import TOP, Pixels
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph, prune
from npuflow.ir.op import OPS, No, Node, Op, Weights
from npuflow.ir.queries import kind, users
from npuflow.ir.types import Array, TensorType, Value
from npuflow.ir.verify import verify

# operators that the rewriting may introduce
MAKES = ("add", "concat", "conv", "host", "mul", "pad", "slice")
# a padding of its own for each of more channels costs more than it gives
MOST_CHANNELS = 16
HALF = 0.5 + 1e-9
ONE = 1e-5                                # by which float32 weights of a mean may miss 1


@dataclass(frozen=True)
class Folded:
    """The graph over pixels, the layers that pad them, and what was done where."""

    graph: Graph
    borders: tuple[PixelBorder, ...] = ()
    notes: tuple[str, ...] = ()
    # value -> the one that holds the source model's numbers of it
    real: Mapping[str, str] = field(default_factory=dict)


def fold(graph: Graph, inputs: Mapping[str, Pixels], copy: bool = True, absorb: bool = True) -> Folded:
    """The graph for inputs that hold pixels less `zero`: the same outputs, but for
    the padding that `borders` lists.
    `copy`: a padding that is wrong by more than half a pixel becomes an operator of its own, exact to half a
    pixel. `absorb` False: layers keep their weights, and one layer more normalises.
    """
    return _Folding(graph, copy, absorb).run(inputs)


@dataclass
class _Folding:
    source: Graph
    copy: bool
    absorb: bool
    maps: dict[str, Map] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)      # source value -> the one that holds its pixels
    # source value -> the one that holds its own numbers again
    real: dict[str, str] = field(default_factory=dict)
    borders: list[PixelBorder] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.net = Builder.over(self.source)

    def run(self, inputs: Mapping[str, Pixels]) -> Folded:
        for name, one in inputs.items():
            self.net.values[name] = Value(name, TensorType(self.source.type(name).shape, "float32"))
            rank = len(self.source.type(name).shape)
            scale, shift = one.along(one.scale, rank), one.along(one.shift, rank)
            self.maps[name] = Map(scale, shift + one.zero * scale, one.zero)
        for node in self.source.nodes:
            self.node(node)
        outputs = tuple(self.own(o) if o in self.maps else o for o in self.source.outputs)
        own = dict(zip(self.source.outputs, outputs, strict=True))
        state = tuple((own[output], given) for output, given in self.source.state)
        folded = self.net.graph(self.source.inputs, outputs)
        made = prune(folded.replaced(state=state, lengths=self.source.lengths))
        return Folded(
            verify(made, "folding the normalisation"), tuple(self.borders), tuple(self.notes), self.real
        )

    def node(self, node: Node) -> None:
        mapped = [i for i in node.inputs if i in self.maps]
        if not mapped:
            self.net.nodes.append(node)
            return
        if kind(node) == "host:cast" and self.source.type(node.outputs[0]).dtype == "float32":
            out, source = node.outputs[0], node.inputs[0]
            if out not in self.source.outputs:
                self.alias[out], self.maps[out] = self.held(source), self.maps[source]
                return
        keeps = (
            self.absorb and not any(o in self.source.outputs for o in node.outputs) and node.op.clip is None
        )
        if keeps and (self.combined(node) or self.moved(node)):
            return
        first = self.absorb and node.op.algebra in ("convolution", "affine") and mapped == [node.inputs[0]]
        if first and self.weighted(node):
            return
        self.net.nodes.append(
            replace(node, inputs=tuple(self.own(i) if i in self.maps else i for i in node.inputs))
        )

    def held(self, value_id: str) -> str:
        return self.alias.get(value_id, value_id)

    # --- what the map goes through
    def combined(self, node: Node) -> bool:
        """A sum or product with a constant becomes part of the map."""
        what = node.op.algebra
        if what not in ("sum", "difference", "product", "quotient") or len(node.inputs) != 2:
            return False
        position = 0 if node.inputs[0] in self.maps else 1
        source, shape = node.inputs[position], self.source.type(node.outputs[0]).shape
        number = self.source.const(node.inputs[1 - position])
        if number is None or self.source.type(source).shape != shape or number.ndim > len(shape):
            return False
        if sum(size > 1 for size in number.shape) > 1:
            return False
        if what == "quotient" and (position == 1 or not np.all(number)):
            return False
        c = number.astype(np.float64).reshape((1,) * (len(shape) - number.ndim) + number.shape)
        old = self.maps[source]
        scale, shift = old.scale, old.shift
        if what in ("product", "quotient"):
            c = c if what == "product" else 1.0 / c
            scale, shift = scale * c, shift * c
        elif what == "sum" or position == 0:
            shift = shift + (c if what == "sum" else -c)
        else:
            scale, shift = -scale, c - shift
        if not (np.all(np.isfinite(scale)) and np.all(np.isfinite(shift)) and np.all(scale)):
            return False
        scale, shift = np.broadcast_arrays(scale, shift)
        self.maps[node.outputs[0]] = Map(scale, shift, old.zero)
        self.alias[node.outputs[0]] = self.held(source)
        return True

    def moved(self, node: Node) -> bool:
        """Data movement moves scale and shift along; a maximum of neighbours keeps a positive scale."""
        activations = [i for i in node.inputs if i and self.source.const(i) is None]
        if not all(i in self.maps for i in activations) or not all(
            self.source.type(o).is_static for o in node.outputs if o
        ):
            return False
        if self.averaged(node):
            self.maps[node.outputs[0]] = self.maps[activations[0]]
            self.net.nodes.append(replace(node, inputs=tuple(self.held(i) for i in node.inputs)))
            return True
        if any(
            self.source.const(i) is not None and node.op.role(k) == "activation"
            for k, i in enumerate(node.inputs)
            if i
        ):
            return False
        if len({self.maps[i].zero for i in activations}) > 1:
            return False
        border = node.op.border(self.source.site(node)) if node.op.moves_data else No("")
        if not isinstance(border, No) and any(border[0]):
            return self.padded(node, *border)
        if node.op.algebra == "peak":
            old = self.maps[node.inputs[0]]
            channels = old.channels(self.source.type(node.inputs[0]).shape, 1)
            if channels is None or np.any(channels.scale < 0) or any(node.outputs[1:]):
                return False
            self.maps[node.outputs[0]] = old
        elif node.op.moves_data:
            self.maps.update(carried(self.source, node, self.maps))
        else:
            return False
        self.net.nodes.append(replace(node, inputs=tuple(self.held(i) for i in node.inputs)))
        return True

    def averaged(self, node: Node) -> bool:
        """Whether the node gives weighted means over height or width, along which the map does not change: an
        interpolation, or a product with a constant whose weights of each result add up to 1."""
        consts = [self.source.const(i) for i in node.inputs if i]
        shape = self.source.type(node.outputs[0]).shape
        if len(shape) != 4 or node.op.clip is not None or len(activations_of(self.source, node)) != 1:
            return False
        one = self.maps[activations_of(self.source, node)[0]]
        if any(max(array.shape[2:], default=1) > 1 for array in (one.scale, one.shift)):
            return False
        if node.op.algebra == "resampling":
            return True
        if node.op.algebra != "matrices" or len(consts) != 2:
            return False
        weights = next(array for array in consts if array is not None)
        sums = weights.sum(-2 if consts[0] is None else -1)
        return bool(np.abs(sums - 1.0).max() < ONE)

    def padded(self, node: Node, widths: tuple[int, ...], value: float) -> bool:
        """A Pad with a constant writes the pixel that stands for it."""
        shape = self.source.type(node.inputs[0]).shape
        change = self.maps[node.inputs[0]].channels(shape, 1) if len(shape) > 1 else None
        spatial = len(shape) > 2 and not any((*widths[:2], *widths[len(shape) : len(shape) + 2]))
        if change is None or not spatial or min(widths) < 0 or not self.copy or shape[1] > MOST_CHANNELS:
            return False
        wanted = (value - change.shift) / change.scale
        codes = self.nearest(wanted, node.inputs[0])
        made = bordered(self.net, node.origin, self.held(node.inputs[0]), widths, codes)
        self.alias[node.outputs[0]], self.maps[node.outputs[0]] = made, self.maps[node.inputs[0]]
        pads = (*widths[2 : len(shape)], *widths[len(shape) + 2 :])
        self.borders.append(
            PixelBorder(made, pads, tuple((wanted - codes).tolist()), tuple(wanted.tolist()), copied=True)
        )
        worst = float(np.abs(wanted - codes).max())
        self.notes.append(f"{node.name}: pads {pads} with pixels, at most {worst:.3g} of a pixel off")
        return True

    # --- where it ends
    def weighted(self, node: Node) -> bool:
        """Weights and bias take the map; padding takes the pixel that stands for 0, or the nearest."""
        x = node.inputs[0]
        shape = self.source.type(x).shape
        if not self.source.type(x).is_static:
            return False
        change = self.maps[x].channels(shape, 1)
        border = node.op.border(self.source.site(node))
        if change is None or isinstance(border, No):
            return False
        if self.maps[x].plain:
            self.net.nodes.append(replace(node, inputs=(self.held(x), *node.inputs[1:])))
            return True
        found = self.reweighted(node, change)
        if isinstance(found, No):
            self.notes.append(f"{node.name}: {found.reason}")
            return False
        weight, bias = found
        if not np.all(np.isfinite(weight)) or (bias is not None and not np.all(np.isfinite(bias))):
            return False
        source, op = self.held(x), node.op
        widths, half = border[0], len(border[0]) // 2
        pads = (*widths[2:half], *widths[half + 2 :])
        if any(pads) and np.any(change.shift):
            wanted = -change.shift / change.scale
            off, copied = wanted, False
            if np.abs(wanted).max() > HALF and self.copy and shape[1] <= MOST_CHANNELS and min(pads) >= 0:
                codes = self.nearest(wanted, x)
                source = bordered(self.net, node.origin, source, widths, codes)
                op, off, copied = op.with_border((0,) * len(widths)), wanted - codes, True
            self.borders.append(
                PixelBorder(node.outputs[0], pads, tuple(off.tolist()), tuple(wanted.tolist()), copied)
            )
        inputs = [source, self.constant(f"{node.outputs[0]}:weight", weight)]
        if bias is not None:
            inputs.append(self.constant(f"{node.outputs[0]}:bias", bias))
        self.net.nodes.append(replace(node, op=op, inputs=tuple(inputs)))
        return True

    def reweighted(self, node: Node, change: ChannelMap) -> Weights | No:
        """Weight and bias for pixels, the border left out of account."""
        weight, bias = (self.source.const(i) for i in (*node.inputs, "")[1:3])
        if weight is None or (bias is None and any(node.inputs[2:])):
            return No("weight or bias is not a constant")
        return node.op.of_scaled(weight, bias, change.scale, change.shift)

    def nearest(self, wanted: Reals, value_id: str) -> Reals:
        """Whole numbers that the pixels of a value can hold."""
        zero = self.maps[value_id].zero
        return np.asarray(np.clip(np.rint(wanted), -zero, TOP - zero))

    def own(self, value_id: str) -> str:
        """The source model's numbers again, for a reader that cannot take pixels."""
        if value_id in self.real:
            return self.real[value_id]
        one, source = self.maps[value_id], self.held(value_id)
        if one.plain:
            return source
        kind_, name, origin = self.source.type(value_id), f"{value_id}:normalized", (value_id,)
        readers = users(self.source, value_id)
        change = one.channels(kind_.shape, 1) if len(kind_.shape) == 4 and kind_.is_static else None
        if readers and all(kind(reader).startswith("host:") for reader in readers):
            found = self.spelled(one, source, name, origin, _on_host(kind_, "Mul"), _on_host(kind_, "Add"))
        # one rounding: a product and a sum would be rounded one after the other
        elif change is not None:
            weight = change.scale.reshape(-1, 1, 1, 1)
            inputs = (
                source,
                self.constant(f"{name}:weight", weight),
                self.constant(f"{name}:bias", change.shift),
            )
            op = OPS["conv"]((1, 1), (1, 1), (1, 1), (0,) * 4, kind_.shape[1])
            found = added(self.net, op, inputs, name, origin)
        else:
            found = self.spelled(one, source, name, origin, OPS["mul"](), OPS["add"]())
        read = ", ".join(sorted({kind(n).removeprefix("host:") for n in readers})) or "the caller"
        self.notes.append(f"{value_id} is normalised by a layer of its own, for {read}")
        self.real[value_id] = found
        return found

    def spelled(self, one: Map, source: str, name: str, origin: tuple[str, ...], mul: Op, add: Op) -> str:
        """A product and a sum, where there is something to do."""
        if np.any(one.scale != 1.0):
            last = f"{name}:scaled" if np.any(one.shift) else name
            source = added(self.net, mul, (source, self.constant(f"{name}:scale", one.scale)), last, origin)
        if np.any(one.shift):
            source = added(self.net, add, (source, self.constant(f"{name}:shift", one.shift)), name, origin)
        return source

    def constant(self, name: str, array: Array) -> str:
        return self.net.constant(self.net.free(name), np.ascontiguousarray(array).astype(np.float32))


def activations_of(graph: Graph, node: Node) -> list[str]:
    """The inputs of a node that are no constants."""
    return [i for i in node.inputs if i and graph.const(i) is None]


def _on_host(kind_: TensorType, op_type: str) -> Op:
    made: Op = OPS["host"](op_type=op_type, version=14, types=(kind_,), reason="its readers are on the host")
    return made
