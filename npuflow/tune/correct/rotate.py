"""Rotates the residual stream of a pre-norm transformer, so that no channel exceeds the others.
Channels are mixed by an orthogonal matrix. Exact in float.

Source: S. Ashkboos et al., "QuaRot: outlier-free 4-bit inference in rotated LLMs", 2024, with the folding of
LayerNorm from S. Ashkboos et al., "SliceGPT", 2024. The rotation folds into the layers that write to the
stream, with the mean that LayerNorm subtracts, and its inverse, with the factor of the normalisation,
into those that read it; rows of a table that begin the stream, as an embedding's, are rotated in it. Where
something else writes or reads, a product with the matrix stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npuflow.base.wording import counted
from npuflow.ir.graph import Graph, prune
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import Value
from npuflow.ir.verify import verify
from npuflow.tune.correct.fold_back import Refused
from npuflow.tune.correct.products import ProductEdits
from npuflow.tune.correct.residual import ResidualStream, StreamNorm, StreamWriter, streams

Real = npt.NDArray[np.float64]
SEED = 0


@dataclass(frozen=True)
class Rotated:
    """The changed network. `folded`: layers that the rotation is folded into; `charged`: names of the values
    that are multiplied by the matrix while the network runs; `obstacle`: why nothing was rotated."""

    graph: Graph
    width: int = 0
    folded: int = 0
    charged: tuple[str, ...] = ()
    obstacle: str = ""

    @property
    def name(self) -> str:
        """For reports."""
        more = f", {len(self.charged)} products with the matrix are left" if self.charged else ""
        return f"residual stream of {self.width} channels, {counted(self.folded, 'layer')}{more}"


def rotate(graph: Graph) -> Rotated:
    """Rotate every residual stream, or say why not."""
    folded, charged, width = 0, list[str](), 0
    try:
        for stream in streams(graph):
            if not stream.writers:
                raise Refused("no additions of blocks read and write a common value")
            one = _Rotation(graph, stream, matrix_of(stream.width))
            graph = one.done()
            folded, width = folded + one.edits.folded, max(width, stream.width)
            charged += one.charged
    except Refused as why:
        return Rotated(graph, obstacle=str(why))
    return Rotated(graph, width, folded, tuple(charged))


def matrix_of(width: int) -> Real:
    """An orthogonal matrix: of a Hadamard matrix with random signs where there is one of that order (2^k,
    12 * 2^k, 20 * 2^k), else at random."""
    rng = np.random.default_rng(SEED)
    found = _hadamard(width)
    if found is None:
        q, r = np.linalg.qr(rng.normal(size=(width, width)))
        return np.asarray(q * np.sign(np.diagonal(r)))
    return np.asarray(found * rng.choice([-1.0, 1.0], width)[:, None] / np.sqrt(width))


def _hadamard(order: int) -> Real | None:
    """By Sylvester's doubling from order 1, or from Paley's of order 12 or 20."""
    base = next((b for b in (1, 12, 20) if order % b == 0 and (order // b).bit_count() == 1), 0)
    if not base:
        return None
    found = np.ones((1, 1)) if base == 1 else _paley(base - 1)
    while len(found) < order:
        found = np.block([[found, found], [found, -found]])
    return found


def _paley(q: int) -> Real:
    """Of order q + 1, q a prime of the form 4 k + 3."""
    squares = {x * x % q for x in range(1, q)}
    sign = [0.0] + [1.0 if x in squares else -1.0 for x in range(1, q)]
    core = np.array([[sign[(i - j) % q] for j in range(q)] for i in range(q)])
    skew = np.zeros((q + 1, q + 1))
    skew[0, 1:], skew[1:, 0], skew[1:, 1:] = 1.0, -1.0, core
    return skew + np.eye(q + 1)


@dataclass
class _Rotation:
    """One stream. `matrix`: what its values are multiplied by, their means taken out first where
    normalisations do so."""

    graph: Graph
    stream: ResidualStream
    matrix: Real
    charged: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.edits = ProductEdits(self.graph)
        self.behind: dict[str, Node] = {}            # by what they read: products with the matrix
        self.instead: dict[str, str] = {}            # values that readers take in place of others
        self.readers = self.graph.consumers()
        width, centred = len(self.matrix), {one.centred != one.value for one in self.stream.norms}
        if len(centred) != 1:
            raise Refused("some normalisations of the residual stream subtract the mean, and some do not")
        mean = np.full((width, width), 1 / width) if centred == {True} else 0.0
        self.inward: Real = (np.eye(width) - mean) @ self.matrix

    def done(self) -> Graph:
        for writer in self.stream.writers:
            self._write(writer)
        for root in self.stream.roots:
            if not self._looked_up(root):
                self._multiply(root, self.inward)
        for norm in self.stream.norms:
            self._read(norm)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            now = self.edits.nodes[node.outputs[0]]
            nodes.append(replace(now, inputs=tuple(map(self._taken, now.inputs))))
            more = self.behind.get(node.outputs[0])
            nodes += [more] if more is not None else []
        return verify(prune(self.edits.done(nodes)), "rotating the residual stream")

    def _taken(self, name: str) -> str:
        """What readers of a value take in the end."""
        while name in self.instead:
            name = self.instead[name]
        return name

    def _write(self, writer: StreamWriter) -> None:
        if writer.layer is None:
            self._multiply(writer.value, self.inward)
            return
        node = writer.layer
        factor = np.ones(len(self.matrix)) if writer.factor is None else writer.factor
        weight, bias = self.edits.matrix(node)
        self.edits.set(node, (weight * factor) @ self.inward, (bias * factor) @ self.inward)
        for name in writer.scaled:                    # the factor is in the weights now
            source = self.edits.nodes[name]
            self.instead[name] = next(v for v in source.inputs if self.graph.const(v) is None)

    def _looked_up(self, root: str) -> bool:
        """Whether the rows of a constant table begin the stream, and are rotated there."""
        node = self.edits.nodes.get(root)
        while node is not None and node.op.algebra == "view":
            rows = node.inputs[0]
            if self.graph.type(rows).shape[-1] != len(self.matrix) or len(self.readers[rows]) > 1:
                return False
            node = self.edits.nodes.get(rows)
        if node is None or node.op.role(0) != "table" or len(self.graph.type(node.inputs[1]).shape) > 1:
            return False
        table = self.graph.const(node.inputs[0])
        if table is None or table.shape[-1] != len(self.matrix):
            return False
        turned = self.edits.store(f"{node.inputs[0]}:rotated", table @ self.inward)
        self.edits.nodes[node.outputs[0]] = replace(node, inputs=(turned, *node.inputs[1:]))
        self.edits.folded += 1
        return True

    def _read(self, norm: StreamNorm) -> None:
        if norm.centred != norm.value:
            self.instead[norm.centred] = norm.value  # the stream has no mean any more
        layers = self._layers(norm.out)
        out = norm.quotient.outputs[0]
        if layers is None:
            self._multiply(out, self.matrix.T)
            return
        factor = np.ones(len(self.matrix)) if norm.factor is None else norm.factor
        for node in layers:
            weight, bias = self.edits.matrix(node)
            more = bias if norm.addend is None else bias + norm.addend @ weight
            self.edits.set(node, self.matrix.T @ (factor[:, None] * weight), more)
        if norm.out != out:
            self.instead[norm.out] = out

    def _layers(self, value: str) -> list[Node] | None:
        """The products that read a value, behind reshapes that keep its channels; None: something else
        reads it."""
        if value in self.graph.outputs:
            return None
        found: list[Node] = []
        for node in self.readers.get(value, []):
            if self.edits.constant(node) and node.inputs[0] == value:
                found.append(node)
                continue
            shape = self.graph.type(node.outputs[0]).shape
            more = None
            if node.op.algebra == "view" and shape[-1] == len(self.matrix):
                more = self._layers(node.outputs[0])
            if more is None:
                return None
            found += more
        return found

    def _multiply(self, value: str, by: Real) -> None:
        """A product behind a value, which all its readers take."""
        name = self.edits.free(f"{value}:turned")
        self.edits.values[name] = Value(name, self.graph.type(value))
        made = self.edits.nodes.get(value)
        if made is None:
            raise Refused(f'"{value}" is an input of the network')
        op = OPS["matmul"]()
        stored = self.edits.store(f"{value}:matrix", by)
        self.behind[value] = Node(op, (value, stored), (name,), (f"{made.name}:turned",))
        self.instead[value] = name
        self.charged.append(value)


