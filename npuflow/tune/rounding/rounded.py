"""One layer's weights rounded: the tensor as a matrix, the method, and codes back in the tensor's shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.sparsity import Pattern
from npuflow.ir.types import Array, GroupedType, QuantType
from npuflow.quantise.config import Quantize, Weights
from npuflow.quantise.grouped import of_integers, of_scheme
from npuflow.quantise.types import weight_type
from npuflow.rounders import LayerProblem, Reals, RoundedWeight, Rounder, Rounding
from npuflow.tune import tuned
from npuflow.tune.rounding.config import RoundTable
from npuflow.tune.rounding.moments import Int64s, Moments
from npuflow.tune.rounding.pruning import LayerMask

TINY = 1e-200


@dataclass(frozen=True)
class Matrix:
    """A weight tensor and where the numbers of its matrix, [groups, outputs, terms], lie in it. `axis`: that
    of its output channels; `gain`: a unit of the sums in units of the bias; `names`, `kind`: what exceptions
    of the recipe go by; `inner`: the axis along which scales by groups may differ; `parts`:
    blocks of input channels without products between them, each a group of the matrix."""

    tensor: Array
    index: Int64s
    axis: int | None
    gain: float
    names: tuple[str, ...]
    kind: str
    inner: int | None = None
    parts: int = 1

    def rows(self, tensor: Array) -> Reals:
        return np.asarray(tensor, np.float64).reshape(-1)[self.index]

    def cut(self, rows: Reals) -> Reals:
        """[groups, outputs, ...] as the matrix is cut: blocks of terms as groups, numbers by output again for
        each."""
        if self.parts == 1:
            return rows
        return np.repeat(rows, self.parts, axis=0) if rows.ndim == 2 else _cut(rows, self.parts)

    def summed(self, by_output: Reals) -> Reals:
        """[groups, outputs]: sums over the blocks of each group."""
        return np.asarray(by_output.reshape(-1, self.parts, by_output.shape[1]).sum(1))

    def minima(self, quant: QuantType) -> Reals | float:
        """What a type adds to scales times codes less zero points, number by number of the matrix."""
        if not isinstance(quant, GroupedType):
            return 0.0
        groups, terms = quant.groups(self.tensor.shape), self.tensor.shape[quant.group_axis or 0]
        if groups.minima is None:
            return 0.0
        return self.rows(quant.by_channel(np.repeat(groups.minima, groups.size, 1)[:, :terms]))

    def tensor_of(self, rows: Reals, dtype: str) -> Array:
        found = np.empty(self.tensor.size, dtype)
        found[self.index.reshape(-1)] = rows.reshape(-1)
        return found.reshape(self.tensor.shape)


def _cut(rows: npt.NDArray[Any], parts: int) -> npt.NDArray[Any]:
    """[groups, outputs, terms] as [groups * parts, outputs, terms / parts]."""
    groups, outputs, terms = rows.shape
    return rows.reshape(groups, outputs, parts, -1).swapaxes(1, 2).reshape(-1, outputs, terms // parts)


def matrix(
    graph: Graph, node: int, weight: str, names: tuple[str, ...], kind: str, parts: int = 1
) -> Matrix:
    """The matrix of a node's constant weight."""
    one = graph.nodes[node]
    tensor = graph.const(weight)
    assert tensor is not None
    index = one.op.rows(np.arange(tensor.size).reshape(tensor.shape))
    groups, at = one.op.column_groups(), one.inputs.index(weight)
    site = graph.site(one)
    axis, inner = one.op.channel_axis(site, at), one.op.group_axis(site, at)
    unit = one.op.gain() / one.op.bias_factor()
    whole = _cut(index.reshape(groups, len(index) // groups, -1), parts)
    return Matrix(tensor, whole, axis, unit, names, kind, inner, parts)


@dataclass(frozen=True)
class RoundingResult:
    """The rounded weight, and whether it is used. `was`, `now`: noise over signal of the layer's outputs,
    rounded to the nearest and so, on held-out samples (on all where there are none). `plain`: the shift of
    the bias if it were rounded to the nearest. `pruned`: some of its weights are zero on purpose.
    """

    weight: RoundedWeight
    was: float
    now: float
    used: bool
    plain: Reals | None = None
    pruned: bool = False


@dataclass(frozen=True)
class FloatMoments:
    """What the float network's columns, in the same places, have to do with those that the layer
    reads: their `mean` [groups, terms], and `cross` [groups, terms, terms], the mean product of each
    of theirs with each of the layer's. What the layer's outputs are added to may be off, too: `more`
    [groups, outputs, terms] is the mean product of what is missing there with the layer's columns, and
    `shift` [groups, outputs] its mean."""

    mean: Reals
    cross: Reals
    more: Reals | None = None
    shift: Reals | None = None

    def along(self, weight: Reals) -> Reals:
        """[groups, outputs, terms]: what the wanted outputs have to do with the layer's columns."""
        along = np.matmul(weight, self.cross)
        return along if self.more is None else along + self.more


def moved(problem: LayerProblem, aim: FloatMoments) -> Reals:
    """The weights whose outputs come closest, in least squares, to what the float weights make
    of the float columns; damped."""
    off = aim.along(problem.weight) - np.matmul(problem.weight, problem.gram)
    return np.asarray(
        problem.weight + np.linalg.solve(problem.damped(tuned.ROUND_PULL), off.swapaxes(1, 2)).swapaxes(1, 2)
    )


@dataclass(frozen=True)
class Wanted:
    """What a layer is to become, beside its own weights: `aim`, what the float network has in the place of
    what it reads; `mask`, which of its weights are kept."""

    aim: FloatMoments | None = None
    mask: LayerMask | None = None

    def weights(self, own: Reals, problem: LayerProblem) -> Reals:
        """The real weights that are rounded."""
        if self.mask is not None:
            along = None if self.aim is None else self.aim.along(own)
            return self.mask.weights(own, problem.gram, along)
        return own if self.aim is None else moved(problem, self.aim)


@dataclass(frozen=True)
class LayerScheme:
    """How a layer's weights become codes."""

    rounder: Rounder
    weights: Weights
    numerics: Numerics
    number: str = ""                      # the float type that the layer computes in; empty: integers

    def type(self, source: Matrix, tensor: Array, importance: Array | None = None) -> QuantType:
        """Of codes for some numbers in the place of the layer's weights. `importance`: of every term, what
        its squared errors count; groups have ranges that go by it."""
        return self.type_of(tensor, source.axis, source.inner, importance)

    def type_of(
        self, tensor: Array, axis: int | None, inner: int | None, importance: Array | None = None
    ) -> QuantType:
        """The same; `axis`: that of output channels, `inner`: that along which groups lie."""
        if self.number and axis is not None and inner is not None:
            axes = axis, inner
            found = of_scheme(tensor, axes, self.weights, self.number, self.numerics, importance)
            if found is not None:
                return found
        whole = weight_type(tensor, axis, self.weights, self.numerics, inner)
        groups = whole.group is not None and whole.sub_bits is None and tensor.ndim == 2
        free = groups and self.weights.method == "minmax" and not self.numerics.power_of_two
        if importance is None or axis is None or not free:
            return whole
        return of_integers(tensor, whole, axis, importance)


@dataclass(frozen=True)
class RoundingScheme:
    """How the weights of all layers become codes."""

    table: RoundTable
    quantize: Quantize
    numerics: Numerics

    def of(self, source: Matrix) -> LayerScheme:
        """That of a layer."""
        return self.named(source.names, source.kind)

    def named(self, names: tuple[str, ...], op: str) -> LayerScheme:
        """That of a layer by its names and its operator's."""
        weights, number = self.quantize.weights_of(names, op), self.quantize.number(names, op)
        return LayerScheme(self.table.rounder_of(names, op), weights, self.numerics, number)


def rounded(
    scheme: LayerScheme, source: Matrix, bias: str, fit: Moments, held: Moments | None,
    wanted: Wanted = Wanted(),
) -> RoundingResult:
    """Round a layer, to the nearest if the method has no interest in its width. Where its bias can take
    up what rounding does to the mean of its outputs, only what varies counts. `wanted`: what the codes are
    for, if it is not the layer's own weights."""
    rounder, quant = scheme.rounder, scheme.type(source, source.tensor)
    center, mask, aim = fit.mean if bias else None, wanted.mask, wanted.aim
    problem = _problem(source, quant, fit.around(center), scheme)
    own, asked = problem.weight, rounder.wants(quant.bits)
    zeros = own_zeros(own, scheme.numerics) if mask is None else None
    if zeros is not None:
        wanted, problem = replace(wanted, mask=zeros), replace(problem, keep=zeros.keep)
    real = wanted.weights(own, problem)
    if mask is not None:
        quant = scheme.type(source, source.tensor_of(real, "float64"))
        problem = replace(_problem(source, quant, problem.gram, scheme), keep=mask.keep)
    plain = LayerCodes.of(source, quant, replace(problem, weight=real))
    made = plain if not asked else _by_moments(scheme, source, plain, real)
    gram = problem.gram if held is None else held.around(center)
    nothing = Rounding(np.zeros_like(plain.made.codes) + problem.zeros, problem.scale)
    signal = max(float(replace(problem, gram=gram, weight=real).errors(nothing).sum()), TINY)
    was, now = (one.error(gram) / signal for one in (plain, made))

    def shift(one: LayerCodes) -> Reals | None:
        floats = np.matmul(own, (fit.mean if aim is None else aim.mean)[..., None])[..., 0]
        floats = floats if aim is None or aim.shift is None else floats + aim.shift
        codes = np.matmul(one.real, fit.mean[..., None])[..., 0]
        return source.gain * source.summed(floats - codes).reshape(-1) if bias else None

    better = not rounder.judged or (held is not None and now < was)
    if mask is not None and not better:
        made = plain                                        # the zeros stay, whatever the samples say
    used = mask is not None or (asked and better)
    weight = RoundedWeight(*made.stored(source), bias, shift(made))
    return RoundingResult(weight, was, now, used, shift(plain), mask is not None)


@dataclass(frozen=True)
class LayerCodes:
    """Codes of a layer, and what they are for. `lowest`: minima of groups, which the problem's weights lie
    above."""

    quant: QuantType
    problem: LayerProblem
    lowest: Reals | float
    made: Rounding

    @classmethod
    def of(cls, source: Matrix, quant: QuantType, problem: LayerProblem) -> LayerCodes:
        """To the nearest."""
        lowest = source.minima(quant)
        above = replace(problem, weight=problem.weight - lowest)
        return cls(quant, above, lowest, above.nearest())

    @property
    def real(self) -> Reals:
        """The weights that the codes stand for."""
        return self.problem.real(self.made) + self.lowest

    def error(self, gram: Reals) -> float:
        return float(replace(self.problem, gram=gram).errors(self.made).sum())

    def stored(self, source: Matrix) -> tuple[Array, QuantType]:
        """Codes as the tensor lies, and their type."""
        codes = source.tensor_of(self.made.codes, self.quant.dtype)
        return codes, self.quant.with_(scale=_scales(self.made, self.quant, self.problem))


def _by_moments(scheme: LayerScheme, source: Matrix, plain: LayerCodes, real: Reals) -> LayerCodes:
    """By the scheme's method; groups get ranges that go by the moments first."""
    found = plain
    if plain.problem.part and plain.problem.keep is None:
        importance = np.diagonal(plain.problem.damped(tuned.ROUND_RANGES), axis1=1, axis2=2).reshape(-1)
        quant = scheme.type(source, source.tensor_of(real, "float64"), importance)
        problem = _problem(source, quant, plain.problem.gram, scheme)
        found = LayerCodes.of(source, quant, replace(problem, weight=real))
    return replace(found, made=scheme.rounder(found.problem))


def own_zeros(rows: Reals, numerics: Numerics) -> LayerMask | None:
    """The zeros of weights [groups, outputs, terms] that the model brings along and the target skips."""
    pattern = Pattern.read(numerics.sparsity)
    if pattern is None or len(rows) > 1 or not pattern.holds(rows[0]):
        return None
    return LayerMask(rows != 0, 0.0)


def _scales(made: Rounding, quant: QuantType, problem: LayerProblem) -> tuple[float, ...]:
    """The scales of a rounding as the type lists them."""
    if problem.pinned:
        return quant.scale
    if problem.part:
        return tuple(made.scale[..., :: problem.part].reshape(-1).tolist())
    scale = np.broadcast_to(made.scale, made.codes.shape[:2]).reshape(-1)
    return tuple(scale.tolist()) if quant.axis is not None else (float(scale[0]),)


def _problem(source: Matrix, quant: QuantType, gram: Reals, scheme: LayerScheme) -> LayerProblem:
    rows = source.rows(source.tensor)
    shape, terms = (len(rows) // source.parts, rows.shape[1]), rows.shape[-1] * source.parts

    # terms are input channels, each with its taps
    part = 0 if quant.group is None else quant.group * terms // source.tensor.shape[quant.group_axis or 0]

    def of_format(values: tuple[float, ...] | tuple[int, ...]) -> Reals:
        found = np.asarray(values, np.float64)
        if part and found.size > 1:
            return source.cut(np.repeat(found.reshape(*shape, -1), part, axis=-1)[..., :terms])
        each = quant.axis is not None and found.size > 1
        return source.cut(found.reshape(shape) if each else np.full(shape, found[0]))

    scales = quant.scale
    if isinstance(quant, GroupedType):
        scales = tuple(quant.groups(source.tensor.shape).scales.astype(np.float64).reshape(-1).tolist())
    return LayerProblem(
        rows, gram, of_format(scales), of_format(quant.zero_point),
        quant.lo, quant.hi, quant.bits,
        shared=quant.axis is None, fixed=scheme.numerics.power_of_two, part=part, sub_bits=quant.sub_bits,
        pinned=source.parts > 1 or isinstance(quant, GroupedType), halves=bool(scheme.number and part),
    )
