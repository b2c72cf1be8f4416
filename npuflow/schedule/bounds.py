"""Lower bounds of a network on a machine: cycles and external bytes that no program can beat.

See docs/explanation/bounds.md. Nothing here knows of groups, tiles or buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, Roll
from npuflow.ir.moves import Move
from npuflow.ir.op import Node
from npuflow.ir.space import IterationDomain, Operand
from npuflow.ir.unroll import step_times
from npuflow.ir.views import Views, views_of
from npuflow.place.partition import is_npu, segments
from npuflow.schedule import tuned
from npuflow.schedule.late import LateConstants
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import packed_arrays, space_of
from npuflow.schedule.moves import moves_of
from npuflow.schedule.needed import NeededPart, needed_parts, size, takes_all, touched
from npuflow.schedule.work import LeastWork, least_work

Times = tuple[float, float]  # when a first element of a value can be there, and when the last


@dataclass
class Chain:
    """`first`: nothing is in local memory before this segment. A move costs nothing here: it may be done
    by the loads and stores of its neighbours."""

    graph: Graph
    nodes: Sequence[int]
    moving: Mapping[int, tuple[Move, ...]]
    space: Callable[[int], IterationDomain]
    least: Callable[[int], LeastWork]
    front: int
    first: bool
    cores: int
    times: dict[str, Times] = field(default_factory=dict)

    @cached_property
    def end(self) -> float:
        """The last element of what the host or the caller reads is stored."""
        last = 0.0
        for number in self.nodes:
            node = self.graph.nodes[number]
            found = self._moved(number, node) if number in self.moving else self._computed(number, node)
            for output in node.outputs:
                self.times[output] = found
                last = max(last, found[1] + (self.front if output in self._outside else 0))
        return last

    @property
    def whole(self) -> float:
        """With the rounds of loops that the graph does not have: one round takes what the second adds to the
        first. Loops may run beside each other, so that the longest counts."""
        end, more = self.end, 0.0
        for roll in self.graph.rolls:
            first, second = (self._last(roll.steps[roll.lead + k]) for k in (1, 3))
            more = max(more, (roll.rounds - 2) * (second - first))
        return end + more

    def _last(self, step: Sequence[int]) -> float:
        found = (self.times.get(o, (0.0, 0.0))[1] for n in step for o in self.graph.nodes[n].outputs)
        return max(found, default=0.0)

    @cached_property
    def _outside(self) -> Collection[str]:
        graph = self.graph
        return {i for n in graph.nodes if not is_npu(n) for i in n.inputs} | set(graph.outputs)

    def _read(self, value: str) -> Times:
        begin = float(self.front if self.first else 0)
        return self.times.get(value, (begin, begin))

    def _inputs(self, node: Node) -> list[tuple[int, Times]]:
        return [
            (k, self._read(i)) for k, i in enumerate(node.inputs) if i and self.graph.values[i].const is None
        ]

    def _moved(self, number: int, node: Node) -> Times:
        inputs, moves = self._inputs(node), self.moving[number]
        begin = min([first for _, (first, _) in inputs], default=0.0)
        sizes = {k: self.graph.values[node.inputs[k]].type.size for k, _ in inputs}
        whole = [last for k, (_, last) in inputs if takes_all(moves, k, sizes[k])]
        return begin, max([begin, *whole])

    def _computed(self, number: int, node: Node) -> Times:
        """A first result needs a command of each engine behind a first element of every input, or behind the
        last one where it depends on all of them; the last result needs the layer's whole work."""
        space, least = self.space(number), self.least(number)
        begin = first = whole = self._read("")[0]
        for k, (early, late) in self._inputs(node):
            operand = space.inputs[k] if k < len(space.inputs) else None
            if operand is None:
                continue
            begin = max(begin, early)
            first = max(first, late if _whole(operand, space) else early)
            whole = max(whole, late if _covered(operand, space) else 0.0)
        first = max(first, begin) + least.latency
        return first, max(first, whole + least.latency, begin + least.alone / self.cores)


def _whole(operand: Operand, space: IterationDomain) -> bool:
    """Whether every result depends on the whole operand."""
    made = {m.axis for o in space.outputs for m in o.maps}
    return all(
        size == 1 or m.axis is None or (m.axis not in made and space.axis(m.axis).size >= size)
        for m, size in zip(operand.maps, operand.shape, strict=True)
    )


def _covered(operand: Operand, space: IterationDomain) -> bool:
    """Whether every element of an operand is read: windows move by one place, and reach both ends."""
    for m, extent in zip(operand.maps, operand.shape, strict=True):
        if m.axis is None or extent == 1:
            continue
        low, high = m.window(0, space.axis(m.axis).size)
        if m.num > m.den or low > 0 or high < extent:
            return False
    return True


# A network's layers may be computed in two ways, which trade cycles of the array for cycles of the vector
# unit: what both engines spend at least, weighted so, is a bound for every weight.
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class LowerBounds:
    """What no program for this network and machine can beat, in cycles and external bytes."""

    compute: float  # useful work of the busiest engine, spread evenly over the cores
    traffic: float  # inputs, outputs and constants once, over the external bandwidth
    roofline: float  # multiply-accumulates over the array's peak
    bytes: int  # inputs, outputs and constants once
    chain: float = 0.0  # dependent layers one after the other, each with its commands
    alone: float = 0.0  # as compute, on one core
    late: float = 0.0  # the work before a layer's last result, then the weights that come behind it

    @property
    def cycles(self) -> float:
        return max(self.compute, self.traffic, self.chain, self.late)

    @property
    def binds(self) -> str:
        """What the bound is of."""
        terms = {
            "engines": self.compute, "bus": self.traffic, "chain": self.chain, "weights": self.late,
        }
        return max(terms, key=lambda name: terms[name])


@dataclass
class BoundedNetwork:
    """A network whose bounds are asked for."""

    graph: Graph
    machine: Machine
    numerics: Numerics
    _least: dict[int, LeastWork] = field(default_factory=dict)
    _spaces: dict[int, IterationDomain] = field(default_factory=dict)

    @cached_property
    def parts(self) -> list[tuple[int, ...]]:
        """Nodes that the NPU runs, by segment; the host comes between."""
        return [s.numbers for s in segments(self.graph) if s.kind == "npu"]

    @cached_property
    def moving(self) -> Mapping[int, tuple[Move, ...]]:
        return moves_of(self.graph)

    @cached_property
    def views(self) -> Views:
        return views_of(self.graph, list(enumerate(self.graph.nodes)), self.moving)

    def space(self, node: int) -> IterationDomain:
        if node not in self._spaces:
            self._spaces[node] = space_of(self.graph.site(self.graph.nodes[node]), self.numerics)
        return self._spaces[node]

    @cached_property
    def needed(self) -> Mapping[int, NeededPart]:
        """By node with an iteration space the part of it that somebody needs: see needed.py."""
        nodes = [n for part in self.parts for n in part]
        return needed_parts(self.graph, nodes, self.moving, self.space)

    @cached_property
    def packed_bytes(self) -> Mapping[str, int]:
        """Bytes of the constants of layers, as they lie in memory."""
        packed = dict(
            pair
            for part in self.parts
            for n in part
            if n not in self.moving
            for pair in packed_arrays(self.graph.site(self.graph.nodes[n]), self.space(n), self.numerics)
        )
        whole = {d: int(a.nbytes) for d, a in self.graph.consts.items()}
        return {**whole, **{d: ELEMENTS[t].storage(self.graph.consts[d].size) for d, t in packed.items()}}

    def times(self, node: int) -> float:
        """How often a node runs: those of a loop's rounds share all rounds."""
        return self._times.get(node, 1.0)

    @cached_property
    def _times(self) -> Mapping[int, float]:
        return step_times(self.graph)

    def least(self, node: int) -> LeastWork:
        if node not in self._least:
            site = self.graph.site(self.graph.nodes[node])
            self._least[node] = least_work(site, self.needed[node], self.numerics, self.machine.compute)
        return self._least[node]

    @property
    def front(self) -> int:
        """Cycles of a transfer before its bytes move."""
        return self.machine.compute.command_cycles + self.machine.dma.setup_cycles


def bounds_of(graph: Graph, machine: Machine, numerics: Numerics) -> LowerBounds:
    net, cores = BoundedNetwork(graph, machine, numerics), machine.compute.cores
    macs = sum(
        net.space(n).macs * prod(map(len, part.values())) * net.times(n) for n, part in net.needed.items()
    )
    loads, amount, inside = _compulsory(net)
    memory, dma = machine.memory, machine.dma
    amount += sum(_again(net, roll) for roll in graph.rolls)
    bus = max(amount / memory.external_bandwidth, inside / memory.shared_bandwidth if inside else 0.0)
    rate = max(memory.external_bandwidth, memory.shared_bandwidth if inside else 0.0)
    queues = (loads[0] * net.front + loads[1] / min(rate, memory.local_bandwidth)) / (cores * dma.channels)
    return LowerBounds(
        sum(_engines(net, number, cores) for number in range(len(net.parts))),
        max(bus + net.front, queues) if loads[0] else bus,
        macs / machine.compute.macs / cores,
        amount,
        sum(_chain(net, number).whole for number in range(len(net.parts))),
        sum(_engines(net, number, 1) for number in range(len(net.parts))),
        sum(_late(net, number) for number in range(len(net.parts))),
    )


def _engines(net: BoundedNetwork, number: int, cores: int) -> float:
    """A segment's work on its busiest engine; before its first command comes a load, behind its last one of
    the array a command of the vector unit, and a store."""
    work = _work(net, net.parts[number], net.times)
    if not work:
        return 0.0
    before = net.front if number == 0 else 0
    behind = net.front if number == len(net.parts) - 1 else 0
    return before + work / cores + behind


def _work(
    net: BoundedNetwork, nodes: Collection[int], times: Callable[[int], float] = lambda node: 1.0
) -> float:
    """Cycles of one core's busiest engine. `times`: how often a node runs."""
    layers = [(net.least(n), times(n)) for n in nodes if n not in net.moving]
    return max(
        sum(t * min(w.array * share + w.vector * (1 - share) for w in layer.ways) for layer, t in layers)
        for share in WEIGHTS
    )


def _again(net: BoundedNetwork, roll: Roll) -> int:
    """Bytes of a loop's constants that come again in every step: those that local memory has no room for."""
    graph, room = net.graph, net.machine.memory.local_bytes * net.machine.compute.cores
    nodes = [graph.nodes[n] for n in roll.steps[roll.lead] if n not in net.moving]
    arrays = {p for node in nodes for _, p in node.params or () if isinstance(p, str)}
    arrays |= {d for node in nodes for i in node.inputs if i and (d := graph.values[i].const) is not None}
    return max(0, sum(net.packed_bytes[a] for a in arrays) - room) * (roll.numbers[-1] - 1)


def _late(net: BoundedNetwork, number: int) -> float:
    """Of all layers that a segment has to pass the one behind which most is left: see late.py. Those that
    promise most are looked at first, and only a few dozen: each takes a walk over all that is behind it."""
    memory, cores = net.machine.memory, net.machine.compute.cores
    late = LateConstants(net.graph, net.parts[number], net.moving, net.space, net.needed, net.packed_bytes)
    room, rate = memory.local_bytes * cores, memory.external_bandwidth
    promising: list[tuple[float, float, int]] = []
    for node, before in late.through.items():
        if node in net.moving or (most := late.most(node)) <= room:
            continue
        begin = _work(net, before) / cores + (net.front if number == 0 else 0)
        begin = max(begin, late.before(before) / rate)
        promising.append((begin + (most - room) / rate, begin, node))
    found = 0.0
    for least, begin, node in sorted(promising, reverse=True)[: tuned.LATE_LAYERS]:
        if least <= found:
            break
        found = max(found, begin + max(0, late.behind(node) - room) / rate)
    return found


def _chain(net: BoundedNetwork, number: int) -> Chain:
    return Chain(
        net.graph,
        net.parts[number],
        net.moving,
        net.space,
        net.least,
        net.front,
        number == 0,
        net.machine.compute.cores,
    )


def _compulsory(net: BoundedNetwork) -> tuple[tuple[int, float], int, int]:
    """((loads, their bytes), external bytes, bytes in the chip's shared memory) that are the least: what the
    host writes and reads, and every constant, packed weights as they lie. Loads: one for each
    value, and one for each layer of the array with constants of its own."""
    graph = net.graph
    working = [n for part in net.parts for n in part if not _is_view(net, n)]
    known: set[str] = set()
    own = constants = 0
    for n in working:
        node = graph.nodes[n]
        arrays = {p for _, p in node.params or () if isinstance(p, str)}
        arrays |= {d for i in _read_inputs(net, n) if i and (d := graph.values[i].const) is not None}
        if n not in net.moving and net.space(n).fetches:          # at least one row, whatever the indices
            result = graph.values[node.outputs[0]]
            constants += result.type.shape[-1] * ELEMENTS[result.element].bytes
            continue
        own += bool(arrays - known) and n not in net.moving and bool(net.space(n).macs)
        constants += sum(net.packed_bytes[a] for a in arrays - known)
        known |= arrays
    given, read = _given(net), dict[str, int]()
    for n in working:
        for value, amount in _read_bytes(net, n).items():
            root = net.views.root(value)[0]
            if root in given:
                read[root] = max(read.get(root, 0), amount)
    outside = {i for n in graph.nodes if not is_npu(n) for i in n.inputs} | set(graph.outputs)
    made = [o for part in net.parts for n in part for o in graph.nodes[n].outputs if o in outside]
    stored = _spans(net, [o for o in made if net.views.root(o)[0] not in given])
    loaded, put = sum(read.values()), _total(stored)
    inside = loaded + put if net.machine.inside else 0
    return (own + len(read), float(constants + loaded)), constants + loaded + put - inside, inside


def _read_inputs(net: BoundedNetwork, number: int) -> list[str]:
    """Inputs of a node but those that a parameter stands for, such as the bytes of a weight in blocks."""
    inputs = net.graph.nodes[number].inputs
    if number in net.moving:
        return list(inputs)
    operands = net.space(number).inputs
    return [i for k, i in enumerate(inputs) if k >= len(operands) or operands[k] is not None]


def _given(net: BoundedNetwork) -> Collection[str]:
    """Values that the host writes."""
    made = {o for part in net.parts for n in part for o in net.graph.nodes[n].outputs}
    return {v for v in net.graph.values if v not in made}


def _read_bytes(net: BoundedNetwork, number: int) -> dict[str, int]:
    """Activations that a node reads, with the bytes of what it needs of them; a part that is moved does not
    count."""
    node, views = net.graph.nodes[number], net.views
    live = [(k, i) for k, i in enumerate(node.inputs) if i and net.graph.values[i].const is None]
    if number in net.moving:
        moves = net.moving[number]
        return {i: views.bytes(i) for k, i in live if takes_all(moves, k, net.graph.values[i].type.size)}
    part, operands = net.needed[number], enumerate(net.space(number).inputs)
    read = {k: size(touched(o, part)) for k, o in operands if o is not None}
    return {i: read[k] * views.item(i) for k, i in live if k in read}


def _is_view(net: BoundedNetwork, number: int) -> bool:
    """Whether a node only names bytes that are there."""
    moves = net.moving.get(number)
    return moves is not None and all((number, n) in net.views.saved for n in range(len(moves)))


def _spans(net: BoundedNetwork, values: Sequence[str]) -> Mapping[str, list[tuple[int, int]]]:
    """Bytes of values by the owner of their bytes."""
    found: dict[str, list[tuple[int, int]]] = {}
    for value in dict.fromkeys(values):
        root, at = net.views.root(value)
        found.setdefault(root, []).append((at, at + net.views.bytes(value)))
    return found


def _total(spans: Mapping[str, list[tuple[int, int]]]) -> int:
    """Bytes of all, each once."""
    total = 0
    for own in spans.values():
        reached = 0
        for low, high in sorted(own):
            total += max(0, high - max(low, reached))
            reached = max(reached, high)
    return total
