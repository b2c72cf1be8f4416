"""A candidate in any mixture of widths and float types before its judge, by fake quantisation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from glob import escape

from npuflow.hw.floats import rounded
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.place.place import op_name
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Override
from npuflow.quantise.scales import activation_inputs
from npuflow.strategies import FLOAT, OWN, WIDE, Levels, Noise
from npuflow.tune.judge import Judge
from npuflow.tune.parts import OutputPart
from npuflow.tune.precision.fakequant import (
    FakeQuant,
    FakeQuantNetwork,
    Feed,
    Ranges,
    Table,
    float_steps,
)
from npuflow.tune.precision.levels import LevelTypes, floatable
from npuflow.tune.precision.loop_cost import refused_in_loops
from npuflow.tune.precision.prefix import PrefixEvaluation
from npuflow.tune.quality import Outputs, energies, faint, noise_of, probe, probe_scale


@dataclass(frozen=True)
class WidthChoice:
    """Widths as a recipe writes them, and the ranges of what is wider than before."""

    overrides: tuple[Override, ...]
    ranges: Ranges


@dataclass
class Harness:
    """A candidate ready to be run in any mixture of widths. `wide_ranges`: of every activation, without
    clipping. `judge`: of the candidate's float network. `types`: what the levels from OWN on stand for.
    `signal`: [samples, outputs] of the float network where noise is measured, if it is known."""

    network: FakeQuantNetwork
    wide_ranges: Ranges
    judge: Judge
    types: LevelTypes = field(default_factory=LevelTypes)
    signal: Noise | None = None
    _shown: list[list[Array]] = field(default_factory=list, init=False)
    _known: dict[tuple[str, int], Mapping[str, Array]] = field(default_factory=dict, init=False)
    _tables: dict[int, Table] = field(default_factory=dict, init=False)
    _floatable: dict[int, frozenset[int]] = field(default_factory=dict, init=False)

    @property
    def ranges(self) -> Ranges:
        return self.network.candidate.ranges

    @cached_property
    def widest(self) -> int:
        return max(self.network.numerics.activation_bits)

    @cached_property
    def fake(self) -> FakeQuant:
        return FakeQuant(self.network, self.shown, bool(self.types.floats))

    @cached_property
    def shown(self) -> list[str]:
        """Where noise is measured."""
        graph = self.network.graph
        return [probe(graph, p.value or graph.outputs[p.output]) for p in self.judge.parts]

    def probed(self, count: int) -> Outputs:
        """What the probes show of the float network on the first held-out samples."""
        known = len(self._shown[0]) if self._shown else 0
        if known < count:
            more = self.fake.run(self.judge.held[known:count], self.plain, probes=True)
            self._shown = [[*a, *b] for a, b in zip(self._shown or [[] for _ in more], more, strict=True)]
        return self._shown

    @cached_property
    def _probes(self) -> list[OutputPart]:
        """A tensor's probe shows all of it; parts of several tensors are seen in their output. Faint maps are
        weighed as they are judged."""
        found = []
        for i, part in enumerate(self.judge.parts):
            weak = faint(part, [[part.of(a) for a in self.judge.truth[part.output]]])
            scale = probe_scale(self.network.graph, part) if weak else None
            found.append(OutputPart(i, at=None if part.value else part.at, scale=scale))
        return found

    @cached_property
    def probed_signal(self) -> Noise:
        if self.signal is not None:
            return self.signal
        return energies(self.probed(len(self.judge.held)), self._probes, self.judge.where)

    def table(self, level: int) -> Table:
        """Quantisers of all groups at one level."""
        if level not in self._tables and self.types.number(level):
            self._tables[level] = float_steps(self.table(WIDE), self.types.number(level))
        if level not in self._tables:
            bits = self.bits("activation", level)
            wider = level == WIDE or (bits is not None and bits > self.network.quantize.activations.bits)
            ranges = {**self.ranges, **self.wide_ranges} if wider else self.ranges
            self._tables[level] = self.network.table(ranges, bits)
        return self._tables[level]

    @cached_property
    def plain(self) -> Table:
        return self.network.unrounded(self.table(WIDE))

    def bits(self, kind: str, level: int) -> int | None:
        """The width that a level stands for; None: the recipe's."""
        numerics = self.network.numerics
        if level == WIDE:
            return max(numerics.weight_bits) if kind == "weight" else self.widest
        return self.types.bits(level) if level >= OWN else None

    def floatable(self, level: int) -> frozenset[int]:
        """The units that a float level is for."""
        if level not in self._floatable:
            known = {**self.ranges, **self.wide_ranges}
            self._floatable[level] = floatable(self.network, self.types, level, known)
        return self._floatable[level]

    def settled(self, levels: Levels) -> Levels:
        """The same with a float level for every unit that layers in that type alone read and write."""
        own = [self.types.of_layer(units, levels) for units in self.network.touched]
        if not any(own):
            return levels
        around: dict[int, set[int]] = {}
        for level, units in zip(own, self.network.touched, strict=True):
            for unit in units:
                around.setdefault(unit, set()).add(level)
        settled = {u: some.pop() for u, some in around.items() if len(some) == 1}
        fits = {u: level for u, level in settled.items() if level and u in self.floatable(level)}
        return tuple(fits.get(u, level) for u, level in enumerate(levels))

    @property
    def names(self) -> list[tuple[str, str]]:
        """(kind, name) of every unit: groups of activations by their first value, then weights by theirs."""
        groups = [("activation", group[0]) for group in self.network.groups]
        return groups + [("weight", w.value) for w in self.network.weights]

    def weight(self, j: int, level: int) -> Mapping[str, Array]:
        """By value id: the weight, and a bias that goes with it."""
        one = self.network.weights[j]
        key = one.value, level
        if key not in self._known and self.types.number(level):
            real = self.network.graph.const(one.value)
            assert real is not None
            found = rounded(real, self.types.number(level)).astype(real.dtype)
            self._known[key] = {one.value: self.network.kept(found)}
        if key not in self._known:
            self._known[key] = self.network.coded(one, self.bits("weight", level))
        return self._known[key]

    def together(self, units: Sequence[int], level: int, probes: int) -> Noise:
        """Noise when some units are quantised, at one level, and all others are float."""
        table, first = self.plain.copy(), len(self.network.groups)
        weights: dict[str, Array] = {}
        for unit in units:
            if unit < first:
                table[unit] = self.table(level)[unit]
            else:
                weights.update(self.weight(unit - first, level))
        count = len(self.judge.held[:probes])
        if self.prefix is not None and self.prefix.pays(units):
            return self._noise(self.prefix.run(units, table, weights, count))
        return self.probe_noise(table, weights, probes)

    def ready(self, samples: int) -> None:
        """Compute what all units are compared with, and open sessions, before several threads need them."""
        if self.judge.parts:
            self._noise(self.probed(len(self.judge.held[:samples])))
        _ = self.prefix

    @cached_property
    def prefix(self) -> PrefixEvaluation | None:
        """For single units. None where the model states roundings, which the float network does without."""
        if self.network.given or not self.judge.parts:
            return None
        return PrefixEvaluation(self.network, self.shown, bool(self.types.floats), self.judge.held)

    def probe_noise(self, table: Table, weights: Mapping[str, Array], probes: int) -> Noise:
        """Noise over signal where it adds up: before a last Softmax or Sigmoid."""
        return self._noise(self.fake.run(self.judge.held[:probes], table, weights, probes=True))

    def _noise(self, made: Outputs) -> Noise:
        signal = self.probed_signal
        return noise_of(self.probed(len(made[0])), made, self._probes, signal, self.judge.where)

    def mixed(self, levels: Levels, feeds: Sequence[Feed]) -> Outputs:
        """Outputs with fake quantisation at the levels."""
        return self.fake.run(feeds, *self.mixture(levels))

    def mixture(self, levels: Levels) -> tuple[Table, Mapping[str, Array]]:
        """Quantisers and weights at the levels."""
        levels = self.settled(levels)
        table, first = self.plain.copy(), len(self.network.groups)
        for k, level in enumerate(levels[:first]):
            if level != FLOAT:
                table[k] = self.table(level)[k]
        weights: dict[str, Array] = {}
        for j, level in enumerate(levels[first:]):
            if level != FLOAT:
                weights.update(self.weight(j, level))
        return table, weights

    def choice(self, levels: Levels) -> WidthChoice:
        """The levels as overrides: by value for what layers write, by layer for what they read
        from outside or as constants."""
        network, first = self.network, len(self.network.groups)
        graph, groups = network.graph, list(zip(network.groups, levels, strict=False))
        producer, consumers = graph.producer(), graph.consumers()
        typed = dict(self._typed(levels))
        mine = {n.outputs for n in network.nodes if n.outputs not in typed}
        changed: dict[int, list[str]] = {}
        for group, level in groups:
            if (bits := self.bits("activation", level)) is not None:
                changed.setdefault(bits, []).extend(group)
        floats = [v for group, level in groups if level == FLOAT for v in group]
        found: list[Override] = []
        written = {
            v for some in changed.values() for v in some if v in producer and producer[v].outputs in mine
        }
        given = [v for some in changed.values() for v in some if v not in written]
        reading = {n.outputs: n for v in given for n in consumers.get(v, []) if n.outputs in mine}
        for width, names in self._kept(reading.values(), {*written, *floats}, mine).items():
            found.append(Override(layers=self._exactly(names), bits=width))
        for bits, some in sorted(changed.items()):
            names = [v for v in some if v in written]
            outside = {
                n.outputs: n
                for v in some
                if v not in written
                for n in consumers.get(v, [])
                if n.outputs in mine
            }
            readers = [n.outputs[0] for n in outside.values()]
            found += [Override(layers=self._exactly(names), bits=bits)] if names else []
            found += [Override(layers=self._exactly(readers), input_bits=bits)] if readers else []
        coded: dict[int, list[str]] = {}
        for weight, level in zip(network.weights, levels[first:], strict=True):
            whose = graph.nodes[weight.node].outputs
            if whose in mine and (bits := self.bits("weight", level)) is not None:
                coded.setdefault(bits, []).append(graph.nodes[weight.node].outputs[0])
        for bits, names in sorted(coded.items()):
            found.append(Override(layers=self._exactly(names), weight_bits=bits))
        left = dict.fromkeys(
            n.outputs[0]
            for v in floats
            for n in (*consumers.get(v, []), *([producer[v]] if v in producer else []))
            if n.outputs in mine
        )
        found += [Override(layers=self._exactly(left), float=True)] if left else []
        for level in self.types.float_levels:
            own = [outputs[0] for outputs, one in typed.items() if one == level]
            found += [self._of_type(own, self.types.mode(level))] if own else []
        usual = network.quantize.activations.bits
        wider = (v for bits, some in changed.items() if bits > usual or bits == self.widest for v in some)
        return WidthChoice(tuple(found), {v: self.wide_ranges[v] for v in wider if v in self.wide_ranges})

    def _typed(self, levels: Levels) -> Iterator[tuple[tuple[str, ...], int]]:
        """Layers of the NPU in floats, by what they write, with their level."""
        for node, units in zip(self.network.nodes, self.network.touched, strict=True):
            level = self.types.of_layer(units, levels)
            if level:
                yield node.outputs, level

    def _of_type(self, names: Iterable[str], mode: str) -> Override:
        """Layers that compute in a float type."""
        return Override(layers=self._exactly(names)).with_(type=mode)

    def _kept(
        self, readers: Iterable[Node], wide: Collection[str], mine: Collection[tuple[str, ...]]
    ) -> dict[int, list[str]]:
        """By width what layers in integers, `mine`, write and `readers` read beside their wide
        inputs: it keeps its width."""
        network, found = self.network, dict[int, list[str]]()
        written = {o for outputs in mine for o in outputs}
        read = (v for n in readers for _, v in activation_inputs(network.graph, n))
        for value_id in dict.fromkeys(v for v in read if v in written and v not in wide):
            found.setdefault(self.written_bits[value_id], []).append(value_id)
        return found

    @cached_property
    def written_bits(self) -> dict[str, int]:
        """Bits of every activation, by the recipe."""
        return {v: quant.bits for v, quant in self.network.types(self.ranges).items()}

    def _exactly(self, names: Iterable[str]) -> tuple[str, ...]:
        """Values as recipes name layers: each stands for itself alone, even if it is
        called as an operator is."""
        operators = {op_name(n) for n in self.network.graph.nodes}
        return tuple(_escaped(v) if v in operators or set(v) & set("*?[") else v for v in names)

    def candidate(self, levels: Levels) -> Candidate:
        """The candidate with the levels."""
        choice = self.choice(levels)
        return self.network.candidate.with_overrides(choice.overrides).with_ranges(choice.ranges)

    def built(self, levels: Levels) -> Graph:
        """The quantised graph at the levels."""
        return self.judge.built(self.candidate(levels))

    def refused(self, levels: Levels) -> dict[str, str]:
        """What the target refuses in loops at the levels, by what it makes, with the reason: with each the
        host runs a whole loop."""
        return refused_in_loops(self.network.graph, self.judge.quantised(self.candidate(levels)).refused)


def _escaped(name: str) -> str:
    """A pattern that the name alone fits."""
    found = escape(name)
    return found if found != name else f"[{name[0]}]{name[1:]}"
