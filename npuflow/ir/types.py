"""Tensor and quantisation types: what a value is, and which integers stand for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from npuflow.hw.elements import ELEMENTS, container
from npuflow.hw.grouped import WeightGroups, as_text, of_text

IntArray = npt.NDArray[Any]            # integers, exact in int64 or in their container
Array = npt.NDArray[Any]

UNKNOWN = -1  # a dimension that only the host runtime can know
UNRANKED = (-2,)      # shape of a value whose rank is unknown, or which is no tensor
UNTYPED = ""          # dtype of a value about which nothing is known


class ShapesDifferError(ValueError):
    """Operands whose shapes do not broadcast: files have such that are damaged."""


@dataclass(frozen=True)
class TensorType:
    """Shape and numpy dtype name (``float32``, ``int64``, ``bool``, ``string``, ...);
    `UNKNOWN` marks a free dimension."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def is_static(self) -> bool:
        return all(d >= 0 for d in self.shape)

    @property
    def size(self) -> int:
        """Number of elements (1 for a scalar)."""
        return prod(self.shape)


@dataclass(frozen=True)
class QuantType:
    """Affine quantisation, real = scale * (q - zero_point), of `bits` wide integers.

    `axis` None: one scale and zero point for the tensor; else one per index of that dimension.
    `group`: with an axis, weights have a scale for every so many consecutive indices of `group_axis`, too,
    the scales of a channel one after another. `sub_bits`: the scales of a channel are integers of so many
    bits times one number (two-level scales); None: any numbers. Zero points are one, or as many as scales.
    `narrow`: the restricted range that leaves out the most negative code (signed only). `sparse`: (n, m), of
    every m consecutive elements of these weights at most n are other than zero, and the target skips them.
    """

    bits: int
    signed: bool
    scale: tuple[float, ...]
    zero_point: tuple[int, ...] = (0,)
    axis: int | None = None
    group: int | None = None
    narrow: bool = False
    group_axis: int | None = None
    sub_bits: int | None = None
    sparse: tuple[int, int] | None = None

    @property
    def lo(self) -> int:
        return (-(1 << (self.bits - 1)) + int(self.narrow)) if self.signed else 0

    @property
    def hi(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def dtype(self) -> str:
        """numpy dtype of the container: the smallest integer type that holds `bits`."""
        return container(self.bits, self.signed)

    @property
    def per_tensor(self) -> bool:
        return self.axis is None

    def spread(self, shape: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Scales and zero points in shapes that broadcast over a tensor of that shape."""
        scale, zero = np.asarray(self.scale, np.float64), np.asarray(self.zero_point, np.int64)
        if self.axis is None or not shape:
            return scale.reshape(-1)[:1].reshape((1,) * len(shape)), zero[:1].reshape((1,) * len(shape))
        along = [-1 if d == self.axis else 1 for d in range(len(shape))]
        if self.group is None or self.group_axis is None:
            return scale.reshape(along), zero.reshape(along if zero.size > 1 else (1,) * len(shape))
        one = (1,) * len(shape)
        return self._by_term(scale, shape), self._by_term(zero, shape) if zero.size > 1 else zero.reshape(one)

    def _by_term(self, numbers: Array, shape: Sequence[int]) -> Array:
        """Numbers of the groups in a shape that broadcasts over a tensor of that shape."""
        assert self.group is not None and self.axis is not None and self.group_axis is not None
        count, size = shape[self.axis], shape[self.group_axis]
        by_term = np.repeat(numbers.reshape(count, -1), self.group, axis=1)[:, :size]
        if self.axis > self.group_axis:
            by_term = by_term.T
        wide = [shape[d] if d in (self.axis, self.group_axis) else 1 for d in range(len(shape))]
        return by_term.reshape(wide)

    def channel_scale(self, channels: int) -> npt.NDArray[np.float64]:
        """Of two-level scales the number of every channel, which its integers are multiples of."""
        assert self.sub_bits is not None
        rows = np.asarray(self.scale, np.float64).reshape(channels, -1)
        return np.asarray(rows.max(1) / ((1 << self.sub_bits) - 1))

    def with_(self, **changes: object) -> QuantType:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class FloatType(QuantType):
    """A float type that the NPU computes in: codes are its patterns of bits. Neither scale nor zero point
    says anything. `element` names a row of the table of element types; blocks of it run along `group_axis`.
    """

    element: str = ""

    @property
    def dtype(self) -> str:
        return ELEMENTS[self.element].numpy


@dataclass(frozen=True)
class GroupedType(QuantType):
    """Codes of a matrix of weights in groups, each with a float16 scale of its own and maybe a zero point
    or a minimum, which the array turns into numbers as it loads them. `axis` is that of the channels,
    `group_axis` the other one; `zero_point` is that of all groups where these have none of their own;
    `scale` says nothing.

    `scales`, `zeros`, `minima`: of all groups [channels, groups], as `hw.grouped.as_text` writes them. A
    stated type may have scales and minima in float32; those of a quantised network are in float16.
    `loaded`: the float type that the array rounds the numbers to; empty: they are exact.
    """

    scales: str = ""
    zeros: str = ""
    minima: str = ""
    loaded: str = ""

    @classmethod
    def of(cls, groups: WeightGroups, axis: int, loaded: str = "") -> GroupedType:
        """The type of a matrix whose channels are along an axis."""
        return cls(
            groups.bits, groups.signed, (1.0,), (groups.zero,), axis, groups.size, group_axis=1 - axis,
            scales=as_text(groups.scales),
            zeros="" if groups.zeros is None else as_text(groups.zeros),
            minima="" if groups.minima is None else as_text(groups.minima), loaded=loaded,
        )

    def groups(self, shape: Sequence[int]) -> WeightGroups:
        """What the codes of a matrix of that shape stand for, row by row of channels."""
        assert self.axis is not None and self.group is not None
        rows = shape[self.axis]
        zeros, minima = (of_text(text, rows) if text else None for text in (self.zeros, self.minima))
        return WeightGroups(
            self.bits, self.signed, self.group, of_text(self.scales, rows), self.zero_point[0], zeros, minima
        )

    def spread(self, shape: Sequence[int]) -> tuple[npt.NDArray[np.float64], Array]:
        """Zero points are no whole numbers where groups have minima."""
        groups = self.groups(shape)
        scale, zero = groups.scales.astype(np.float64), np.full((1, 1), groups.zero)
        if groups.minima is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                zero = np.nan_to_num(-groups.minima.astype(np.float64) / scale, posinf=0.0, neginf=0.0)
        elif groups.zeros is not None:
            zero = groups.zeros.astype(np.int64)
        return self._by_term(scale, shape), self._by_term(zero, shape) if zero.size > 1 else zero

    def by_channel(self, matrix: Array) -> Array:
        """[channels, terms] of the matrix; of such rows the matrix."""
        return matrix if self.axis == 0 else matrix.T


def float_type(element: str, axis: int | None = None) -> FloatType:
    """The type of values that are held in a float type, in blocks along an axis."""
    return FloatType(ELEMENTS[element].bits, False, (1.0,), element=element, group_axis=axis)


def span(quant: QuantType) -> tuple[float, float]:
    """The real numbers at both ends of the codes; of several scales the widest."""
    zeros = quant.zero_point * (len(quant.scale) // len(quant.zero_point))
    ends = [(s * (quant.lo - z), s * (quant.hi - z)) for s, z in zip(quant.scale, zeros, strict=True)]
    return min(lo for lo, _ in ends), max(hi for _, hi in ends)


def fields_of(quant: QuantType) -> dict[str, Any]:
    """The fields by name, of which `quant_of` makes the type; `dataclasses.asdict` would copy every scale."""
    return {field.name: getattr(quant, field.name) for field in fields(quant)}


def quant_of(row: Mapping[str, Any]) -> QuantType:
    """The type from its fields as plain values (`fields_of` and JSON make such)."""
    plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
    if "scales" in plain:
        return GroupedType(**plain)
    return FloatType(**plain) if "element" in plain else QuantType(**plain)


INDEX_BITS = 16                           # of whole numbers that are their own codes
Span = tuple[int, int]                    # the least and the greatest of whole numbers


class WholeNumbers(NamedTuple):
    """Whole numbers from -`below` to `below` - 1, such as indices. `checked`: where they enter the program,
    others are an error. `parts`: where they are indices into several tables, how many elements, and the rows
    of their table (0: they are no indices), by turns; `below` is then the most of these."""

    below: int
    checked: bool = False
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Value:
    """One tensor of the graph: an input, a constant (`const` is its content digest), or a node's output."""

    id: str
    type: TensorType
    quant: QuantType | None = None
    const: str | None = None

    @cached_property
    def dtype(self) -> str:
        """Dtype of the stored array: the quantised container if quantised, else the float/int type."""
        return self.quant.dtype if self.quant is not None else self.type.dtype

    @property
    def number(self) -> str:
        """The float type that the NPU holds it in; empty: integers, or nothing that is the NPU's."""
        return self.quant.element if isinstance(self.quant, FloatType) else ""

    @property
    def element(self) -> str:
        """Its elements in the memories of an NPU, by the table of element types."""
        return self.number or self.dtype
