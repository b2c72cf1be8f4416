"""Fixes of a poor output, applied and measured before they are suggested.

Each candidate is quantised, corrected and run on the held-out samples as a build would. Only those that help
are handed on, with what they gain, what they cost, and the TOML that brings them about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from npuflow.base.errors import NpuflowError
from npuflow.base.tables_write import value as toml
from npuflow.hw.elements import wide as is_wide
from npuflow.hw.target import Target
from npuflow.ir.macs import pass_macs
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import FLOATS, Override, Quantize
from npuflow.strategies import FLOAT, NARROW, WIDE, Budget, Levels, Output
from npuflow.tune import tuned
from npuflow.tune.improve import Proposal
from npuflow.tune.judge import judged_outputs
from npuflow.tune.precision.cost import CostModel
from npuflow.tune.precision.culprit import NoiseSource
from npuflow.tune.precision.fakequant import FakeQuantNetwork, Ranges
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.levels import LevelTypes
from npuflow.tune.precision.output_check import close
from npuflow.tune.precision.problem import cost_of

SHOWN = 6                                 # and printed
CORRECTION = "bias correction"            # the fix that switches it on


@dataclass(frozen=True)
class Fix:
    """One output, before and after; `cycles`: estimated, as a multiple of those of the build; `holds`:
    whether the output is then good."""

    what: str
    toml: str
    before: Output
    after: Output
    cycles: float
    holds: bool

    @property
    def line(self) -> str:
        """'16 bits for "X": 1.7 -> 33.0 dB, about +0 % cycles'."""
        answers = ""
        if self.before.equal is not None and self.after.equal is not None:
            answers = f" ({100 * self.before.equal:.1f} -> {100 * self.after.equal:.1f} % of answers)"
        more = 100 * (self.cycles - 1)
        cycles = "no cycles" if abs(more) < 0.05 else f"about {more:+.0f} % cycles"
        return f"{self.what}: {self.before.sqnr:.1f} -> {self.after.sqnr:.1f} dB{answers}, {cycles}"


@dataclass
class FixSearch:
    """The network as it was built, and what may be changed. `harness.network.quantize` holds all
    overrides, also those that the search for widths made; `recipe` only the user's. `extrema`: ranges
    by `minmax`; `others`: by further methods; `searched`: what a search for widths would choose, where
    the recipe has switched it off.
    """

    harness: Harness
    recipe: Quantize
    target: Target
    budget: Budget
    corrected: bool
    extrema: Ranges
    others: Callable[[], Mapping[str, Ranges]]
    searched: Callable[[], tuple[Sequence[Override], Ranges] | None]
    log: Callable[[str], None]

    def fixes(self, output: str, before: Output, found: Sequence[NoiseSource]) -> list[Fix]:
        """Those that help an output, the cheapest that are enough first. `found`:
        units by what each spoils."""
        kept: list[Fix] = []
        tried: set[str] = set()
        each = pass_macs(self.harness.network.graph) * (2 * tuned.FIX_FITTED + len(self.harness.judge.held))
        most = max(tuned.FIX_LEAST, min(tuned.FIX_MOST, int(tuned.FIX_MACS / each)))
        for one in self._proposals(found, lambda: any(f.holds for f in kept)):
            if one.toml in tried or len(tried) >= most:
                continue
            tried.add(one.toml)
            after = self.measured(one, output)
            if after is None:
                continue
            holds = close(self.budget, after)
            fix = Fix(one.what, one.toml, before, after, self.cycles(one), holds)
            self.log(f"tried {fix.line}")
            if (
                after.sqnr - before.sqnr >= tuned.FIX_GAIN
                or (after.agreement or 0.0) - (before.agreement or 0.0) >= tuned.FIX_SHARE
            ):
                kept.append(fix)
        ranked = sorted(
            kept, key=lambda f: (not f.holds, f.cycles if f.holds else -f.after.sqnr, -f.after.sqnr)
        )
        return _best(ranked)[:SHOWN]

    def measured(self, one: Proposal[Candidate], output: str) -> Output | None:
        """The output with a change, as the quantised network has it; None where it cannot be quantised."""
        judge = self.harness.judge
        fit = judge.fit[: tuned.FIX_FITTED] if self.corrected or one.what == CORRECTION else ()
        try:
            found = judged_outputs(judge.score(one.changed, fit))
        except NpuflowError as error:
            self.log(f"not possible: {one.what}: {error.message}")
            return None
        return next(o for o in found if o.name == output)

    def cycles(self, one: Proposal[Candidate]) -> float:
        cost, plain = self.cost, self.cost.network
        built = cost.cycles(self._levels(plain, self.harness.network.quantize))
        return cost.cycles(self._levels(plain, one.changed.scheme)) / max(built, 1e-9)

    @cached_property
    def cost(self) -> CostModel:
        """Of the network with the recipe's own widths."""
        network = self.harness.network.with_(scheme=self.recipe)
        types = LevelTypes(floats=tuple(name for name, number in FLOATS.items() if number))
        return cost_of(replace(self.harness, network=network, types=types), self.target)

    def _fix(
        self, what: str, toml: str, overrides: Sequence[Override] = (), ranges: Ranges = MappingProxyType({}),
        scheme: Quantize | None = None,
    ) -> Proposal[Candidate]:
        """A change of what was built; a range takes the place of a stated type."""
        now = self.harness.network.candidate
        base = scheme or now.scheme
        changed = now.with_(
            scheme=replace(base, overrides=(*base.overrides, *overrides)),
            stated={v: q for v, q in now.stated.items() if v not in ranges},
        )
        return Proposal(what, changed.with_ranges(ranges), toml=toml)

    def _levels(self, plain: FakeQuantNetwork, scheme: Quantize) -> Levels:
        """Levels of the recipe's own units under a scheme: float where nothing quantises them any more, on
        the NPU where a layer around them has a float type there."""
        network = plain.with_(scheme=scheme)
        types = network.types({**self.extrema, **self.harness.ranges})
        there = {v for group in network.groups for v in group}
        widths = [max((types[v].bits for v in g if v in there), default=0) for g in plain.groups]
        levels = [FLOAT if not bits else WIDE if is_wide(bits) else NARROW for bits in widths]
        wide = {w.value for w in network.weights if is_wide(self._weight_bits(network, w.node))}
        levels += [WIDE if w.value in wide else NARROW for w in plain.weights]
        for node, units in zip(plain.nodes, plain.touched, strict=True):
            level = self.cost.types.level_of(scheme.number(names_of(node), op_name(node)))
            for unit in units:
                if level is not None and (levels[unit] == FLOAT or unit >= len(widths)):
                    levels[unit] = level
        return tuple(levels)

    def _weight_bits(self, network: FakeQuantNetwork, node: int) -> int:
        one = network.graph.nodes[node]
        return network.quantize.weights_of(names_of(one), op_name(one)).bits

    def _proposals(
        self, found: Sequence[NoiseSource], enough: Callable[[], bool]
    ) -> Iterator[Proposal[Candidate]]:
        yield from self._free(found)
        for one in found[:2]:
            yield self._wide([one])
        if self.recipe.activations.bits < 8:
            narrow = replace(self.recipe.activations, bits=8)
            scheme = replace(self.harness.network.quantize, activations=narrow)
            yield self._fix(
                "8 bits for activations", "[quantize]\nactivations = { bits = 8 }", scheme=scheme
            )
        made = self.searched() if not enough() else None
        if made is not None:
            text = '[precision]\nstrategy = "auto"'
            yield self._fix("widths by need", text, tuple(made[0]), made[1])
        if not enough() and found:
            yield self._float(found[0])
        helpful = [one for one in found if one.after > one.before + 0.01]
        for count in (4, 12, 36):
            if not enough() and count < 3 * len(helpful):
                yield self._wide(helpful[:count])
        if not enough():
            yield from self._all_wide()

    def _free(self, found: Sequence[NoiseSource]) -> Iterator[Proposal[Candidate]]:
        """What costs no cycles: ranges, methods, bias correction."""
        for one in found[:2]:
            values = self._values(one)
            if one.kind == "activation" and any(self._differs(v) for v in values):
                own = {v: self.extrema[v] for v in values if v in self.extrema}
                yield self._fix(f"min-max range for {_called(one)}", _minmax(list(own)), ranges=own)
            if one.kind == "weight" and self.recipe.weights.per == "tensor":
                layer = self._weight_layer(one)
                text = _override((layer,), weight_per="channel")
                apart = (Override((layer,), weight_per="channel"),)
                yield self._fix(f"weights per channel for {_called(one)}", text, apart)
        if not self.corrected:
            yield self._fix(CORRECTION, '[correct]\nbias = "auto"')
        for method, ranges in self.others().items():
            yield self._fix(
                f'method "{method}" for all ranges', f'[calibrate]\nmethod = "{method}"', ranges=ranges
            )

    def _wide(self, found: Sequence[NoiseSource]) -> Proposal[Candidate]:
        """The widest integers for some units, their ranges not clipped."""
        harness = self.harness
        first, numerics = len(harness.network.groups), harness.network.numerics
        levels = [NARROW] * len(harness.names)
        for one in found:
            levels[one.unit] = WIDE
        made = harness.choice(tuple(levels))
        wide = [v for one in found if one.unit < first for v in harness.network.groups[one.unit]]
        clipped = {v: self.extrema[v] for v in wide if self._differs(v)}
        bits = max(numerics.activation_bits) if wide else max(numerics.weight_bits)
        what = _called(found[0]) if len(found) == 1 else f"{len(found)} tensors from {_called(found[0])} on"
        parts = [_override(o.layers, **_said(o)) for o in made.overrides]
        text = "\n".join([*parts, *([_minmax(list(clipped))] if clipped else [])])
        return self._fix(f"{bits} bits for {what}", text, made.overrides, clipped)

    def _float(self, one: NoiseSource) -> Proposal[Candidate]:
        levels = [NARROW] * len(self.harness.names)
        first = len(self.harness.network.groups)
        if one.unit < first:
            levels[one.unit] = FLOAT
            overrides = self.harness.choice(tuple(levels)).overrides
        else:
            overrides = (Override((self._weight_layer(one),), float=True),)
        text = "\n".join(_override(o.layers, **_said(o)) for o in overrides)
        return self._fix(f"float on the host for the layers around {_called(one)}", text, overrides)

    def _all_wide(self) -> Iterator[Proposal[Candidate]]:
        bits = max(self.harness.network.numerics.activation_bits)
        if bits > self.recipe.activations.bits:
            base = self.harness.network.quantize
            scheme = replace(base, activations=replace(base.activations, bits=bits))
            text = f'[calibrate]\nmethod = "minmax"\n[quantize]\nactivations = {{ bits = {bits} }}'
            wide = {v: span for v, span in self.extrema.items() if v in self.harness.ranges}
            yield self._fix(f"{bits} bits for all activations", text, ranges=wide, scheme=scheme)

    def _values(self, one: NoiseSource) -> tuple[str, ...]:
        groups = self.harness.network.groups
        return groups[one.unit] if one.unit < len(groups) else ()

    def _weight_layer(self, one: NoiseSource) -> str:
        network = self.harness.network
        return network.graph.nodes[network.weights[one.unit - len(network.groups)].node].outputs[0]

    def _differs(self, value: str) -> bool:
        """Whether a range is not what calibration saw."""
        ranges = self.harness.ranges
        if value not in ranges or value not in self.extrema:
            return False
        have, want = np.array(ranges[value]), np.array(self.extrema[value])
        return bool(np.abs(have - want).max() > tuned.FIX_APART * max(float(want[1] - want[0]), 1e-30))


def _best(ranked: Sequence[Fix]) -> list[Fix]:
    """Without fixes that cost no less than one before them and gain no more."""
    kept: list[Fix] = []
    for fix in ranked:
        if not any(
            k.cycles <= fix.cycles + 1e-6 and k.after.sqnr >= fix.after.sqnr - 0.2 and k.holds >= fix.holds
            for k in kept
        ):
            kept.append(fix)
    return kept


def _called(one: NoiseSource) -> str:
    return f'"{one.value}"' if one.kind == "activation" else f'the weights of "{one.layer}"'


def _said(one: Override) -> dict[str, object]:
    fields = ("weight_bits", "bits", "input_bits", "type")
    return {
        **{k: getattr(one, k) for k in fields if getattr(one, k)},
        **({"float": True} if one.float else {}),
    }


def _override(layers: Sequence[str], **keys: object) -> str:
    rows = [f"{key} = {toml(found)}" for key, found in keys.items()]
    return "\n".join(["[[quantize.overrides]]", f"layers = {toml(list(layers))}", *rows])


def _minmax(layers: Sequence[str]) -> str:
    return f'[[calibrate.layers]]\nlayers = {toml(list(layers))}\nmethod = "minmax"'
