"""Builds the nodes that replace one: operators applied to values, with types and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.queries import kind
from npuflow.ir.types import Array, ShapesDifferError, TensorType, Value
from npuflow.rules import Change, Refusal, Rule
from npuflow.rules._match import attribute, plain_float

Operand = str | float                     # a value, or a number that becomes a constant


class Parts:
    """Collects the nodes. Values are called after the node's first output, with what
    they are behind a colon."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.base = next(o for o in node.outputs if o)
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.consts: dict[str, Array] = {}
        self._known: dict[tuple[str, tuple[int, ...]], str] = {}      # constants by digest and shape
        self._counts: dict[str, int] = {}

    # --- what the node is
    def input(self, index: int) -> str:
        """The value id of an input, "" where it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def output(self, index: int) -> str:
        return self.node.outputs[index] if index < len(self.node.outputs) else ""

    def number(self, index: int) -> Array | None:
        """The constant that an input holds."""
        return self.graph.const(self.input(index))

    def attribute(self, name: str, default: object = None) -> object:
        return attribute(self.node, name, default)

    def integer(self, name: str, default: int) -> int:
        found = attribute(self.node, name, default)
        assert isinstance(found, int)
        return found

    def real(self, name: str, default: float) -> float:
        return float(attribute(self.node, name, default))

    def type(self, value_id: str) -> TensorType:
        return self.values[value_id].type if value_id in self.values else self.graph.type(value_id)

    def shape(self, value_id: str) -> tuple[int, ...]:
        return self.type(value_id).shape

    def array(self, value_id: str) -> Array | None:
        """The array of a constant, also of one made here."""
        if value_id in self.values:
            digest = self.values[value_id].const
            return None if digest is None else self.consts[digest]
        return self.graph.const(value_id)

    # --- making
    def const(self, array: npt.ArrayLike, what: str = "constant") -> str:
        """A float32 constant; equal ones are one value."""
        held = np.asarray(array, np.float32)
        value, entry = constant(f"{self.base}:{what}", held)
        key = (str(value.const), held.shape)
        if key not in self._known:
            self._known[key] = self.name(what)
            self.values[self._known[key]] = replace(value, id=self._known[key])
            self.consts.update(entry)
        return self._known[key]

    def op(self, name: str, inputs: Sequence[Operand], what: str = "", **fields: object) -> str:
        """One operator of one result."""
        return self.ops(name, inputs, what, **fields)[0]

    def ops(self, name: str, inputs: Sequence[Operand], what: str = "", **fields: object) -> tuple[str, ...]:
        """One operator and all its results."""
        return self._added(OPS[name](**fields), inputs, what or name)

    def op_as(self, op: Op, inputs: Sequence[Operand], what: str = "view") -> str:
        """An operator that is there already, with its attributes."""
        return self._added(op, inputs, what)[0]

    def _added(self, op: Op, inputs: Sequence[Operand], what: str) -> tuple[str, ...]:
        ids = tuple(i if isinstance(i, str) else self.const(i) for i in inputs)
        results = []
        for result in op.infer(*(self.type(i) if i else None for i in ids)):
            made = self.name(what)
            self.values[made] = Value(made, result)
            results.append(made)
        self.nodes.append(Node(op, ids, tuple(results), self.node.origin))
        return tuple(results)

    def add(self, a: Operand, b: Operand, what: str = "") -> str:
        return self.op("add", (a, b), what)

    def sub(self, a: Operand, b: Operand, what: str = "") -> str:
        return self.op("sub", (a, b), what)

    def mul(self, a: Operand, b: Operand, what: str = "") -> str:
        return self.op("mul", (a, b), what)

    def div(self, a: Operand, b: Operand, what: str = "") -> str:
        return self.op("div", (a, b), what)

    def matmul(self, a: str, b: str, what: str = "") -> str:
        return self.op("matmul", (a, b), what)

    def clip(self, x: str, low: float = -np.inf, high: float = np.inf, what: str = "") -> str:
        return self.op("clip", (x,), what, min=low, max=high)

    def reduce(self, form: str, x: str, axes: Sequence[int], keep: bool = True, what: str = "") -> str:
        """`form`: mean, sum or max."""
        rank = len(self.shape(x))
        return self.op(
            f"reduce{form}", (x,), what, axes=tuple(sorted({a % rank for a in axes})), keepdims=int(keep)
        )

    # --- moving; what changes nothing is left out
    def reshape(self, x: str, shape: Sequence[int]) -> str:
        wanted = tuple(int(d) for d in shape)
        return x if wanted == self.shape(x) else self.op("reshape", (x,), shape=wanted)

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        order = tuple(int(p) for p in perm)
        return x if order == tuple(range(len(order))) else self.op("transpose", (x,), perm=order)

    def swapped(self, x: str) -> str:
        """The last two dimensions exchanged."""
        rank = len(self.shape(x))
        return self.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1, what: str = "") -> str:
        """Elements start, start + step, ... before end (both counted from the front)."""
        if start == 0 and end >= self.shape(x)[axis] and step == 1:
            return x
        return self.op("slice", (x,), what, starts=(start,), ends=(end,), axes=(axis,), steps=(step,))

    def reversed(self, x: str, axis: int) -> str:
        return self.op("slice", (x,), starts=(-1,), ends=(-(1 << 31),), axes=(axis,), steps=(-1,))

    def concat(self, parts: Sequence[str], axis: int, what: str = "") -> str:
        return parts[0] if len(parts) == 1 else self.op("concat", parts, what, axis=axis)

    def expand(self, x: str, shape: Sequence[int]) -> str:
        wanted = tuple(int(d) for d in shape)
        return x if wanted == self.shape(x) else self.op("expand", (x,), shape=wanted)

    # --- the change
    def done(self, *results: str) -> Change:
        """The change that gives the node's outputs these values, in order ("" or none:
        an output that is not used)."""
        names: dict[str, str] = {}
        made = {o for n in self.nodes for o in n.outputs}
        for output, result in zip(self.node.outputs, results, strict=False):
            if not output:
                continue
            if result in names or result not in made:
                result = self.op("reshape", (result,), shape=self.shape(result))
            names[result] = output
        nodes = tuple(
            replace(
                n,
                inputs=tuple(names.get(i, i) for i in n.inputs),
                outputs=tuple(names.get(o, o) for o in n.outputs),
            )
            for n in self.nodes
        )
        values = tuple(replace(v, id=names.get(v.id, v.id)) for v in self.values.values())
        return Change((self.node,), nodes, values, tuple(self.consts.items()))

    def name(self, what: str) -> str:
        """A name that no value has."""
        while True:
            count = self._counts.get(what, 0)
            self._counts[what] = count + 1
            name = f"{self.base}:{what}.{count}" if count else f"{self.base}:{what}"
            if name not in self.graph.values and name not in self.values:
                return name


class Decomposition(Rule):
    """A rule that spells one operator in others: `spelled` gives the values of its
    outputs, or says why it cannot."""

    # first: what it makes is folded, recognised and fused like any other node
    order: ClassVar[int] = 4

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        """The values of the node's outputs; a text refuses with it; None: another
        operator than it looked like."""
        raise NotImplementedError

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        name = type(self).__module__.rpartition(".")[2]
        inputs = [graph.type(i) for i in node.inputs if i]
        if not plain_float(graph, node) or not all(t.is_static for t in inputs):
            return Refusal(
                name, node.name, f"{_called(node)} not in float32, or of a shape that is not static"
            )
        if any(t.size == 0 and t.dtype.startswith("float") for t in inputs):
            return Refusal(name, node.name, f"{_called(node)} of an empty tensor")
        parts = Parts(graph, node)
        try:
            found = self.spelled(parts)
        except ShapesDifferError as fault:
            return Refusal(name, node.name, f"{_called(node)} whose operands do not go together: {fault}")
        if isinstance(found, str):
            return Refusal(name, node.name, found)
        return None if found is None else parts.done(*found)


def _called(node: Node) -> str:
    return getattr(node.op, "op_type", "") or kind(node)
