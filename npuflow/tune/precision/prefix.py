"""Computes the noise of units that few layers touch without a pass of the whole network.
What stands above the first of these layers is kept of every sample, and what stands behind the last runs
without quantisers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import RLock
from typing import Any

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.loops import before
from npuflow.ir.macs import node_macs
from npuflow.ir.types import Array
from npuflow.run.floats import FloatRun
from npuflow.tune import tuned
from npuflow.tune.precision.fakequant import FakeQuant, FakeQuantNetwork, Feed, Section, Table

State = Mapping[str, Array]


@dataclass
class PrefixEvaluation:
    """Sections of a network, one behind the other. `live[i]`: the values between sections i - 1 and i."""

    network: FakeQuantNetwork
    probes: Sequence[str]
    floats: bool
    feeds: Sequence[Feed]

    def __post_init__(self) -> None:
        graph = self.network.graph
        self.asked, self.probes = list(self.probes), list(dict.fromkeys(self.probes))
        self.ends = cuts(graph, self.probes, len(self.feeds))
        known = lives(graph, self.probes).items()
        self.live = [tuple(v for v, (made, last) in known if made <= at <= last) for at in self.ends]
        self._fake: dict[int, tuple[FakeQuant, Sequence[str]]] = {}
        self._rest: dict[int, FloatRun] = {}
        self._known: dict[int, Sequence[State]] = {}
        self._lock = RLock()                  # several threads measure units

    @property
    def sections(self) -> int:
        return len(self.ends) - 1

    def span(self, units: Collection[int]) -> tuple[int, int]:
        """The sections from the first that reads one of the units to the last."""
        found = [place for unit in units for place in self._readers.get(unit, ())]
        return (min(found), max(found)) if found else (self.sections - 1, self.sections - 1)

    def pays(self, units: Collection[int]) -> bool:
        """Whether few enough sections have to be run with quantisers."""
        first, last = self.span(units)
        return (last - first + 1) * 2 <= self.sections

    def run(self, units: Collection[int], table: Table, weights: State, samples: int) -> list[list[Array]]:
        """Per probe its values, sample by sample. `table` and `weights`: as for the whole network, with all
        but some units unquantised."""
        first, last = self.span(units)
        rows = [self._through(first, last, s, table, weights) for s in range(samples)]
        return [[row[v] for row in rows] for v in self.asked]

    def _through(self, first: int, last: int, sample: int, table: Table, weights: State) -> State:
        state = dict(self._states(sample)[first])
        for i in range(first, last + 1):
            end = i == self.sections - 1
            part, made = self._section(i)
            found = part.run([state], table, weights, probes=end)
            state = {**state, **dict(zip(made, (v[0] for v in found), strict=True))}
        if last < self.sections - 1:
            state = {**state, **self._plain(last + 1, state)}
        return state

    @cached_property
    def _readers(self) -> Mapping[int, Sequence[int]]:
        """By unit the sections with nodes that read it, and the last one for what is shown."""
        units, found = self.network.units, dict[int, list[int]]()
        for i, nodes in enumerate(self._runs()):
            for node in nodes:
                for value in node.inputs:
                    if value in units:
                        found.setdefault(units[value], []).append(i)
        for value in self.probes:
            if value in units:
                found.setdefault(units[value], []).append(self.sections - 1)
        return found

    def _runs(self) -> Iterator[Sequence[Any]]:
        for start, end in pairwise(self.ends):
            yield self.network.graph.nodes[start:end]

    @cached_property
    def _whole(self) -> FloatRun:
        return FloatRun.of(self.network.graph, [v for some in self.live for v in some])

    def _states(self, sample: int) -> Sequence[State]:
        """What the float network has of a sample before every section."""
        with self._lock:
            if sample not in self._known:
                values = {**self.feeds[sample], **self._whole.run(self.feeds[sample])}
                self._known[sample] = [{v: values[v] for v in some} for some in self.live]
            return self._known[sample]

    def _section(self, i: int) -> tuple[FakeQuant, Sequence[str]]:
        """A section with quantisers, and what it shows."""
        with self._lock:
            if i not in self._fake:
                self._fake[i] = self._opened(i)
            return self._fake[i]

    def _opened(self, i: int) -> tuple[FakeQuant, Sequence[str]]:
        graph, end = self.network.graph, i == self.sections - 1
        nodes = graph.nodes[self.ends[i] : self.ends[i + 1]]
        own = {v for node in nodes for v in node.outputs}
        needed = {v for node in nodes for v in node.inputs} | set(self.probes if end else ())
        fed = tuple(v for v in self.live[i] if v in needed)
        made = tuple(v for v in (self.probes if end else self.live[i + 1]) if v in own)
        shown = [v for v in self.probes if end and (v in own or v in self.network.units)]
        fake = FakeQuant(self.network, shown, self.floats, Section(nodes, fed, made))
        return fake, shown if end else made

    def _plain(self, i: int, state: State) -> State:
        """The probes behind section i - 1, everything unquantised."""
        with self._lock:
            if i not in self._rest:
                self._rest[i] = FloatRun.of(self.network.graph, self.probes, self.ends[i])
            rest = self._rest[i]
        return rest.run(state)


def lives(graph: Graph, probes: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Computed values and inputs: the first place in the order of the nodes where each is there, and the last
    where a node behind it reads it; at the end for what is shown."""
    made = dict.fromkeys(graph.inputs, 0)
    made |= {v: i + 1 for i, node in enumerate(graph.nodes) for v in node.outputs if v}
    last = {v: i for i, node in enumerate(graph.nodes) for v in node.inputs if v in made}
    last |= dict.fromkeys(probes, len(graph.nodes))
    return {v: (made[v], at) for v, at in last.items()}


def cuts(graph: Graph, probes: Sequence[str], samples: int) -> list[int]:
    """Places in the order of the nodes, 0 and the end among them, between which there is about equally much
    to do; of those that are near the one where fewest bytes pass."""
    count = len(graph.nodes)
    work = np.cumsum([0.0, *(_work(graph, i) for i in range(count))])
    stored = max(sum(array.nbytes for array in graph.consts.values()), 1)
    sections = int(min(tuned.SECTIONS, max(2 * tuned.SECTION_WEIGHTS // stored, 1), max(count // 4, 1)))
    changes = np.zeros(count + 2)
    for value, (made, last) in lives(graph, probes).items():
        changes[made] += _bytes(graph, value)
        changes[last + 1] -= _bytes(graph, value)
    passing = np.cumsum(changes)
    found, each = [0], work[-1] / sections
    for i in range(1, sections):
        near = np.flatnonzero(np.abs(work - i * each) <= tuned.SECTION_NEAR * each)
        some = [int(at) for at in near if found[-1] < at < count and before(graph, int(at)) == at]
        if some:
            found.append(min(some, key=lambda at: (passing[at], at)))
    while len(found) > 1 and samples * sum(passing[at] for at in found[1:]) > tuned.SECTION_VALUES:
        found.remove(max(found[1:], key=lambda at: passing[at]))
    return [*found, count]


def _work(graph: Graph, index: int) -> float:
    node = graph.nodes[index]
    return node_macs(graph, node) + tuned.SECTION_VALUE * sum(_size(graph, v) for v in node.outputs if v)


def _bytes(graph: Graph, value: str) -> int:
    return _size(graph, value) * np.dtype(graph.type(value).dtype).itemsize


def _size(graph: Graph, name: str) -> int:
    type_ = graph.type(name)
    return type_.size if type_.is_static else 1
