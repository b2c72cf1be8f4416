"""The [precision] table: which widths are widened, by which strategy, until which budget holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from npuflow.base.errors import NpuflowError, TargetError, Where
from npuflow.base.tables import Config, Fault, Range
from npuflow.hw.target import Bits, Numerics
from npuflow.quantise.config import FLOATS, FloatMode, Quantize, Weights, check_width
from npuflow.strategies import NARROW, OWN, STRATEGIES, WIDE, Budget, Goal
from npuflow.tune.precision.levels import LevelTypes
from npuflow.tune.rounding.config import CandidateWidths


@dataclass(frozen=True)
class BudgetTable(Config, table="precision"):
    """How close outputs must come to the float network's."""

    sqnr_db: Annotated[float, Range(0, 120)] = 20.0
    """What every output must reach: over all held-out samples, and on four of five of them."""
    agreement: Annotated[float, Range(0, 1)] = 0.99
    """Or the share of equal answers that it must reach: arg-max after Softmax, mask after Sigmoid."""
    state_db: Annotated[float, Range(0, 120)] = 30.0
    """The same of networks that feed back: with a state that the next run takes (an output of the
    type of an input that it depends on, beside others), or a layer that takes its own results (LSTM,
    GRU, RNN). Errors add up there."""

    @property
    def budget(self) -> Budget:
        """Of the outputs' closeness to the float network's, which the verdict goes by, too."""
        return Budget(self.sqnr_db, self.agreement)


@dataclass(frozen=True)
class PrecisionTable(BudgetTable, table="precision"):
    """Bit widths by need, on held-out calibration samples. Overrides of [quantize]
    stay as they are written."""

    strategy: Annotated[str, STRATEGIES] = "auto"
    """Who chooses the widths; "none" keeps those of [quantize], "auto" those of weights that are not 8."""
    max_drop: Annotated[float, Range(0, 1)] | None = None
    """What the metric of [precision.labelled] may lose against the float network, in place of sqnr_db and
    agreement: 0.01 is a point of top-1. An error where no mixture keeps it."""

    minimise: Literal["cycles", "bytes", "bits", "energy"] = "cycles"
    """What greedy, ilp and the other searches pay for accuracy with: estimated cycles, bytes of weights, the
    average width of a weight, or the energy that [target.energy] makes of products, traffic and time."""
    max_cycles: Annotated[float, Range(0, None)] | None = None
    """Upper limit of the estimated cycles, as a multiple of those with the recipe's widths."""
    max_bytes: Annotated[float, Range(0, None)] | None = None
    """Upper limit of the weights' bytes, as a share of 8 bits for each."""
    max_bits: Annotated[float, Range(0, 32)] | None = None
    """Upper limit of the average width of a weight."""
    points: Annotated[int, Range(0, 100)] = 0
    """So many mixtures of the Pareto front are quantised, measured and listed by `npuflow show precision`."""
    point: Annotated[int, Range(0, 99)] | None = None
    """Take this one of them, counted from the cheapest, whatever the budget says; for `npuflow sweep`."""

    def check(self) -> Iterator[Fault]:
        if self.max_drop is not None and self.strategy == "none":
            yield Fault(
                "max_drop", 'strategy = "none" chooses no widths that could keep it',
                hint='strategy = "auto", "ilp" or "greedy"', code="NF-QUANT-046",
            )

    @property
    def searches(self) -> bool:
        """Whether a mixture is looked for even where the recipe's widths hold the budget."""
        asked = self.points or self.goal.limits or self.point is not None
        return bool(asked or self.max_drop is not None)

    @property
    def goal(self) -> Goal:
        limits = {"cycles": self.max_cycles, "bytes": self.max_bytes, "bits": self.max_bits}
        return Goal(self.minimise, {what: most for what, most in limits.items() if most is not None})


@dataclass(frozen=True)
class Widths(CandidateWidths, table="precision"):
    """Widths and float types that a search may choose from."""

    activations: tuple[Bits, ...] | None = None
    """Of activations; left out: the recipe's own and the target's widest."""

    floats: tuple[FloatMode, ...] | None = None
    """Types of the NPU that layers may compute in beside integers. Left out: "auto" tries one of the
    target's, bf16 before fp16, where integers miss the budget or leave layers to the host, unless
    [quantize.weights] states other bits than 8; other searches try none."""
    float_layers: tuple[str, ...] = ()
    """Names, operators or patterns of the layers that may; empty: all."""

    def stated(self, quantize: Quantize) -> bool:
        """Whether the recipe states a width of weights, and none that a search may give them instead."""
        return not self.weights and quantize.weights.bits != Weights().bits

    def float_modes(self, strategy: str, numerics: Numerics, quantize: Quantize) -> tuple[str, ...]:
        """The float types that a strategy may choose from. "auto" gives none to weights whose width the
        recipe states."""
        if self.floats is not None:
            return self.floats
        if self.stated(quantize):
            return ()
        known = [mode for mode, number in FLOATS.items() if number in numerics.float_types]
        return tuple(known[:1]) if strategy == "auto" else ()

    def types(self, floats: tuple[str, ...], room: int | None = None) -> LevelTypes:
        """What the levels from `OWN` on stand for."""
        return LevelTypes(self.own, floats, self.float_layers, room)

    @property
    def own(self) -> tuple[int, ...]:
        """The widths of the levels from `OWN` on."""
        return tuple(sorted({*(self.weights or ()), *(self.activations or ())}))

    def candidates(
        self, quantize: Quantize, numerics: Numerics, strategy: str = ""
    ) -> dict[str, tuple[int, ...]]:
        """By kind of unit the levels that a search may give it, fewest bits first. TargetError for a width
        that the target does not compute with. "auto", which nobody asked for, leaves weights at a width that
        the recipe states."""
        usual = {"weight": quantize.weights.bits, "activation": quantize.activations.bits}
        widest = {"weight": max(numerics.weight_bits), "activation": max(numerics.activation_bits)}
        found = {}
        for kind, some in (("weight", self.weights or ()), ("activation", self.activations or ())):
            for bits in some:
                allowed = numerics.weight_bits if kind == "weight" else numerics.activation_bits
                check_width(bits, allowed, f"[precision] {kind}s")
            at = {bits: OWN + self.own.index(bits) for bits in some}
            at |= {usual[kind]: NARROW} if usual[kind] in at or not some else {}
            at |= (
                {widest[kind]: WIDE}
                if widest[kind] != usual[kind] and (widest[kind] in at or not some)
                else {}
            )
            found[kind] = tuple(at[bits] for bits in sorted(at))
        if strategy == "auto" and self.stated(quantize):
            found["weight"] = (NARROW,)
        return found


def width_faults(
    table: PrecisionTable, widths: Widths, numerics: Numerics, quantize: Quantize
) -> Iterator[NpuflowError]:
    """What a search for widths cannot do with this target, before anything is measured."""
    if table.strategy == "none" or not numerics.integers:
        return
    allowed = {"weights": numerics.weight_bits, "activations": numerics.activation_bits}
    usual = {"weights": quantize.weights.bits, "activations": quantize.activations.bits}
    for key, containers in allowed.items():
        some: tuple[int, ...] | None = getattr(widths, key)
        for bits in some or ():
            if bits > max(containers):
                text = f"{bits} bits; the target computes with {', '.join(map(str, sorted(containers)))}"
                yield _fault(key, text, f"at most {max(containers)}, or another target", code="NF-QUANT-002")
        between = [n for n in some or () if n != usual[key] and n < max(containers)]
        if between and table.strategy == "auto":
            listed = " or ".join(map(str, sorted(between)))
            both = f"only {usual[key]}, as [quantize] says, and {max(containers)}, the target's most"
            text = f'strategy = "auto" never gives {key} {listed} bits: {both}'
            yield _fault(key, text, 'strategy = "ilp" or "greedy", for every width', code="NF-QUANT-110")
        if some is not None and not some and table.strategy != "auto":
            text = f'strategy = "{table.strategy}" has no widths of {key} to choose from'
            yield _fault(key, text, f"{key} = [8, 16], or leave it out", code="NF-QUANT-108")
    if table.max_bytes is not None and table.max_bytes < 1 and 4 not in numerics.weight_bits:
        text = f"max_bytes = {table.max_bytes:g}; the target stores a byte per weight, however few its bits"
        hint = "max_bits, or a target that packs weights (4 among its weight_bits)"
        yield _fault("max_bytes", text, hint, code="NF-QUANT-109")


def _fault(key: str, text: str, hint: str, code: str) -> TargetError:
    return TargetError(text, hint=hint, where=Where(key=f"precision.{key}"), code=code)


@dataclass(frozen=True)
class Probing(Config, table="precision"):
    """The samples that measure. Independent of the budget: another budget measures no tensor again."""

    samples: Annotated[int, Range(2, None)] = 64
    """Calibration samples used, the held-out ones included."""
    held_out: Annotated[int, Range(1, None)] = 32
    """How many of these only judge."""
    probes: Annotated[int, Range(1, None)] = 4
    """Of the held-out samples, how many measure the noise of each tensor and weight alone."""
