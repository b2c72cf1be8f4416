"""A graph while rules change it: nodes, makers and readers of values, at the cost of each change alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from npuflow.ir.graph import Graph, prune, reaching
from npuflow.ir.loops import has_loops
from npuflow.ir.op import Node
from npuflow.ir.queries import remember
from npuflow.rules import Change

_GAP = 1 << 40  # between the places of neighbours, so that nodes fit in between


class WorkingGraph:
    """A pruned graph whose nodes run in their order. `graph` is it as it is now; the one before a change
    must not be used any more. What `changed` cannot do in place it leaves, and says so."""

    def __init__(self, graph: Graph) -> None:
        self.source, self.outputs = graph, frozenset(graph.outputs)
        self.nodes = list(graph.nodes)
        self.values, self.consts = dict(graph.values), dict(graph.consts)
        self.makers, self.readers = graph.producer(), graph.consumers()
        self.places = [k * _GAP for k in range(len(self.nodes))]
        self.place = {n.outputs: p for n, p in zip(self.nodes, self.places, strict=True)}
        self.looped = has_loops(graph)
        self.graph = self._graph()

    def pruned(self) -> Graph:
        """The graph without constants that nobody names."""
        return prune(self.graph)

    def changed(self, change: Change) -> tuple[Node, ...] | None:
        """The nodes that are gone beside the removed ones, with the change made; None where it is not made:
        it would rename a result of the network, or nodes would have to change places."""
        removed = [self.makers[next(o for o in node.outputs if o)] for node in change.remove]
        aliases = dict(change.alias)
        if self.outputs & (aliases.keys() | set(aliases.values())) or aliases.keys() & set(aliases.values()):
            return None
        spot = max(self.place[node.outputs] for node in removed)
        if not self._runs(change, removed, aliases, spot):
            return None
        self.values.update((value.id, value) for value in change.values)
        self.consts.update(change.consts)
        for node in removed:
            self._take(node)
        self._put(change.nodes, spot)
        self.looped = self.looped or any(n.op.border_of_loop for n in change.nodes)
        for old, new in aliases.items():
            self._redirect(old, new)
        dead = self._bury([*removed, *change.nodes])
        self.graph = self._graph()
        return dead

    def _graph(self) -> Graph:
        graph = replace(
            self.source,
            nodes=tuple(self.nodes),
            values=MappingProxyType(self.values),
            consts=MappingProxyType(self.consts),
        )
        remember(graph, self.makers, self.readers)
        return graph

    # --- the order
    def _at(self, place: int) -> int:
        return bisect_left(self.places, place)

    def _runs(self, change: Change, removed: list[Node], aliases: Mapping[str, str], spot: int) -> bool:
        """Whether every node still stands behind what it reads, with the new ones at `spot`."""
        gone, made = {n.outputs for n in removed}, set[str]()
        for node in change.nodes:
            if any(i and i not in made and not self._before(i, spot, gone) for i in node.inputs):
                return False
            made.update(o for o in node.outputs if o)
        for value in made | aliases.keys():
            new = aliases.get(value, value)
            for reader in self.readers.get(value, ()):
                if reader.outputs in gone:
                    continue
                place = self.place[reader.outputs]
                if place <= spot if new in made else not self._before(new, place, gone):
                    return False
        return True

    def _before(self, value: str, place: int, gone: set[tuple[str, ...]]) -> bool:
        """Whether a value is there at a place without the nodes that are gone."""
        maker = self.makers.get(value)
        return maker is None or (maker.outputs not in gone and self.place[maker.outputs] < place)

    # --- nodes
    def _take(self, node: Node) -> None:
        index = self._at(self.place.pop(node.outputs))
        del self.nodes[index], self.places[index]
        for value in node.outputs:
            self.makers.pop(value, None)
        for value in {i for i in node.inputs if i}:
            found = self.readers[value]
            del found[next(k for k, reader in enumerate(found) if reader is node)]

    def _put(self, nodes: tuple[Node, ...], spot: int) -> None:
        """Nodes in the order given, where one stood that was taken."""
        if not nodes:
            return
        index = self._at(spot)
        below = self.places[index - 1] if index else spot - _GAP
        above = self.places[index] if index < len(self.places) else below + _GAP
        if above - below <= len(nodes):
            self._spread()
            below = self.places[index - 1] if index else -_GAP
            above = self.places[index] if index < len(self.places) else below + _GAP
        step = (above - below) // (len(nodes) + 1)
        fresh = [below + (k + 1) * step for k in range(len(nodes))]
        self.nodes[index:index], self.places[index:index] = nodes, fresh
        for node, place in zip(nodes, fresh, strict=True):
            self.place[node.outputs] = place
            self.makers.update((o, node) for o in node.outputs if o)
        for node in nodes:
            self._read(node)

    def _spread(self) -> None:
        """Places with room between them again."""
        self.places = [k * _GAP for k in range(len(self.nodes))]
        self.place = {n.outputs: p for n, p in zip(self.nodes, self.places, strict=True)}

    def _read(self, node: Node) -> None:
        """The node among the readers of its inputs, in the order of the nodes."""
        for value in {i for i in node.inputs if i}:
            found = self.readers.setdefault(value, [])
            at = bisect_left(found, self.place[node.outputs], key=lambda reader: self.place[reader.outputs])
            found.insert(at, node)

    def _redirect(self, old: str, new: str) -> None:
        for reader in list(self.readers.get(old, ())):
            index = self._at(self.place[reader.outputs])
            made = replace(reader, inputs=tuple(new if i == old else i for i in reader.inputs))
            for value in {i for i in reader.inputs if i}:
                found = self.readers[value]
                at = next(k for k, one in enumerate(found) if one is reader)
                if value == old:
                    del found[at]
                else:
                    found[at] = made
            self.nodes[index] = made
            self.makers.update((o, made) for o in made.outputs if o)
            if new not in reader.inputs:
                found = self.readers.setdefault(new, [])
                key = self.place[made.outputs]
                found.insert(bisect_left(found, key, key=lambda one: self.place[one.outputs]), made)

    def _bury(self, around: Iterable[Node]) -> tuple[Node, ...]:
        """Take the nodes that nothing reads any more, and the values that nobody names; the nodes that were
        there before in their order."""
        fresh = {n.outputs for n in around}
        waiting = [v for n in around for v in (*n.outputs, *n.inputs) if v]
        dead: list[tuple[int, Node]] = []
        while waiting or (self.looped and self._take_loops(fresh, dead, waiting)):
            value = waiting.pop()
            maker = self.makers.get(value)
            if maker is not None and not self._read_still(maker):
                if maker.outputs not in fresh:
                    dead.append((self.place[maker.outputs], maker))
                self._take(maker)
                waiting += [v for v in (*maker.outputs, *maker.inputs) if v]
            elif maker is None and not self.readers.get(value) and value not in self.source.inputs:
                self.readers.pop(value, None)
                if value not in self.outputs:
                    self.values.pop(value, None)
        return tuple(node for _, node in sorted(dead, key=lambda pair: pair[0]))

    def _read_still(self, node: Node) -> bool:
        """Whether something reads a result; what a loop carries on may be read in its next step."""
        if any(o in self.outputs or self.readers.get(o) for o in node.outputs):
            return True
        return node.op.border_of_loop in ("carry", "last")

    def _take_loops(
        self, fresh: Collection[tuple[str, ...]], dead: list[tuple[int, Node]], waiting: list[str]
    ) -> bool:
        """Take what only the next steps of loops read, which no count of readers finds; say whether there
        was something."""
        alive = {n.outputs for n in reaching(self.nodes, self.outputs)[0]}
        gone = [n for n in self.nodes if n.outputs not in alive]
        dead += [(self.place[n.outputs], n) for n in gone if n.outputs not in fresh]
        for node in gone:
            self._take(node)
            waiting += [v for v in (*node.outputs, *node.inputs) if v]
        return bool(waiting)
