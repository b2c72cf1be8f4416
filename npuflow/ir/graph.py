"""The graph: immutable, topologically ordered nodes over named values, with constants by content digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from npuflow.base.digest import digest_array
from npuflow.base.html_table import titled
from npuflow.base.mapped import spilled
from npuflow.base.step_count import EACH, StepCount
from npuflow.ir.borders import carries
from npuflow.ir.chunk import ChunkSteps
from npuflow.ir.lengths import Length
from npuflow.ir.op import Node, OpContext
from npuflow.ir.rings import Ring
from npuflow.ir.types import Array, QuantType, TensorType, Value

ROUND = 2                                 # steps of a round of a loop


@dataclass(frozen=True)
class CountedSteps:
    """That an input says how many steps of a loop run: its name; whether they are the `last` ones, else the
    first; how many of the input's steps one of the loop's has; how many steps `beyond` those of the input
    are read; and how many there are of the input's, behind strides (`count`)."""

    length: str
    last: bool
    size: int = 1
    beyond: int = 0
    count: StepCount = EACH


@dataclass(frozen=True)
class LoopCore:
    """The core that runs a loop, while others run those with the same `together`."""

    core: int
    together: str


@dataclass(frozen=True)
class Roll:
    """A loop of which a graph has some steps, one after the other, by the positions of their nodes: some that
    lead in, four that stand for all that follow, and the last one. The four are two rounds of two steps: what
    a step hands to the next lies in two places in turn. A round is repeated `rounds` times in all."""

    loop: str
    steps: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]              # which steps they are
    rounds: int
    # nodes that cut tensors into steps and join them again: a round needs them to move nothing
    movers: tuple[int, ...] = ()
    # of values that the steps of both rounds make, the same of the last round and, had it one, of the next
    later: Mapping[str, str] = field(default_factory=dict)
    counted: CountedSteps | None = None        # which steps a run has; others change nothing
    core: LoopCore | None = None               # the core that runs it; None: its groups are on any
    outer: str = ""                       # the loop of whose step this one is a part, as a roll has its name

    @property
    def regular(self) -> bool:
        """Whether the steps around and in both rounds have the same nodes."""
        some = self.steps[self.lead - 1 : -1]
        return len({len(step) for step in some}) == 1 and all(some)

    @property
    def lead(self) -> int:
        """Steps before the first round."""
        return len(self.steps) - 2 * ROUND - 1


@dataclass(frozen=True)
class Graph:
    """Inputs and outputs are value ids; `values` maps id to Value; `consts` maps content digest to array.

    `state`: pairs of an output and the input that takes its value in the next run. `fed`: bytes from which a
    constant is fed to whatever runs the network, and not copied into its model; 0: none is. `rolls`: loops
    some steps of which are written out, for a plan (see `ir/unroll.py`). `lengths`: inputs that say how many
    steps a run has. `rings`: what states are that keep the newest rows alone. `chunks`: values in loops over
    chunks of a free length, for a plan (see `ir/chunk.py`).
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    consts: Mapping[str, Array] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    state: tuple[tuple[str, str], ...] = ()
    fed: int = 0
    rolls: tuple[Roll, ...] = field(default=(), compare=False, repr=False)
    lengths: tuple[Length, ...] = ()
    rings: tuple[Ring, ...] = ()
    chunks: Mapping[str, ChunkSteps] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )

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

    def site(self, node: Node) -> OpContext:
        """The node with its types, quantisation and constants: all that operator methods look at."""
        params: dict[str, int | Array] = {}
        for name, p in node.params or ():
            params[name] = (
                self.consts[p] if isinstance(p, str) else np.array(p) if isinstance(p, tuple) else p
            )
        inputs = [self.values[i] if i else None for i in node.inputs]
        for place, _, shape, _ in node.op.inner:
            whole = self.values[node.inputs[place]]
            inputs[place] = replace(whole, type=TensorType(shape, whole.type.dtype))
        return OpContext(
            node,
            tuple(inputs),
            tuple(self.values[o] for o in node.outputs if o),
            tuple(self.const(i) for i in node.inputs),
            params,
        )

    def __repr__(self) -> str:
        """A line; `npuflow.ir.text` writes the whole."""
        ends = " -> ".join(", ".join(map(self._said, names)) for names in (self.inputs, self.outputs))
        return f"<Graph of {len(self.nodes)} nodes: {ends}>"

    def _repr_html_(self) -> str:
        """For notebooks: inputs, outputs, and every node with the types of its results."""
        rows = [
            {
                "node": node.name,
                "operator": node.op.onnx or type(node.op).__name__,
                "inputs": [i for i in node.inputs if i],
                "result": [self._said(o) for o in node.outputs if o],
            }
            for node in self.nodes
        ]
        ends = {"inputs": map(self._said, self.inputs), "outputs": map(self._said, self.outputs)}
        return titled(f"network of {len(self.nodes)} nodes", ends, rows)

    def _said(self, value_id: str) -> str:
        value = self.values[value_id]
        return f"{value_id} {'x'.join(map(str, value.type.shape))} {value.dtype}"

    def replaced(self, **changes: object) -> Graph:
        return replace(self, **changes)  # type: ignore[arg-type]


def constant(value_id: str, array: Array, quant: QuantType | None = None) -> tuple[Value, dict[str, Array]]:
    """A constant value and its entry for `Graph.consts`. The type's dtype stays the *real*
    dtype: float32 if quantised."""
    array = np.asarray(array)
    array = spilled(np.ascontiguousarray(array).reshape(array.shape))
    key = digest_array(array)
    dtype = "float32" if quant is not None else ("string" if array.dtype.kind in "OUS" else array.dtype.name)
    return Value(value_id, TensorType(tuple(array.shape), dtype), quant, key), {key: array}


def prune(graph: Graph) -> Graph:
    """Without the nodes that reach no output, and the values and constants nobody names."""
    kept, wanted = reaching(graph.nodes, graph.outputs)
    alive = wanted | set(graph.inputs) | {o for n in kept for o in n.outputs if o}
    values = {k: v for k, v in graph.values.items() if k in alive}
    digests = {v.const for v in values.values() if v.const} | {
        p for n in kept for _, p in n.params or () if isinstance(p, str)
    }
    consts = MappingProxyType({d: graph.consts[d] for d in sorted(digests)})
    return graph.replaced(nodes=tuple(kept), values=MappingProxyType(values), consts=consts)


def reaching(nodes: Sequence[Node], outputs: Iterable[str]) -> tuple[list[Node], set[str]]:
    """The nodes that reach an output, and the values that are read. What a loop carries to its next step is
    read there; of what it carries out it carries in what it began with."""
    wanted, kept = set(outputs), list[Node]()
    back = {carries(n): n.outputs for n in nodes if n.op.border_of_loop == "last"}
    begun = {carries(n): n.outputs for n in nodes if n.op.border_of_loop == "carry"} if back else {}
    before = -1
    while len(wanted) != before:
        before, kept = len(wanted), []
        for node in reversed(nodes):
            if any(o in wanted for o in node.outputs):
                wanted.update(i for i in node.inputs if i)
                kept.append(node)
                if node.op.border_of_loop == "carry":
                    wanted.update(back.get(carries(node), ()))
                elif node.op.border_of_loop == "last":
                    wanted.update(begun.get(carries(node), ()))
        if not back:
            break
    return kept[::-1], wanted


def core_of(graph: Graph) -> dict[int, LoopCore]:
    """By position of a node of a loop that one core runs beside others, this core."""
    every = ((roll.core, step) for roll in graph.rolls for step in roll.steps)
    return {node: core for core, step in every if core is not None for node in step}


def step_of(graph: Graph) -> dict[int, int]:
    """By position of a node that is of a step of a loop which number that step has, counted from 1 over all
    steps that the graph has."""
    every = [step for roll in graph.rolls for step in roll.steps]
    return {node: k + 1 for k, step in enumerate(every) for node in step}


def merge_consts(*parts: Mapping[str, Array] | Iterable[tuple[str, Array]]) -> Mapping[str, Array]:
    merged: dict[str, Array] = {}
    for part in parts:
        merged.update(dict(part))
    return MappingProxyType(merged)
