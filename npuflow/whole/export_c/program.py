"""The C program of a network: calls in order, the arena, constants, and the interface.

Values of convolutions, pools and what follows them element by element lie channels-last.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npuflow.hw.isa import opcodes
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.loops import every_loop
from npuflow.ir.op import Node
from npuflow.ir.types import Array, Value
from npuflow.schedule.allocate import Layout, Lifetime, aligned, check_layout
from npuflow.schedule.arrange import arrange
from npuflow.whole.export_c.kernel import SourceWriter
from npuflow.whole.export_c.network import IntegerNetwork
from npuflow.whole.export_c.sequence import (
    COUNTERS,
    CallSequence,
    CLayer,
    CLoop,
    layer_count,
    resolved,
    statements,
)
from npuflow.whole.export_c.whole import Buffers, Storage, Unsuited, commands_of


def channels_last(
    graph: Graph, nodes: Sequence[Node], numerics: Numerics, fixed: Collection[str]
) -> frozenset[str]:
    """`fixed`: values of the interface, which lie in C order."""
    found: set[str] = set()
    same = list(_lying_alike(graph, nodes))
    avoided: set[str] = {*fixed, *(v for pair in same for v in pair if graph.const(v) is not None)}
    nodes = [n for n in nodes if not n.op.border_of_loop]
    for node in nodes:
        site = graph.site(node)
        commands = commands_of(graph, node, numerics, frozenset(), Buffers(), site)
        wanted = {opcodes()[c.opcode].layout for c in commands}
        read = [i for i in node.inputs if i and graph.values[i].const is None]
        if "order" in wanted:
            avoided.update(read, node.outputs)
        if "channels" in wanted:
            found.update(read, node.outputs)
        elif "order" not in wanted and any(i in found for i in read):
            found.update(node.outputs)
    for a, b in (*same, *same[::-1]):
        if (a in found or b in found) and not {a, b} & avoided:
            found.update((a, b))
    found = {v for v in found - avoided if v and len(graph.type(v).shape) in (3, 4)}
    changed = True
    while changed:  # what a node cannot do channels-last, its values do not
        apart = {v for pair in same for v in pair if len(found.intersection(pair)) == 1}
        found -= apart
        changed = bool(apart)
        for node in nodes:
            own = {v for v in (*node.inputs, *node.outputs) if v in found}
            if own and not _works(graph, node, numerics, frozenset(own)):
                found -= own
                changed = True
    return frozenset(found)


def _lying_alike(graph: Graph, nodes: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """Values at the borders of loops that share memory, by two; a constant lies in C order."""
    for node in nodes:
        side, first = node.op.border_of_loop, node.inputs[0]
        if side and (side != "carry" or graph.const(first) is None):
            yield first, node.outputs[0]
    yield from ((one.now, one.last) for loop in every_loop(graph) for one in loop.carried)


def _works(graph: Graph, node: Node, numerics: Numerics, last: frozenset[str]) -> bool:
    try:
        commands_of(graph, node, numerics, last, Buffers())
    except (Unsuited, AssertionError):
        return False
    return True


ALIGN = 64
TOKEN = re.compile(r"@(\d+):(-?\d+):(\w+)@")


@dataclass(frozen=True)
class CPort:
    """One tensor of the interface: the model's name, a C identifier, its type."""

    name: str
    ident: str
    value: Value

    @property
    def ctype(self) -> str:
        """Of an element."""
        return f"{self.value.dtype}_t"


@dataclass(frozen=True)
class CProgram:
    """What the files are written from."""

    name: str
    inputs: tuple[CPort, ...]
    outputs: tuple[CPort, ...]
    rounding: str
    functions: tuple[str, ...]
    data: tuple[str, ...]
    calls: tuple[CLayer | CLoop, ...]
    constants: tuple[tuple[str, Array], ...]
    arena: int
    bound: int
    state: tuple[tuple[CPort, CPort], ...] = ()  # outputs, and the inputs that they are in the next call

    @property
    def layers(self) -> int:
        """Those of loops counted once."""
        return sum(map(layer_count, self.calls))

    @property
    def constant_bytes(self) -> int:
        return sum(aligned(a.nbytes, ALIGN) for _, a in self.constants)


def identifier(name: str) -> str:
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    return found if found and not found[0].isdigit() else f"t_{found}"


def program_of(network: IntegerNetwork, numerics: Numerics, name: str) -> CProgram:
    """Every node as calls of kernels; values that no two steps need at once share the arena."""
    graph = network.graph
    ports = [*network.inputs, *network.outputs]
    fixed = {value.id for _, value in ports}
    last = channels_last(graph, network.nodes, numerics, fixed)
    w = SourceWriter(Buffers(), numerics.rounding)
    sequence = CallSequence(graph, w, numerics, last, fixed)
    calls: list[CLayer | CLoop] = list(sequence.every(network.nodes))
    names = _ports(network)
    inputs, outputs = names[: len(network.inputs)], names[len(network.inputs) :]
    outside = {
        w.buffers.values[p.value.id].number: f"in_{p.ident}"
        for p in reversed(inputs)
        if p.value.id in w.buffers.values
    }
    for port in outputs:
        own = w.buffers.values.get(port.value.id)
        if own is not None and own.number not in outside:
            outside[own.number] = f"out_{port.ident}"
    calls += _copies(inputs, outputs)
    layout = _arena(sequence, outside)
    constants, arrays = _constants(sequence, [call for one in calls for call in statements(one)])

    def pointer(match: re.Match[str]) -> str:
        part, dtype = sequence.root(int(match[1])), match[3]
        item = np.dtype(dtype).itemsize
        first = int(match[2]) + part.first // item
        more = _offset(first, [each // item for each in part.each])
        if part.of in constants:
            return f"NN_CONST_{constants[part.of]}{more}"
        if part.of in outside:
            constant = "const " if outside[part.of].startswith("in_") else ""
            return f"({constant}nn_{dtype} *){outside[part.of]}{more}"
        return f"(nn_{dtype} *)(arena + {layout.addresses[_key(w.buffers.every[part.of])]}){more}"

    return CProgram(
        name,
        tuple(inputs),
        tuple(outputs),
        numerics.rounding,
        tuple(w.functions.values()),
        tuple(w.data),
        tuple(resolved(one, lambda call: TOKEN.sub(pointer, call)) for one in calls),
        tuple(arrays),
        layout.total,
        layout.bound,
        _state(graph, inputs, outputs),
    )


def _offset(first: int, each: Sequence[int]) -> str:
    """What is added to a pointer: `each` for every step of the outer and of the inner loop."""
    counted = list(zip(COUNTERS, each, strict=True))
    terms = [f"{name} * {n}" for name, n in counted if n > 0]
    back = [f" - {name} * {-n}" for name, n in counted if n < 0]
    if not terms and not back:
        return f" + {first}" if first else ""
    if first or not terms:
        terms = [str(first), *terms] if back else [*terms, str(first)]
    return f" + ({' + '.join(terms)}{''.join(back)})"


def _state(
    graph: Graph, inputs: Iterable[CPort], outputs: Iterable[CPort]
) -> tuple[tuple[CPort, CPort], ...]:
    given, made = ({port.name: port for port in ports} for ports in (inputs, outputs))
    return tuple((made[out], given[name]) for out, name in graph.state if out in made and name in given)


def _constants(
    sequence: CallSequence, calls: Iterable[str]
) -> tuple[dict[int, str], list[tuple[str, Array]]]:
    """Names of the constants that calls read, by number; and the arrays, equal ones once."""
    names: dict[int, str] = {}
    arrays: list[tuple[str, Array]] = []
    known: dict[tuple[str, bytes], str] = {}
    for number in sorted({sequence.root(int(m[1])).of for call in calls for m in TOKEN.finditer(call)}):
        own = sequence.w.buffers.every[number]
        if own.kind == "const":
            assert own.array is not None
            key = own.array.dtype.name, np.ascontiguousarray(own.array).tobytes()
            if key not in known:
                known[key] = f"k{len(known)}"
                arrays.append((known[key], own.array))
            names[number] = known[key]
    return names, arrays


def _ports(network: IntegerNetwork) -> list[CPort]:
    """Identifiers that differ, among inputs and among outputs."""
    found: list[CPort] = []
    for side in (network.inputs, network.outputs):
        taken: set[str] = set()
        for name, value in side:
            ident, n = identifier(name), 2
            while ident in taken:
                ident, n = f"{identifier(name)}_{n}", n + 1
            taken.add(ident)
            found.append(CPort(name, ident, value))
    return found


def _copies(inputs: Iterable[CPort], outputs: Iterable[CPort]) -> list[CLayer]:
    """Statements for outputs that are an input or another output: each has memory of its own."""
    first = {p.value.id: f"in_{p.ident}" for p in inputs}
    found = []
    for port in outputs:
        source = first.setdefault(port.value.id, f"out_{port.ident}")
        if source != f"out_{port.ident}":
            size, names = prod(port.value.type.shape), f"out_{port.ident}[i] = {source}[i];"
            copied = f"{{ int32_t i; for (i = 0; i < {size}; i++) {names} }}"
            found.append(CLayer(port.name, (copied,)))
    return found


def _key(own: Storage) -> str:
    return f"{own.number}"


def _arena(sequence: CallSequence, outside: Mapping[int, str]) -> Layout:
    """Addresses of all that lives between calls."""
    held = sequence.w.buffers.every
    spans: dict[int, list[int]] = {}
    for step, numbers in enumerate(sequence.touched):
        for number in {sequence.root(n).of for n in numbers}:
            if held[number].kind != "const" and number not in outside:
                span = spans.setdefault(number, [step, step])
                span[1] = step
    for first, last in sequence.bodies:  # what a loop and others touch lives through all of its steps
        for span in spans.values():
            if span[0] < first <= span[1] <= last:
                span[1] = last
            elif first <= span[0] <= last < span[1]:
                span[0] = first
    lives = [Lifetime(_key(held[n]), held[n].bytes, a, b) for n, (a, b) in spans.items()]
    layout = arrange(lives, ALIGN, "climb" if lives else "greedy")
    check_layout(lives, layout.addresses, max(layout.total, 1), ALIGN)
    return layout
