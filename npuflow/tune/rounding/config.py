"""The tables [moments] and [round]: what is known of the layers' inputs, and how weights become codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from npuflow.base.tables import Config, Range
from npuflow.hw.target import Bits
from npuflow.place.names import answers
from npuflow.quantise.config import Quantize, floats_alone
from npuflow.rounders import ROUNDERS, Rounder
from npuflow.tune.rounding.pruning import Prune, prunes


@dataclass(frozen=True)
class Counting(Config, table="moments"):
    """Second moments of what layers read on calibration samples, taken where a weight is rounded by them."""

    samples: Annotated[int, Range(2, None)] = 128
    """Calibration samples used, the held-out ones included."""
    held_out: Annotated[int, Range(1, None)] = 16
    """How many of these only judge."""
    positions: Annotated[int, Range(1, None)] = 64
    """Places of each layer's output that a sample is looked at, at most; wide layers have fewer."""
    most_terms: Annotated[int, Range(1, None)] = 4608
    """Products of so many terms or fewer: the matrix of moments of more would take too much memory. Layers of
    more have one for every block of input channels, and scales that stay as they are."""


Mode = Literal["parallel", "sequential", "blocks", "distilled"]


def _rounder(table: Config, method: str) -> Rounder:
    given = table.options
    made: Rounder = given if given is not None else ROUNDERS[method]()
    return made


@dataclass(frozen=True)
class LayerRounding(Config):
    """Another method or mode for some layers; what is absent stays as it was."""

    layers: tuple[str, ...]               # node names, operator names (conv, matmul), or patterns (*/head/*)
    method: Annotated[str, ROUNDERS] | None = None
    mode: Mode | None = None

    @property
    def rounder(self) -> Rounder | None:
        """The method with its options, where one is asked for."""
        return _rounder(self, self.method) if self.method else None


@dataclass(frozen=True)
class RoundTable(Config, table="round"):
    """Rounding of constant weights by what the layer reads on calibration samples."""

    method: Annotated[str, ROUNDERS] = "auto"
    """"auto" rounds weights of less than 8 bits by coordinate descent, where held-out samples
    agree; a named method is obeyed."""

    mode: Mode = "parallel"
    """What layers read when they are rounded: what the float network makes, all layers at once and kept for
    the next method; or what the rounded layers before them make, one after the other. With "blocks", codes
    and biases of these then descend along the gradient of the outputs of blocks of layers; with "distilled",
    along that of the whole network's outputs, which needs the extra torch."""

    layers: tuple[LayerRounding, ...] = ()
    """Exceptions; later ones win."""

    @property
    def rounder(self) -> Rounder:
        """The method with its options."""
        return _rounder(self, self.method)

    def rounder_of(self, names: Iterable[str], op: str) -> Rounder:
        """That of a layer."""
        known = tuple(names)
        asked = [one.rounder for one in self.layers if one.rounder and answers(one.layers, known, op)]
        return asked[-1] if asked else self.rounder

    def mode_of(self, names: Iterable[str], op: str) -> Mode:
        known = tuple(names)
        asked = [one.mode for one in self.layers if one.mode and answers(one.layers, known, op)]
        return asked[-1] if asked else self.mode

    @property
    def rounders(self) -> list[Rounder]:
        """All that some layer may have."""
        return [self.rounder, *(one.rounder for one in self.layers if one.rounder)]

    @property
    def modes(self) -> set[str]:
        return {self.mode, *(one.mode for one in self.layers if one.mode)}

    @property
    def judged(self) -> bool:
        """Whether all layers together are compared with rounding to the nearest."""
        return all(one.judged for one in self.rounders if not one.plain) and self.rounder.judged


@dataclass(frozen=True)
class CandidateWidths(Config, table="precision"):
    """Widths of weights that a search may choose: weights are rounded for each of them ahead of it."""

    weights: tuple[Bits, ...] | None = None
    """Of weights; left out: the recipe's own and the target's widest."""


def rounds(quantize: Quantize, table: RoundTable, candidates: CandidateWidths, prune: Prune) -> bool:
    """Whether any weight is rounded, or pruned, by moments."""
    if prunes(prune):
        return True
    overrides = (rule.weight_bits for rule in quantize.overrides)
    widths = {quantize.weights.bits, *overrides, *(candidates.weights or ())}
    return any(one.wants(bits) for one in table.rounders for bits in widths if bits is not None)


def needless(quantize: Quantize, table: RoundTable) -> str:
    """Why nothing need be observed of the samples, if so: floats have no ranges, and no weights beside them
    are rounded by moments."""
    own = quantize.weights
    widths = [own.bits] if own.group else []
    widths += [rule.weight_bits or own.bits for rule in quantize.overrides if rule.weight_group]
    return "" if any(one.wants(bits) for one in table.rounders for bits in widths) else floats_alone(quantize)
