"""The longest chain of dependent layers of a segment: each has at least its commands behind what it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from npuflow.ir.graph import Graph
from npuflow.ir.moves import Move
from npuflow.ir.op import Node
from npuflow.ir.space import Operand, Space
from npuflow.place.partition import is_npu
from npuflow.schedule.needed import takes_all
from npuflow.schedule.work import LeastWork

Times = tuple[float, float]  # when a first element of a value can be there, and when the last


@dataclass
class Chain:
    """`first`: nothing is in local memory before this segment. A move costs nothing here: it may be done
    by the loads and stores of its neighbours."""

    graph: Graph
    nodes: Sequence[int]
    moving: Mapping[int, tuple[Move, ...]]
    space: Callable[[int], Space]
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


def _whole(operand: Operand, space: Space) -> bool:
    """Whether every result depends on the whole operand."""
    made = {m.axis for o in space.outputs for m in o.maps}
    return all(
        size == 1 or m.axis is None or (m.axis not in made and space.axis(m.axis).size >= size)
        for m, size in zip(operand.maps, operand.shape, strict=True)
    )


def _covered(operand: Operand, space: Space) -> bool:
    """Whether every element of an operand is read: windows move by one place, and reach both ends."""
    for m, size in zip(operand.maps, operand.shape, strict=True):
        if m.axis is None or size == 1:
            continue
        low, high = m.window(0, space.axis(m.axis).size)
        if m.num > m.den or low > 0 or high < size:
            return False
    return True
