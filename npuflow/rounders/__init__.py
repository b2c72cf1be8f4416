"""Rounding methods, one a file: a layer's weights and the moments of its inputs become codes.

Noun: `Rounder`.
Public: `Rounder`, `LayerProblem`, `RoundedWeight`.
Does not know: networks, samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.base.registry import Registry
from npuflow.base.tables import EntryConfig
from npuflow.ir.types import Array, QuantType

ROUNDERS = Registry("rounders", "npuflow.rounders")

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rounding:
    """`codes` [groups, outputs, terms], whole numbers as float64; `scale` [groups, outputs], or [groups,
    outputs, terms] where a layer's scales change along its terms."""

    codes: Reals
    scale: Reals


@dataclass(frozen=True)
class LayerProblem:
    """One layer: its weight as a matrix for every group of channels, and the second
    moments of what that multiplies.

    `weight` [groups, outputs, terms]; `gram` [groups, terms, terms], the mean product of every two terms,
    around their means where the layer's bias takes up the mean; `scale` and `zero` [groups, outputs], the
    format's usual scales and zero points (`zero` by term where parts have their own). Codes go from `lo` to
    `hi`. `shared`: all outputs have one scale, which must stay one. `fixed`: scales stay powers of two;
    `pinned`: they may not change at all. `part`: so many terms after one another share a scale, and `scale`
    is [groups, outputs, terms]; 0: all terms of an output do. `halves`: scales are numbers of float16.
    `sub_bits`: the scales of an output's parts are
    integers of so many bits times one number. `keep`: [groups, outputs, terms], weights that may be other
    than zero (None: all).
    """

    weight: Reals
    gram: Reals
    scale: Reals
    zero: Reals
    lo: int
    hi: int
    bits: int
    shared: bool = False
    fixed: bool = False
    part: int = 0
    sub_bits: int | None = None
    keep: npt.NDArray[np.bool_] | None = None
    pinned: bool = False
    halves: bool = False

    def by_term(self, scale: Reals) -> Reals:
        """Scales in a shape that broadcasts over the weight."""
        return scale if self.part else scale[..., None]

    @property
    def zeros(self) -> Reals:
        """Zero points in a shape that broadcasts over the weight."""
        return self.zero if self.zero.ndim == self.weight.ndim else self.zero[..., None]

    def stored(self, scale: Reals) -> Reals:
        """Scales as the format keeps them."""
        if self.sub_bits is None:
            return self.number(scale)
        top = (1 << self.sub_bits) - 1
        largest = scale.max(-1, keepdims=True)
        one = stored(largest / top)
        steps = np.clip(np.rint(scale / np.maximum(one, np.finfo(np.float64).tiny)), 1, top)
        return np.asarray(one * np.where(scale == largest, top, steps))

    def number(self, scale: Reals) -> Reals:
        """Scales, or the one that integers of parts multiply, in the type that they are kept in."""
        return halves(scale) if self.halves else stored(scale)

    def nearest(self, scale: Reals | None = None) -> Rounding:
        """Every weight by itself."""
        scale = self.scale if scale is None else scale
        codes = np.rint(self.weight / self.by_term(scale)) + self.zeros
        return Rounding(np.clip(codes, self.lo, self.hi), scale)

    def real(self, made: Rounding) -> Reals:
        """The weights that codes stand for."""
        return np.asarray(self.by_term(made.scale) * (made.codes - self.zeros))

    def errors(self, made: Rounding) -> Reals:
        """[groups, outputs]: mean squared error of what the layer's outputs sum up."""
        off = self.weight - self.real(made)
        return np.asarray((np.matmul(off, self.gram) * off).sum(-1))

    def damped(self, share: float) -> Reals:
        """The moments with a share of their mean diagonal added to it, so that terms the samples say little
        of stay near their weights; terms that are always zero count as one."""
        return damped(self.gram, share)

    def best(self, *tried: Rounding) -> Rounding:
        """Output by output the rounding of least error (of all outputs together where they share a
        scale); the first of equals."""
        found = np.stack([self.errors(one) for one in tried])
        if self.shared:
            return tried[int(found.sum((1, 2)).argmin())]
        at = found.argmin(0)[None]
        codes = np.take_along_axis(np.stack([one.codes for one in tried]), at[..., None], 0)[0]
        chosen = at[..., None] if self.part else at
        scale = np.take_along_axis(np.stack([one.scale for one in tried]), chosen, 0)[0]
        return Rounding(codes, scale)


def damped(gram: Reals, share: float) -> Reals:
    """Moments [groups, terms, terms] with a share of their mean diagonal added to it; terms that are always
    zero count as one."""
    terms = gram.shape[-1]
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    usual = diagonal.mean(-1, keepdims=True)
    more = share * usual + np.where(diagonal > 0, 0.0, np.where(usual > 0, usual, 1.0))
    found = gram.copy()
    found[:, np.arange(terms), np.arange(terms)] += more
    return found


def stored(scale: Reals) -> Reals:
    """Scales as models keep them: float32."""
    return scale.astype(np.float32).astype(np.float64)


def halves(scale: Reals) -> Reals:
    """Scales as products with weights in groups read them: numbers of float16, positive and finite."""
    return np.clip(scale, 2.0**-24, 65504.0).astype(np.float16).astype(np.float64)


class Rounder(EntryConfig):
    """A rounding method. Its fields are its options in the recipe (`[round.<name>]`);
    calling it gives codes and scales.

    It sees no image and no network. What it gives must not be worse than rounding every weight by itself.
    Weights outside of `keep` are zero, and their codes the zero point.
    """

    judged: ClassVar[bool] = False        # kept only where held-out samples say so
    plain: ClassVar[bool] = False         # looks at no moments at all

    def wants(self, bits: int) -> bool:
        """Whether weights of so many bits are rounded by moments."""
        return not self.plain

    def __call__(self, problem: LayerProblem) -> Rounding:
        raise NotImplementedError


@dataclass(frozen=True)
class RoundedWeight:
    """A weight tensor as it was rounded: its codes, their type, and what the layer's bias takes up for it.

    `bias`: the id of the constant bias, "" where it stays as it is; `shift`: what is
    added to it, one number per output.
    """

    codes: Array
    quant: QuantType
    bias: str = ""
    shift: Reals | None = None
