"""A network's precision as a problem for a strategy: its units, their noise, what mixtures
cost and how close they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import escape
from typing import Literal

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.engine.correct.bias import correct_biases
from npuflow.engine.correct.error import outputs_of
from npuflow.engine.place import op_name
from npuflow.engine.precision.cost import CostModel
from npuflow.engine.precision.drop import MetricDrop
from npuflow.engine.precision.fakequant import (
    FakeQuant,
    FakeQuantNetwork,
    Feed,
    Ranges,
    Table,
)
from npuflow.engine.precision.quality import (
    EXACT,
    Outputs,
    decibels,
    energies,
    noise_of,
    probe,
    quality,
    real_outputs,
)
from npuflow.engine.quantize.config import Override
from npuflow.engine.quantize.graph import Quantization, quantize_graph
from npuflow.engine.quantize.scales import activation_inputs
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.strategies import FLOAT, NARROW, OWN, WIDE, Budget, Goal, Levels, Noise, Output, Unit

STEADY = 8                                # held-out samples that rank mixtures


@dataclass(frozen=True)
class WidthChoice:
    """Widths as a recipe writes them, and the ranges of what is wider than before."""

    overrides: tuple[Override, ...]
    ranges: Ranges


@dataclass
class Rig:
    """A network with its ranges, ready to be run in any mixture. `wide_ranges`: of every activation, without
    clipping. `widths`: bits of the levels from OWN on."""

    network: FakeQuantNetwork
    ranges: Ranges
    wide_ranges: Ranges
    fit: Sequence[Feed]
    held: Sequence[Feed]
    widths: tuple[int, ...] = ()
    _known: dict[tuple[str, int], Mapping[str, Array]] = field(default_factory=dict, init=False)
    _tables: dict[int, Table] = field(default_factory=dict, init=False)

    @cached_property
    def widest(self) -> int:
        return max(self.network.numerics.activation_bits)

    @cached_property
    def fake(self) -> FakeQuant:
        graph = self.network.graph
        return FakeQuant(self.network, [probe(graph, graph.outputs[i]) for i in self.which])

    @cached_property
    def truth(self) -> Outputs:
        """The outputs on the held-out samples of the float network, with the roundings that it states."""
        return outputs_of(self.network.reference, self.held)

    @cached_property
    def which(self) -> tuple[int, ...]:
        return real_outputs(self.network.graph)

    @cached_property
    def signal(self) -> Noise:
        return energies(self.truth, self.which)

    @cached_property
    def probed(self) -> Outputs:
        """What the probes show of the float network on the held-out samples."""
        return self.fake.run(self.held, self.plain, probes=True)

    @cached_property
    def probed_signal(self) -> Noise:
        return energies(self.probed, range(len(self.which)))

    def table(self, level: int) -> Table:
        """Quantisers of all groups at one level."""
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
        return self.widths[level - OWN] if level >= OWN else None

    @property
    def names(self) -> list[tuple[str, str]]:
        """(kind, name) of every unit: groups of activations by their first value, then weights by theirs."""
        groups = [("activation", group[0]) for group in self.network.groups]
        return groups + [("weight", w.value) for w in self.network.weights]

    def weight(self, j: int, level: int) -> Mapping[str, Array]:
        """By value id: the weight, and a bias that goes with it."""
        one = self.network.weights[j]
        key = one.value, level
        if key not in self._known:
            self._known[key] = self.network.coded(one, self.bits("weight", level))
        return self._known[key]

    def noise(self, made: Outputs) -> Noise:
        return noise_of(self.truth, made, self.which, self.signal)

    def together(self, units: Sequence[int], level: int, probes: int) -> Noise:
        """Noise when some units are quantised, at one level, and all others are float."""
        table, first = self.plain.copy(), len(self.network.groups)
        weights: dict[str, Array] = {}
        for unit in units:
            if unit < first:
                table[unit] = self.table(level)[unit]
            else:
                weights.update(self.weight(unit - first, level))
        return self.probe_noise(table, weights, probes)

    def probe_noise(self, table: Table, weights: Mapping[str, Array], probes: int) -> Noise:
        """Noise over signal where it adds up: before a last Softmax or Sigmoid."""
        made = self.fake.run(self.held[:probes], table, weights, probes=True)
        return noise_of(self.probed, made, range(len(self.which)), self.probed_signal)

    def mixed(self, levels: Levels, feeds: Sequence[Feed]) -> Outputs:
        """Outputs with fake quantisation at the levels."""
        return self.fake.run(feeds, *self.mixture(levels))

    def mixture(self, levels: Levels) -> tuple[Table, Mapping[str, Array]]:
        """Quantisers and weights at the levels."""
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
        mine = {n.outputs for n in network.nodes}
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
        for width, names in self._kept(reading.values(), {*written, *floats}).items():
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
            if (bits := self.bits("weight", level)) is not None:
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
        usual = network.quantize.activations.bits
        wider = (v for bits, some in changed.items() if bits > usual or bits == self.widest for v in some)
        return WidthChoice(tuple(found), {v: self.wide_ranges[v] for v in wider if v in self.wide_ranges})

    def _kept(self, readers: Iterable[Node], wide: Collection[str]) -> dict[int, list[str]]:
        """By width what layers of the NPU write and `readers` read beside their wide
        inputs: it keeps its width."""
        network, found = self.network, dict[int, list[str]]()
        written = {o for n in network.nodes for o in n.outputs}
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

    def quantized(self, levels: Levels) -> Quantization:
        """The quantised graph at the levels."""
        network, choice = self.network, self.choice(levels)
        scheme = replace(network.quantize, overrides=(*choice.overrides, *network.quantize.overrides))
        ranges = {**self.ranges, **choice.ranges}
        placed = network.placed
        return quantize_graph(
            network.graph, placed.on_npu, ranges, scheme, network.numerics, network.stated, placed.stranded,
            rounded=network.rounded,
        )


def _escaped(name: str) -> str:
    """A pattern that the name alone fits."""
    found = escape(name)
    return found if found != name else f"[{name[0]}]{name[1:]}"


@dataclass
class SearchProblem:
    """What a strategy is given. `noises`: [units, samples, outputs], each unit alone
    at the recipe's width."""

    rig: Rig
    cost: CostModel
    budget: Budget
    noises: Callable[[], Sequence[Noise]]
    probes: int
    corrected: bool
    log: Callable[[str], None]
    goal: Goal = field(default_factory=Goal)
    candidates: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    drop: MetricDrop | None = None
    verdicts: dict[Levels, tuple[Output, ...]] = field(default_factory=dict)
    measures: dict[Levels, tuple[Output, ...]] = field(default_factory=dict)
    _alone: dict[tuple[int, int], Noise] = field(default_factory=dict)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        return tuple(self._units())

    def cycles(self, levels: Levels) -> float:
        return self.cost.cycles(levels)

    def price(self, levels: Levels, what: str | None = None) -> float:
        chosen = what or self.goal.minimise
        if chosen == "cycles":
            return self.cost.cycles(levels) / self.cost.cycles((NARROW,) * len(levels))
        return self.cost.weight_bytes(levels) if chosen == "bytes" else self.cost.weight_bits(levels)

    def noise(self, unit: int, level: int) -> Noise:
        if level == NARROW:
            return self.units[unit].noise
        if (unit, level) not in self._alone:
            zero = level == FLOAT
            found = 0 * self.units[unit].noise if zero else self.rig.together([unit], level, self.probes)
            self._alone[unit, level] = found
        return self._alone[unit, level]

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        return self.cost.delta(levels, unit, level)

    def measured(self, levels: Levels) -> Sequence[Output]:
        if levels not in self.measures:
            rig = self.rig
            found = quality(rig.network.graph, rig.truth, rig.mixed(levels, rig.held))
            labelled = (self.drop(rig.mixed(levels, self.drop.feeds)),) if self.drop is not None else ()
            self.measures[levels] = (*found, *labelled)
        return self.measures[levels]

    def steady(self, levels: Levels) -> float:
        rig = self.rig
        noise = rig.probe_noise(*rig.mixture(levels), min(len(rig.held), STEADY))
        return float(decibels(noise).mean(0).min(initial=EXACT))

    def verified(self, levels: Levels) -> Sequence[Output]:
        if levels not in self.verdicts:
            self.verdicts[levels] = self._verified(levels)
            said = ", ".join(described(one) for one in self.verdicts[levels])
            self.log(f"{self.summarised(levels)}: {said}")
        return self.verdicts[levels]

    def floor(self) -> Noise:
        rig = self.rig
        return rig.probe_noise(*rig.mixture((WIDE,) * len(self.units)), self.probes)

    def wide_noise(self) -> Sequence[Noise]:
        return [self.rig.together([k], WIDE, min(self.probes, 2)) for k in range(len(self.units))]

    def summarised(self, levels: Levels) -> str:
        """For the log: how many units have which width, and what that costs."""
        counts = Counter(
            (u.kind, level) for u, level in zip(self.units, levels, strict=True) if level != NARROW
        )
        parts = [
            f"{n} {kind}s {'float' if level == FLOAT else f'at {self.rig.bits(kind, level)} bits'}"
            for (kind, level), n in sorted(counts.items())
        ]
        costs = f"about {self.price(levels, 'cycles'):.2f} times the cycles"
        if any(kind == "weight" for kind, _ in counts):
            costs += f", {100 * self.price(levels, 'bytes'):.0f} % of the bytes of 8-bit weights"
        return f"{', '.join(parts) or 'the widths of the recipe'} of {len(levels)}, {costs}"

    def _verified(self, levels: Levels) -> tuple[Output, ...]:
        rig, network = self.rig, self.rig.network
        try:
            made = rig.quantized(levels).graph
        except TargetError as error:
            self.log(f"a mixture cannot be quantised: {error.message}")
            return tuple(
                replace(one, sqnr=-200.0, low=-200.0, agreement=None) for one in self.measured(levels)
            )
        found = self._judged(made)
        if not self.corrected or self.budget.holds(found):
            return found
        made = correct_biases(network.reference, made, network.numerics, rig.fit, (), judge=False).graph
        better = self._judged(made)
        return max(
            found, better, key=lambda outputs: (self.budget.holds(outputs), self.budget.level(outputs))
        )

    def _judged(self, made: Graph) -> tuple[Output, ...]:
        """Outputs of a quantised network, and what it has lost of the metric."""
        rig, drop = self.rig, self.drop
        found = quality(rig.network.graph, rig.truth, outputs_of(made, rig.held))
        return (*found, drop(outputs_of(made, drop.feeds))) if drop is not None else found

    def _units(self) -> Iterator[Unit]:
        network, first = self.rig.network, len(self.rig.network.groups)
        producer, consumers = network.graph.producer(), network.graph.consumers()
        place = {n.outputs: i for i, n in enumerate(network.graph.nodes)}
        for k, ((kind, name), noise) in enumerate(zip(self.rig.names, self.noises(), strict=True)):
            group = network.groups[k] if k < first else ()
            around = [
                n for v in group for n in (*consumers.get(v, []), *([producer[v]] if v in producer else []))
            ]
            sensitive = any(n.op.sensitive for n in around)
            what: Literal["activation", "weight"] = "activation" if kind == "activation" else "weight"
            at = (
                network.weights[k - first].node
                if k >= first
                else min((place[n.outputs] for n in around), default=0)
            )
            some = self.candidates.get(what, (NARROW, WIDE))
            yield Unit(name, what, np.asarray(noise), self.cost.neighbours(k), sensitive, some, at)


def cost_of(rig: Rig, target: Target) -> CostModel:
    """What mixtures of a network cost, by its plan with the recipe's own widths."""
    return CostModel(rig.network, target, rig.quantized((NARROW,) * len(rig.names)).graph, rig.widths)


def described(one: Output) -> str:
    """For logs and summaries."""
    if one.drop is not None:
        return f"{one.name} {-one.drop:+.4f}"
    answers = "" if one.agreement is None else f", {100 * one.agreement:.1f} % of answers"
    return f"{one.name} {one.sqnr:.1f} dB (four of five samples {one.low:.1f}{answers})"
