"""What the host's part of a network costs: multiply-accumulates, elements, bytes between it and the NPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from npuflow.engine.partition import boundary, is_npu
from npuflow.hw.target import Target
from npuflow.ir.elements import node_elements
from npuflow.ir.graph import Graph
from npuflow.ir.macs import node_macs
from npuflow.ir.op import Node

CODE_BITS = 8                             # of a value that has no codes yet
Judge = Callable[[Node], bool]
Nodes = Collection[tuple[str, ...]]        # nodes, by their outputs


@dataclass(frozen=True)
class HostWork:
    """What the host does. `bytes`: of codes that cross between it and the NPU; every one
    converted is an element too."""

    macs: int = 0
    elements: int = 0
    bytes: int = 0

    def __add__(self, other: HostWork) -> HostWork:
        return HostWork(self.macs + other.macs, self.elements + other.elements, self.bytes + other.bytes)

    def __bool__(self) -> bool:
        return bool(self.macs or self.elements or self.bytes)

    def terms(self, target: Target) -> dict[str, float]:
        """Cycles of the NPU's clock. The one statement of what the host costs:
        whatever prices it comes here."""
        return {
            "macs": self.macs / target.host.macs_per_cycle,
            "elements": self.elements / target.host.elements_per_cycle,
            "bus": self.bytes / target.memory.external_bandwidth,
        }

    def cycles(self, target: Target) -> float:
        """All terms one after the other: host and NPU wait for each other."""
        return sum(self.terms(target).values())

    def described(self, target: Target) -> str:
        """A line for people."""
        terms = self.terms(target)
        return (
            f"{self.cycles(target):,.0f} cycles: {self.macs:,} MACs {terms['macs']:,.0f}, "
            f"{self.elements:,} elements {terms['elements']:,.0f}, "
            f"{self.bytes:,} bytes to and from the NPU {terms['bus']:,.0f}"
        )


def node_cycles(graph: Graph, node: Node, target: Target, on_npu: Judge | None = None) -> float:
    """Cycles that a node would cost on the host with its neighbours where they are: what it
    computes, and what would cross the boundary for it. `graph` is a float or a quantised graph;
    see `part_work` for `on_npu`."""
    return part_work(graph, [node], on_npu).cycles(target)


def part_work(graph: Graph, nodes: Collection[Node], on_npu: Judge | None = None) -> HostWork:
    """Of nodes that the host would run together. `on_npu` judges the others; by default those of a quantised
    graph that are integer ones, and of a float graph all but operators that only the host has."""
    judge = on_npu or _usual(graph)
    inside = {n.outputs for n in nodes}
    total = sum((_own(graph, n) for n in nodes), HostWork())
    npu = {n.outputs for n in graph.nodes if n.outputs not in inside and judge(n)}
    return total + _crossing(graph, npu, inside)


def placed_work(graph: Graph, on_npu: Judge) -> HostWork:
    """All of the host's part of a float graph, by the place of each node; what
    crosses counts as codes of 8 bits."""
    host = [n for n in graph.nodes if not on_npu(n)]
    return part_work(graph, host, on_npu)


def host_work(graph: Graph) -> dict[int, HostWork]:
    """Of every node of a quantised graph that costs the host time, by index. A float node costs what
    it computes; a boundary its bytes and conversions, unless it only hands over what the whole
    program takes in or gives out."""
    producer, consumers = graph.producer(), graph.consumers()

    def floats(nodes: Sequence[Node]) -> bool:
        return any(not is_npu(n) and boundary(graph, n) is None for n in nodes)

    found: dict[int, HostWork] = {}
    for index, node in enumerate(graph.nodes):
        kind = boundary(graph, node)
        if is_npu(node):
            continue
        if kind == "quantize":
            beside = [producer[node.inputs[0]]] if node.inputs[0] in producer else []
            work = _crossed(graph, node.outputs[0]) if floats(beside) else HostWork()
        elif kind == "dequantize":
            work = (
                _crossed(graph, node.inputs[0]) if floats(consumers.get(node.outputs[0], [])) else HostWork()
            )
        else:
            work = _own(graph, node)
        if work:
            found[index] = work
    return found


def total_work(works: Mapping[int, HostWork]) -> HostWork:
    return sum(works.values(), HostWork())


def _own(graph: Graph, node: Node) -> HostWork:
    return HostWork(node_macs(graph, node), node_elements(graph, node))


def _crossing(graph: Graph, npu: Nodes, host: Nodes) -> HostWork:
    """Every value that one side makes and the other reads, once; not what the
    program takes in or gives out."""
    made = {o: n.outputs for n in graph.nodes for o in n.outputs if o}
    seen: set[str] = set()
    for node in graph.nodes:
        own = node.outputs
        for value_id in node.inputs:
            maker = made.get(value_id)
            if (maker in npu and own in host) or (maker in host and own in npu):
                seen.add(value_id)
    return sum((_crossed(graph, value_id) for value_id in sorted(seen)), HostWork())


def _crossed(graph: Graph, value_id: str) -> HostWork:
    """A value that crosses: its codes on the bus, every one converted."""
    value = graph.values[value_id]
    if not value.type.is_static:
        return HostWork()
    bits = CODE_BITS if value.quant is None else value.quant.bits
    width = next(w for w in (8, 16, 32, 64) if bits <= w)
    return HostWork(0, value.type.size, value.type.size * width // 8)


def _usual(graph: Graph) -> Judge:
    quantised = any(is_npu(n) for n in graph.nodes)
    return is_npu if quantised else lambda n: not n.op.hosted
