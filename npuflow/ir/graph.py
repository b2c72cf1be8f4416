"""The graph: immutable, topologically ordered nodes over named values, with constants by content digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from npuflow.base.digest import digest_array
from npuflow.ir.types import Array, QuantType, TensorType, Value

if TYPE_CHECKING:
    from npuflow.ir.op import Op

Param = int | str | tuple[int, ...]   # an integer, integers, or the content digest of a constant array


@dataclass(frozen=True)
class Node:
    """One operator instance. `inputs` are value ids ("" for an absent optional input). `origin` keeps the source
    model's node names. `params` are the integer constants fixed at quantisation (see Op.prepare), sorted by name.
    """

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    origin: tuple[str, ...] = ()
    params: tuple[tuple[str, Param], ...] | None = None   # None: a float node

    @property
    def name(self) -> str:
        """Name for messages: the source node's, else the first output's."""
        return self.origin[0] if self.origin else self.outputs[0]

    @property
    def is_integer(self) -> bool:
        return self.params is not None


@dataclass(frozen=True)
class Graph:
    """Inputs and outputs are value ids; `values` maps id to Value; `consts` maps content digest to array."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    consts: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    def const(self, value_id: str) -> Array | None:
        """The array of a constant value, or None for an activation (or the absent input "")."""
        if not value_id:
            return None
        digest = self.values[value_id].const
        return None if digest is None else self.consts[digest]

    def type(self, value_id: str) -> TensorType:
        return self.values[value_id].type

    def producer(self) -> dict[str, Node]:
        return {out: node for node in self.nodes for out in node.outputs if out}

    def consumers(self) -> dict[str, list[Node]]:
        """Nodes that read each value (a node once, however often it reads it)."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value_id in dict.fromkeys(node.inputs):
                if value_id:
                    found.setdefault(value_id, []).append(node)
        return found

    def site(self, node: Node) -> Site:
        """The node with its types, quantisation and constants: all that operator methods look at."""
        params: dict[str, int | Array] = {}
        for name, p in node.params or ():
            params[name] = self.consts[p] if isinstance(p, str) else np.array(p) if isinstance(p, tuple) else p
        return Site(
            node,
            tuple(self.values[i] if i else None for i in node.inputs),
            tuple(self.values[o] for o in node.outputs if o),
            tuple(self.const(i) for i in node.inputs),
            params,
        )

    def replaced(self, **changes: object) -> Graph:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Site:
    """One node in its place: values of inputs (None: absent) and outputs, constant arrays by input, integer params."""

    node: Node
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    consts: tuple[Array | None, ...]
    params: Mapping[str, int | Array]

    @property
    def op(self) -> Op:
        return self.node.op

    def present(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an input that must be present."""
        value = self.inputs[index]
        assert value is not None, f"{self.node.name}: input {index} is absent"
        return value.type.shape

    def quant(self, index: int) -> QuantType:
        """Quantisation of an input that must be present and quantised."""
        value = self.inputs[index]
        assert value is not None and value.quant is not None, f"{self.node.name}: input {index} is not quantised"
        return value.quant

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.outputs[0].type.shape

    @property
    def out_quant(self) -> QuantType:
        quant = self.outputs[0].quant
        assert quant is not None, f"{self.node.name}: output is not quantised"
        return quant

    def param(self, name: str) -> int:
        value = self.params[name]
        assert isinstance(value, int), f"{self.node.name}: parameter {name} is an array"
        return value

    def array(self, name: str) -> Array:
        value = self.params[name]
        assert not isinstance(value, int), f"{self.node.name}: parameter {name} is a number"
        return value


def constant(value_id: str, array: Array, quant: QuantType | None = None) -> tuple[Value, dict[str, Array]]:
    """A constant value and its entry for `Graph.consts`. The type's dtype stays the *real* dtype: float32 if quantised."""
    array = np.asarray(array)
    array = np.ascontiguousarray(array).reshape(array.shape)
    key = digest_array(array)
    dtype = "float32" if quant is not None else ("string" if array.dtype.kind in "OUS" else array.dtype.name)
    return Value(value_id, TensorType(tuple(array.shape), dtype), quant, key), {key: array}


def prune(graph: Graph) -> Graph:
    """Without the nodes that reach no output, and the values and constants nobody names."""
    wanted, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if any(o in wanted for o in node.outputs):
            wanted.update(i for i in node.inputs if i)
            kept.append(node)
    kept.reverse()
    alive = wanted | set(graph.inputs) | {o for n in kept for o in n.outputs if o}
    values = {k: v for k, v in graph.values.items() if k in alive}
    digests = {v.const for v in values.values() if v.const} | {
        p for n in kept for _, p in n.params or () if isinstance(p, str)
    }
    consts = MappingProxyType({d: graph.consts[d] for d in sorted(digests)})
    return Graph(graph.inputs, graph.outputs, tuple(kept), MappingProxyType(values), consts)


def merge_consts(*parts: Mapping[str, Array] | Iterable[tuple[str, Array]]) -> Mapping[str, Array]:
    merged: dict[str, Array] = {}
    for part in parts:
        merged.update(dict(part))
    return MappingProxyType(merged)
