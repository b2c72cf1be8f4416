"""The tables [moments] and [round]: what is known of the layers' inputs, and how weights become codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from npuflow.base.tables import Config, Range
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.rounding.pruning import Prune, prunes
from npuflow.hw.target import Bits
from npuflow.rounders import ROUNDERS, Rounder


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


@dataclass(frozen=True)
class RoundTable(Config, table="round"):
    """Rounding of constant weights by what the layer reads on calibration samples."""

    method: Annotated[str, ROUNDERS] = "auto"
    """"auto" rounds weights of less than 8 bits by coordinate descent, where held-out samples
    agree; a named method is obeyed."""

    mode: Literal["parallel", "sequential", "blocks"] = "parallel"
    """What layers read when they are rounded: what the float network makes, all layers at once and kept for
    the next method; or what the rounded layers before them make, one after the other. With "blocks", codes
    and biases of these then descend along the gradient of the outputs of blocks of layers."""

    @property
    def rounder(self) -> Rounder:
        """The method with its options."""
        given = self.options
        made: Rounder = given if given is not None else ROUNDERS[self.method]()
        return made


@dataclass(frozen=True)
class CandidateWidths(Config, table="precision"):
    """Widths of weights that a search may choose: weights are rounded for each of them ahead of it."""

    weights: tuple[Bits, ...] = ()
    """Of weights; empty: the recipe's own and the target's widest."""


def rounds(quantize: Quantize, table: RoundTable, candidates: CandidateWidths, prune: Prune) -> bool:
    """Whether any weight is rounded, or pruned, by moments."""
    if prunes(prune):
        return True
    widths = {quantize.weights.bits, *(rule.weight_bits for rule in quantize.overrides), *candidates.weights}
    return any(table.rounder.wants(bits) for bits in widths if bits is not None)
