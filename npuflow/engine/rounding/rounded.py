"""One layer's weights rounded: the tensor as a matrix, the method, and codes back in the tensor's shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from npuflow.engine.quantize.config import Weights
from npuflow.engine.quantize.types import weight_type
from npuflow.engine.rounding.moments import Int64s, Moments
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, QuantType
from npuflow.rounders import LayerProblem, Reals, RoundedWeight, Rounder, Rounding

TINY = 1e-200
PULL = 0.3                                # damping of moved weights, as a share of the mean second moment


@dataclass(frozen=True)
class Matrix:
    """A weight tensor and where the numbers of its matrix, [groups, outputs, terms], lie in it. `axis`: that
    of its output channels; `gain`: a unit of the sums in units of the bias; `names`, `kind`: what exceptions
    of the recipe go by; `inner`: the axis along which scales by groups may differ."""

    tensor: Array
    index: Int64s
    axis: int | None
    gain: float
    names: tuple[str, ...]
    kind: str
    inner: int | None = None

    def rows(self, tensor: Array) -> Reals:
        return np.asarray(tensor, np.float64).reshape(-1)[self.index]

    def tensor_of(self, rows: Reals, dtype: str) -> Array:
        found = np.empty(self.tensor.size, dtype)
        found[self.index.reshape(-1)] = rows.reshape(-1)
        return found.reshape(self.tensor.shape)


def matrix(graph: Graph, node: int, weight: str, names: tuple[str, ...], kind: str) -> Matrix:
    """The matrix of a node's constant weight."""
    one = graph.nodes[node]
    tensor = graph.const(weight)
    assert tensor is not None
    index = one.op.rows(np.arange(tensor.size).reshape(tensor.shape))
    groups, at = one.op.column_groups(), one.inputs.index(weight)
    site = graph.site(one)
    axis, inner = one.op.channel_axis(site, at), one.op.group_axis(site, at)
    unit = one.op.gain() / one.op.bias_factor()
    return Matrix(tensor, index.reshape(groups, len(index) // groups, -1), axis, unit, names, kind, inner)


@dataclass(frozen=True)
class RoundingResult:
    """The rounded weight, and whether it is used. `was`, `now`: noise over signal of the layer's outputs,
    rounded to the nearest and so, on held-out samples (on all where there are none). `plain`: the shift of
    the bias if it were rounded to the nearest.
    """

    weight: RoundedWeight
    was: float
    now: float
    used: bool
    plain: Reals | None = None


@dataclass(frozen=True)
class Aim:
    """What the float network's columns, in the same places, have to do with those that the layer
    reads: their `mean` [groups, terms], and `cross` [groups, terms, terms], the mean product of each
    of theirs with each of the layer's."""

    mean: Reals
    cross: Reals


def moved(problem: LayerProblem, aim: Aim) -> Reals:
    """The weights whose outputs come closest, in least squares, to what the float weights make
    of the float columns; damped."""
    off = np.matmul(problem.weight, aim.cross - problem.gram)
    return np.asarray(
        problem.weight + np.linalg.solve(problem.damped(PULL), off.swapaxes(1, 2)).swapaxes(1, 2)
    )


def rounded(
    rounder: Rounder,
    source: Matrix,
    bias: str,
    fit: Moments,
    held: Moments | None,
    scheme: Weights,
    numerics: Numerics,
    aim: Aim | None = None,
) -> RoundingResult:
    """Round a layer, to the nearest if the method has no interest in its width. Where its bias can take
    up what rounding does to the mean of its outputs, only what varies counts. `aim`: what the float
    network has in the place of what the layer reads here; the codes are then for the weights that come
    closest to the float layer's outputs."""
    quant = weight_type(source.tensor, source.axis, scheme, numerics, source.inner)
    center = fit.mean if bias else None
    problem = _problem(source, quant, fit.around(center), numerics)
    own = problem.weight
    if aim is not None:
        problem = replace(problem, weight=moved(problem, aim))
    plain, wanted = problem.nearest(), rounder.wants(quant.bits)
    made = rounder(problem) if wanted else plain
    judge = problem if held is None else replace(problem, gram=held.around(center))
    signal = max(
        float(judge.errors(Rounding(np.zeros_like(made.codes) + judge.zero[..., None], made.scale)).sum()),
        TINY,
    )
    was, now = (float(judge.errors(one).sum()) / signal for one in (plain, made))

    def shift(one: Rounding) -> Reals | None:
        wanted = np.matmul(own, (fit.mean if aim is None else aim.mean)[..., None])
        made = np.matmul(problem.real(one), fit.mean[..., None])
        return source.gain * (wanted - made).reshape(-1) if bias else None

    codes = source.tensor_of(made.codes, quant.dtype)
    weight = RoundedWeight(codes, quant.with_(scale=_scales(made, quant, problem)), bias, shift(made))
    used = wanted and (not rounder.judged or (held is not None and now < was))
    return RoundingResult(weight, was, now, used, shift(plain))


def _scales(made: Rounding, quant: QuantType, problem: LayerProblem) -> tuple[float, ...]:
    """The scales of a rounding as the type lists them."""
    if problem.part:
        return tuple(made.scale[..., :: problem.part].reshape(-1).tolist())
    scale = np.broadcast_to(made.scale, made.codes.shape[:2]).reshape(-1)
    return tuple(scale.tolist()) if quant.axis is not None else (float(scale[0]),)


def _problem(source: Matrix, quant: QuantType, gram: Reals, numerics: Numerics) -> LayerProblem:
    rows = source.rows(source.tensor)
    shape = rows.shape[:2]

    scale, part = np.asarray(quant.scale), 0
    if quant.group is not None:
        # terms are input channels, each with its taps
        part = quant.group * rows.shape[-1] // source.tensor.shape[quant.group_axis or 0]
        scale = np.repeat(scale.reshape(*shape, -1), part, axis=-1)[..., : rows.shape[-1]]

    def by_output(values: tuple[float, ...] | tuple[int, ...]) -> Reals:
        found = np.asarray(values, np.float64)
        each = quant.axis is not None and found.size > 1
        return found.reshape(shape) if each else np.full(shape, found[0])

    return LayerProblem(
        rows, gram, scale if part else by_output(quant.scale), by_output(quant.zero_point),
        quant.lo, quant.hi, quant.bits,
        shared=quant.axis is None, fixed=numerics.power_of_two, part=part, sub_bits=quant.sub_bits,
    )
