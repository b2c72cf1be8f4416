"""What the host's part of a network costs: multiply-accumulates, elements, bytes between it and the NPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from npuflow.hw.target import Target
from npuflow.ir.elements import node_elements
from npuflow.ir.graph import Graph
from npuflow.ir.macs import node_macs
from npuflow.ir.op import Node
from npuflow.place.partition import boundary, is_npu

CODE_BITS = 8                             # of a value that has no codes yet
Judge = Callable[[Node], bool]


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


class HostPricing:
    """What nodes of a graph would cost on the host with their neighbours where they are: what they compute,
    and what would cross the boundary for them. `graph` is a float or a quantised graph; `on_npu` judges the
    others; by default those of a quantised graph that are integer ones, and of a float graph all but
    operators that only the host has."""

    def __init__(self, graph: Graph, on_npu: Judge | None = None) -> None:
        self.graph, self.on_npu = graph, on_npu or _usual(graph)
        self._producer, self._consumers = graph.producer(), graph.consumers()

    def work(self, nodes: Collection[Node]) -> HostWork:
        """Of nodes that the host would run together. Every value that one side makes and the other reads
        crosses once; not what the program takes in or gives out."""
        inside = {n.outputs for n in nodes}

        def beside(other: Node | None) -> bool:
            return other is not None and other.outputs not in inside and self.on_npu(other)

        read = {v for n in nodes for v in n.inputs if beside(self._producer.get(v))}
        written = {o for n in nodes for o in n.outputs if any(map(beside, self._consumers.get(o, [])))}
        crossing = (_crossed(self.graph, v) for v in sorted(read | written))
        return sum(crossing, sum((_own(self.graph, n) for n in nodes), HostWork()))


def placed_work(graph: Graph, on_npu: Judge) -> HostWork:
    """All of the host's part of a float graph, by the place of each node; what
    crosses counts as codes of 8 bits."""
    host = [n for n in graph.nodes if not on_npu(n)]
    return HostPricing(graph, on_npu).work(host)


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
