"""A float graph under construction: the one interface through which front ends make graphs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import MappingProxyType
from typing import NamedTuple

from npuflow.base.errors import ModelError
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import Node, Op
from npuflow.ir.types import Array, QuantType, TensorType, Value


class Mark(NamedTuple):
    """What a builder had: numbers of nodes and notes, values, constants, codes."""

    nodes: int
    notes: int
    values: dict[str, Value]
    consts: dict[str, Array]
    arrays: dict[str, Array]
    stated: dict[str, QuantType]


class Builder:
    """Values, constants and nodes in topological order; codes that the source states, and notes on what had
    to be assumed. `taken`: names of values that are still to be defined."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self.taken = taken
        self.values: dict[str, Value] = {}
        self.consts: dict[str, Array] = {}          # by content digest
        self.arrays: dict[str, Array] = {}          # constants by value id
        self.nodes: list[Node] = []
        self.stated: dict[str, QuantType] = {}
        self.notes: list[str] = []
        self.fed = 0                                # see `Graph`

    @classmethod
    def over(cls, graph: Graph) -> Builder:
        """With the values and constants of a graph; its nodes, or others in their place, are to be added."""
        made = cls()
        made.values.update(graph.values)
        made.consts.update(graph.consts)
        made.fed = graph.fed
        return made

    # --- values
    def input(self, name: str, kind: TensorType) -> str:
        """An input of the network."""
        self.define(Value(name, kind))
        return name

    def constant(self, name: str, array: Array) -> str:
        """A constant. A mapped array stays where it lies: only its digest is computed."""
        value, entry = constant(name, array)
        self.define(value)
        self.consts.update(entry)
        self.arrays[name] = next(iter(entry.values()))
        return name

    def define(self, value: Value) -> None:
        if value.id in self.values:
            raise ModelError(f'value "{value.id}" is defined twice', code="NF-MODEL-011").at(value=value.id)
        self.values[value.id] = value

    def type(self, name: str) -> TensorType:
        return self.values[name].type

    def free(self, name: str) -> str:
        """The name, with marks behind it where the model has such a value."""
        while name in self.values or name in self.taken:
            name += "'"
        return name

    def state(self, name: str, quant: QuantType) -> None:
        """The source rounds this value to these codes."""
        self.stated[name] = quant

    # --- nodes
    def add(
        self,
        op: Op,
        inputs: Sequence[str],
        outputs: Sequence[str],
        origin: Sequence[str] = (),
        types: Sequence[TensorType] | None = None,
    ) -> tuple[str, ...]:
        """An operator applied to values ("" for an absent one). `origin`: names in the source; the first
        output's if there are none. `types`: of all outputs, where they are known to be what `infer` gives."""
        own = types or op.infer(*(self.type(i) if i else None for i in inputs))
        assert len(own) == len(outputs), f"{len(outputs)} outputs are named, the operator gives {len(own)}"
        self.nodes.append(Node(op, tuple(inputs), tuple(outputs), tuple(origin) or (outputs[0],)))
        for output, kind in zip(outputs, own, strict=True):
            if output:
                self.define(Value(output, kind))
        return tuple(outputs)

    def mark(self) -> Mark:
        """A place that `back` returns to."""
        counts = len(self.nodes), len(self.notes)
        return Mark(*counts, dict(self.values), dict(self.consts), dict(self.arrays), dict(self.stated))

    def back(self, mark: Mark) -> None:
        """Without what was added since."""
        del self.nodes[mark.nodes :], self.notes[mark.notes :]
        for own, held in (
            (self.values, mark.values), (self.consts, mark.consts), (self.arrays, mark.arrays),
            (self.stated, mark.stated),
        ):
            for name in own.keys() - held.keys():
                del own[name]

    def graph(self, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        return Graph(
            tuple(inputs),
            tuple(outputs),
            tuple(self.nodes),
            MappingProxyType(self.values),
            MappingProxyType(self.consts),
            fed=self.fed,
        )
