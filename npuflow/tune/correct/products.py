"""Products with constant matrices, read as weight and bias in double precision and replaced by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import Node
from npuflow.ir.types import Array, Value

Real = npt.NDArray[np.float64]


@dataclass
class ProductEdits:
    """The products of a graph as they are now: `nodes` by their first outputs, `values` and `consts` with
    what was added. `folded`: how often a product was replaced."""

    graph: Graph
    values: dict[str, Value] = field(init=False)
    consts: dict[str, Array] = field(init=False)
    nodes: dict[str, Node] = field(init=False)
    folded: int = 0

    def __post_init__(self) -> None:
        self.values, self.consts = dict(self.graph.values), dict(self.graph.consts)
        self.nodes = {node.outputs[0]: node for node in self.graph.nodes}

    def constant(self, node: Node) -> bool:
        """Whether a node is a product of rows with a constant matrix, and a constant bias if it has one."""
        if node.op.algebra != "affine" or node.op.input_channels() != 1:
            return False
        return all(self.graph.const(v) is not None for v in node.inputs[1:])

    def matrix(self, node: Node) -> tuple[Real, Real]:
        """Weight [in, out] and bias as they are now, factors folded in."""
        now = self.nodes[node.outputs[0]]
        stored = [self._const(v) for v in now.inputs[1:]]
        weight = now.op.rows(stored[0].astype(np.float64)).T * now.op.gain()
        if len(stored) < 2:
            return weight, np.zeros(weight.shape[1])
        bias = stored[1].astype(np.float64).reshape(-1) * now.op.bias_factor()
        return weight, np.broadcast_to(bias, weight.shape[1:])

    def set(self, node: Node, weight: Real, bias: Real) -> None:
        """Another matrix and bias in the place of a product's."""
        now = self.nodes[node.outputs[0]]
        op = now.op.with_(alpha=1.0, beta=1.0, transB=0)
        out = node.outputs[0]
        names = [self.store(f"{out}:rotated", weight), self.store(f"{out}:moved", bias)]
        self.nodes[out] = replace(now, op=op, inputs=(now.inputs[0], *names))
        self.folded += 1

    def store(self, name: str, array: Real) -> str:
        """A new constant, by a name that is free."""
        name = self.free(name)
        self.values[name], found = constant(name, array.astype(np.float32))
        self.consts.update(found)
        return name

    def free(self, name: str) -> str:
        while name in self.values:
            name += "_"
        return name

    def done(self, nodes: Sequence[Node] | None = None) -> Graph:
        """The graph with what was replaced; `nodes`: all of them, where some are new."""
        every = [self.nodes[n.outputs[0]] for n in self.graph.nodes] if nodes is None else nodes
        values: Mapping[str, Value] = MappingProxyType(self.values)
        return self.graph.replaced(nodes=tuple(every), values=values, consts=MappingProxyType(self.consts))

    def _const(self, name: str) -> Array:
        digest = self.values[name].const
        assert digest is not None
        return self.consts[digest]
