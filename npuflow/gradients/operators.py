"""Operators on batches of real tensors in PyTorch, with gradients: what each file of `npuflow/ops` computes.

Every value has one dimension more than in the graph, the first: samples. Operators that only move data, and
functions of one number, need no form of their own: the operator's own reference says where each element goes,
and its function is evaluated with its difference quotient as gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functions

from npuflow.ir.op import Bound, Op, OpContext
from npuflow.ir.queries import kind
from npuflow.ir.windows import Window


def merged(x: Any) -> Any:
    """Samples and the graph's own batch as one dimension."""
    return x.flatten(0, 1)


def apart(y: Any, site: OpContext) -> Any:
    """They as two again."""
    return y.unflatten(0, (-1, site.out_shape[0]))


def padded(x: Any, spec: Sequence[Window], value: float = 0.0) -> Any:
    """As far as the last window reaches."""
    pads: list[int] = []
    for window in reversed(spec):
        reach = (window.out - 1) * window.stride + window.span
        pads += [window.before, reach - window.size - window.before]
    return functions.pad(x, pads, value=value) if any(pads) else x


def per_dimension(spec: Sequence[Window], name: str) -> tuple[int, ...]:
    return tuple(getattr(window, name) for window in spec)


def weights(inputs: Sequence[Any]) -> tuple[Any, Any]:
    """Weight and bias without the dimension of samples, which constants have once."""
    bias = inputs[2][0] if len(inputs) > 2 and inputs[2] is not None else None
    return inputs[1][0], bias


def conv(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    spec = site.op.windows(site.shape(0)[2:])
    run = (functions.conv1d, functions.conv2d, functions.conv3d)[len(spec) - 1]
    weight, bias = weights(inputs)
    x, even = merged(inputs[0]), all(window.before == window.after for window in spec)
    x = x if even else padded(x, spec)
    pads = per_dimension(spec, "before") if even else (0,) * len(spec)
    strides, dilations = per_dimension(spec, "stride"), per_dimension(spec, "dilation")
    return (apart(run(x, weight, bias, strides, pads, dilations, site.op.column_groups()), site),)


def deconv(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The full result, then what the pads cut off."""
    given = site.op.onnx_attributes()
    rank, pads = len(given["kernel_shape"]), given["pads"]
    run = (functions.conv_transpose1d, functions.conv_transpose2d, functions.conv_transpose3d)[rank - 1]
    weight, bias = weights(inputs)
    more, groups = given["output_padding"] or (0,) * rank, site.op.column_groups()
    y = run(merged(inputs[0]), weight, None, given["strides"], 0, 0, groups, given["dilations"])
    sides: list[int] = []
    for before, after, extra in reversed(list(zip(pads[:rank], pads[rank:], more, strict=True))):
        sides += [-before, extra - after]
    y = functions.pad(y, sides) if any(sides) else y
    if bias is not None:
        y = y + bias.reshape(1, -1, *(1,) * rank)
    return (apart(y, site),)


def max_pool(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    spec = site.op.windows(site.shape(0)[2:])
    run = (functions.max_pool1d, functions.max_pool2d, functions.max_pool3d)[len(spec) - 1]
    x = padded(merged(inputs[0]), spec, -inf)
    kernel, strides, dilations = (per_dimension(spec, n) for n in ("kernel", "stride", "dilation"))
    return (apart(run(x, kernel, strides, 0, dilations), site),)


def average_pool(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Sums over windows, each divided by what the operator counts in it: its mean of ones says how many."""
    spec = site.op.windows(site.shape(0)[2:])
    run = (functions.conv1d, functions.conv2d, functions.conv3d)[len(spec) - 1]
    x = padded(merged(inputs[0]), spec)
    ones = torch.ones(x.shape[1], 1, *per_dimension(spec, "kernel"))
    strides, dilations = per_dimension(spec, "stride"), per_dimension(spec, "dilation")
    sums = run(x, ones, None, strides, 0, dilations, x.shape[1])
    plane = torch.ones(1, 1, *(window.size for window in spec))
    kernel = torch.ones(1, 1, *per_dimension(spec, "kernel"))
    there = run(padded(plane, spec), kernel, None, strides, 0, dilations)
    (means,) = site.op.reference(plane.numpy())
    counts = torch.round(there / torch.from_numpy(np.asarray(means)))
    # a window in the padding alone: 0 / 0
    counts = torch.nan_to_num(counts, nan=1.0).clamp(min=1).to(x.dtype)
    return (apart(sums / counts, site),)


Form = Callable[[OpContext, Sequence[Any]], tuple[Any, ...]]
NUDGE = 1e-4  # relative step of difference quotients


def computed(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a node, its fused clip included."""
    op = site.op
    form = FORMS.get(kind(site.node))
    if form is not None:
        made = form(site, inputs)
    elif op.unary:
        made = (NumericFunction.apply(inputs[0], op),)
    else:
        made = moved(site, inputs)
    return made if op.clip is None else tuple(clipped(one, op.clip) for one in made)


def has_form(site: OpContext) -> bool:
    """Whether the node can be computed here; borders of loops are passed by `loops.py`."""
    if kind(site.node) in FORMS or site.op.unary or site.op.border_of_loop:
        return True
    return site.op.moves_data and all(value is None or value.type.is_static for value in site.inputs)


def clipped(x: Any, clip: tuple[Bound, Bound]) -> Any:
    """The fused clip; a bound may differ from channel to channel."""
    ends: list[Any] = []
    for bound in clip:
        if isinstance(bound, tuple):
            ends.append(torch.tensor(bound).reshape([-1 if d == 2 else 1 for d in range(x.dim())]))
        else:
            ends.append(bound)
    if clip == (0.0, inf):
        return functions.relu(x)
    low, high = (end if isinstance(end, torch.Tensor) or abs(end) < inf else None for end in ends)
    if isinstance(low, torch.Tensor) or isinstance(high, torch.Tensor):
        x = x if low is None else torch.maximum(x, torch.as_tensor(low))
        return x if high is None else torch.minimum(x, torch.as_tensor(high))
    return x if low is None and high is None else torch.clamp(x, low, high)


class NumericFunction(torch.autograd.Function):  # type: ignore[misc]
    """A function of one number by the operator's own formula."""

    @staticmethod
    def forward(ctx: Any, x: Any, op: Op) -> Any:
        ctx.save_for_backward(x)
        ctx.op = op
        return torch.from_numpy(_values(op, x.detach().double().numpy())).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        wide = x.double().numpy()
        step = NUDGE * np.maximum(np.abs(wide), 1.0)
        slope = (_values(ctx.op, wide + step) - _values(ctx.op, wide - step)) / (2 * step)
        return gradient * torch.from_numpy(np.nan_to_num(slope)).to(x.dtype), None


def _values(op: Op, x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(op.f(x), np.float64)


def moved(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """An operator that moves elements: the reference on numbered elements says where each comes from."""
    shapes = [site.shape(i) for i in range(len(inputs)) if inputs[i] is not None]
    firsts = np.cumsum([1, *(prod(s) for s in shapes)])
    numbered = [
        np.arange(a, a + prod(s), dtype=np.float64).reshape(s)
        for a, s in zip(firsts[:-1], shapes, strict=True)
    ]
    count = max(len(one) for one in inputs if one is not None)
    flat = [one.expand(count, *one.shape[1:]).reshape(count, -1) for one in inputs if one is not None]
    whole = torch.cat([torch.zeros(count, 1), *flat], 1)
    found = []
    for places in site.op.reference(*numbered):
        at = torch.from_numpy(np.rint(places).astype(np.int64).reshape(-1))
        found.append(whole[:, at].reshape(count, *places.shape))
    return tuple(found)


def aligned(x: Any, rank: int) -> Any:
    """As many dimensions behind the samples as the result has."""
    return x.reshape(x.shape[0], *(1,) * (rank + 1 - x.dim()), *x.shape[1:])


def pairwise(function: Callable[..., Any], site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    rank = len(site.out_shape)
    made = aligned(inputs[0], rank)
    for other in inputs[1:]:
        made = function(made, aligned(other, rank))
    return (made,)


def single(function: Callable[..., Any], site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    return (function(inputs[0]),)


def with_fields(
    function: Callable[..., Any], names: Mapping[str, str], site: OpContext, inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """A function whose arguments are attributes of the operator."""
    given = site.op.onnx_attributes()
    return (function(inputs[0], **{own: given[field] for own, field in names.items()}),)


def prelu(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    x, slope = inputs[0], aligned(inputs[1], len(site.out_shape))
    return (torch.where(x >= 0, x, x * slope),)


def gelu(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    return (functions.gelu(inputs[0], approximate=site.op.onnx_attributes()["approximate"]),)


def silu(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    x, alpha = inputs[0], float(site.op.onnx_attributes()["alpha"])
    return (functions.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x),)


def hard_sigmoid(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    given = site.op.onnx_attributes()
    return (torch.clamp(given["alpha"] * inputs[0] + given["beta"], 0.0, 1.0),)


def clip(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    given = site.op.onnx_attributes()
    return (clipped(inputs[0], (given["min"], given["max"])),)


def gemm(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    given, gain = site.op.onnx_attributes(), site.op.gain()
    x = inputs[0].transpose(1, 2) if given["transA"] else inputs[0]
    weight = inputs[1].transpose(1, 2) if given["transB"] else inputs[1]
    weight = weight[0] if len(weight) == 1 else weight
    y = torch.matmul(x, weight)
    y = y if gain == 1.0 else gain * y
    if len(inputs) < 3 or inputs[2] is None:
        return (y,)
    return (y + site.op.bias_factor() * aligned(inputs[2], 2),)


def matmul(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    rank = len(site.out_shape)
    return (torch.matmul(*(aligned(one, rank) for one in inputs)),)


def softmax(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    rank = len(site.shape(0))
    axis = site.op.answer_axis(rank) % rank
    return (torch.softmax(inputs[0], axis + 1),)


def reduction(function: Callable[..., Any], site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    rank = len(site.shape(0))
    axes = [axis + 1 for axis in site.op.reduced(rank) or ()]
    made = function(inputs[0], dim=axes, keepdim=True)
    return (made.reshape(made.shape[0], *site.out_shape),)


def reshape(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    return (inputs[0].reshape(inputs[0].shape[0], *site.out_shape),)


def transpose(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    perm = site.op.onnx_attributes()["perm"] or tuple(reversed(range(len(site.shape(0)))))
    return (inputs[0].permute(0, *(p + 1 for p in perm)),)


def concat(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    axis = site.op.onnx_attributes()["axis"] % len(site.out_shape)
    count = max(len(one) for one in inputs)
    return (torch.cat([one.expand(count, *one.shape[1:]) for one in inputs], axis + 1),)


def resize(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """One product per axis with the matrix that the operator makes of one-hot lines."""
    x, shape, given = inputs[0], site.shape(0), site.op.onnx_attributes()
    for axis, (size, out) in enumerate(zip(shape, given["sizes"], strict=True)):
        if size == out and given["scales"][axis] == 1.0:
            continue
        alone = [1] * (len(shape) + 1)
        alone[0], alone[axis + 1] = size, size
        scales = [1.0] * (len(shape) + 1)
        scales[axis + 1] = given["scales"][axis]
        sizes = [*alone]
        sizes[axis + 1] = out
        line = site.op.with_(sizes=tuple(sizes), scales=tuple(scales), clip=None)
        (found,) = line.reference(np.eye(size, dtype=np.float32).reshape(alone))
        matrix = torch.from_numpy(np.ascontiguousarray(found.reshape(size, out)))
        x = torch.matmul(x.movedim(axis + 1, -1), matrix).movedim(-1, axis + 1)
    return (x,)


def lookup(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Rows of a table by indices that are whole numbers held as floats."""
    table, index = inputs[0], inputs[1]
    rows = table.shape[2]
    at = torch.round(index.detach()).long()
    at = torch.where(at < 0, at + (site.op.onnx_attributes()["wrap"] or rows), at)
    at = torch.where((at < 0) | (at >= rows), rows - 1, at)
    if at.dim() == 4:
        return (torch.gather(table.expand(len(at), *table.shape[1:]), 2, at),)
    if len(table) == 1:
        return (table[0][:, at].movedim(0, 1),)
    return (torch.stack([one[:, own] for one, own in zip(table, at, strict=True)]),)


def leaky(function: Callable[..., Any], names: Mapping[str, str]) -> Form:
    return partial(with_fields, function, names)


def same(site: OpContext, inputs: Sequence[Any]) -> tuple[Any, ...]:
    return (inputs[0],)


FORMS: dict[str, Form] = {
    **dict.fromkeys(("quantizelinear", "dequantizelinear", "requantize"), same),
    "conv": conv,
    "convtranspose": deconv,
    "averagepool": average_pool,
    "maxpool": max_pool,
    "gemm": gemm,
    "matmul": matmul,
    "softmax": softmax,
    "lookup": lookup,
    "resize": resize,
    "add": partial(pairwise, torch.add),
    "sub": partial(pairwise, torch.sub),
    "mul": partial(pairwise, torch.mul),
    "div": partial(pairwise, torch.div),
    "max": partial(pairwise, torch.maximum),
    "min": partial(pairwise, torch.minimum),
    "prelu": prelu,
    "globalaveragepool": partial(reduction, torch.mean),
    "reducemean": partial(reduction, torch.mean),
    "reducesum": partial(reduction, torch.sum),
    "globalmaxpool": partial(reduction, torch.amax),
    "reducemax": partial(reduction, torch.amax),
    "reshape": reshape,
    "transpose": transpose,
    "concat": concat,
    "relu": partial(single, functions.relu),
    "sigmoid": partial(single, torch.sigmoid),
    "tanh": partial(single, torch.tanh),
    "hardswish": partial(single, functions.hardswish),
    "hardsigmoid": hard_sigmoid,
    "gelu": gelu,
    "silu": silu,
    "mish": partial(single, functions.mish),
    "softplus": partial(single, functions.softplus),
    "exp": partial(single, torch.exp),
    "log": partial(single, torch.log),
    "sqrt": partial(single, torch.sqrt),
    "reciprocal": partial(single, torch.reciprocal),
    "abs": partial(single, torch.abs),
    "neg": partial(single, torch.neg),
    "erf": partial(single, torch.erf),
    "elu": leaky(functions.elu, {"alpha": "alpha"}),
    "leakyrelu": leaky(functions.leaky_relu, {"negative_slope": "alpha"}),
    "pow": leaky(torch.pow, {"exponent": "exponent"}),
    "clip": clip,
}
