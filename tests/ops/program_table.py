"""The operators of single-operator programs, as a user's network has them: nodes, five shapes each, and what
their operands are like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Index:
    """An input of indices from 0 up to but not including `top`."""

    shape: tuple[int, ...]
    top: int


@dataclass(frozen=True)
class Row:
    """An operator. `nodes`: in ONNX's text form, from the inputs x, u, v, ... to the results y, t, ...

    `shapes`: one network each; tuples are shapes of float inputs, Index inputs of indices, arrays constants,
    all else fills the placeholders of `nodes`. `guards`: what is in front of the operator so that operands
    are as it needs them, by input (see GUARDS in programs.py). `jumps`: discontinuous, steep, or giving
    integers: its results are compared with those of onnxruntime on the program's own operands."""

    name: str
    nodes: str
    shapes: Sequence[dict[str, Any]]
    guards: dict[str, str] = field(default_factory=dict)
    jumps: bool = False
    opset: int = 20


def normal(*shape: int, scale: float = 1.0) -> Array:
    rng = np.random.default_rng([len(shape), *shape])
    return (rng.normal(size=shape) * scale).astype(np.float32)


def uniform(low: float, high: float, *shape: int) -> Array:
    return np.random.default_rng([len(shape), *shape]).uniform(low, high, shape).astype(np.float32)


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


def real(value: float) -> Array:
    return np.array(value, np.float32)


ANY = [(1, 4, 6, 6), (1, 3, 7, 5), (2, 24), (1, 9, 16), (1, 8, 1, 12)]
X = [{"x": s} for s in ANY]
IMAGES = [(1, 4, 6, 6), (1, 3, 9, 7), (2, 4, 6, 6), (1, 8, 5, 5), (1, 6, 4, 12)]
IMAGE = [{"x": s} for s in IMAGES]
ROWS = [{"x": s} for s in [(1, 6, 16), (4, 32), (1, 12, 24), (2, 5, 8), (1, 2, 7, 12)]]
PAIRS = [
    ((1, 4, 6, 6), (1, 4, 6, 6)), ((1, 4, 6, 6), (1, 4, 1, 1)), ((2, 24), (24,)), ((1, 9, 16), (1, 9, 1)),
    ((1, 1, 4, 12), (1, 6, 4, 1)),
]
XU = [{"x": a, "u": b} for a, b in PAIRS]


def each(shapes: Sequence[dict[str, Any]], *more: dict[str, Any]) -> list[dict[str, Any]]:
    """The shapes, each with what stands in the same place of `more`; one serves all."""
    return [{**s, **more[k % len(more)]} for k, s in enumerate(shapes)]


def _unary() -> list[Row]:
    plain = (
        "Abs Asinh Atan Cos Erf Exp HardSwish Mish Neg Relu Selu Sigmoid Sin Softplus Softsign "
        "Tanh Cosh Sinh"
    ).split()
    steep = {name: {"x": "bounded"} for name in ("Exp", "Cosh", "Sinh")}
    found = [Row(name, f"y = {name}(x)", X, steep.get(name, {})) for name in plain]
    for name, attributes in (
        ("Celu", "alpha=0.7"), ("Elu", "alpha=0.5"), ("HardSigmoid", "alpha=0.3, beta=0.4"),
        ("LeakyRelu", "alpha=0.1"), ("Gelu", 'approximate="tanh"'),
    ):
        found.append(Row(name, f"y = {name}<{attributes}>(x)", X))
    for name, guard in (
        ("Acos", "unit"), ("Asin", "unit"), ("Atanh", "unit"), ("Acosh", "above one"), ("Log", "positive"),
        ("Reciprocal", "positive"), ("Sqrt", "positive"),
    ):
        found.append(Row(name, f"y = {name}(x)", X, {"x": guard}))
    for name, attributes in (
        ("Ceil", ""), ("Floor", ""), ("Round", ""), ("Sign", ""), ("Tan", ""), ("Shrink", "<lambd=0.6>"),
        ("ThresholdedRelu", "<alpha=0.7>"),
    ):
        found.append(Row(name, f"y = {name}{attributes}(x)", X, jumps=True))
    return [
        *found,
        Row("QuickGelu", "y = com.microsoft.QuickGelu<alpha=1.7>(x)", X),
        Row("Swish", "y = Swish<alpha=1.3>(x)", X, opset=24),
        Row("Clip", "y = Clip(x, low, high)", each(X, {"low": real(-0.8), "high": real(1.1)})),
        Row("Clip, computed", "y = Clip(x, low, u)",
            each(X, *({"u": (), "low": real(-1.0)} for _ in X)), {"u": "above one"}),
        Row("Pow", "y = Pow(x, e)", each(X, {"e": real(2.0)}, {"e": real(3.0)}), {"x": "bounded"}),
        Row("Pow, roots", "y = Pow(x, e)", each(X, {"e": real(0.5)}, {"e": real(-0.7)}), {"x": "positive"}),
        Row("Mod", "y = Mod<fmod=1>(x, d)", each(X, {"d": real(0.75)}), jumps=True),
        Row("Cast", "t = Greater(x, c) y = Cast<to=1>(t)", each(X, {"c": real(0.3)}), jumps=True),
    ]


def _pairs() -> list[Row]:
    return [
        *(Row(name, f"y = {name}(x, u)", XU) for name in ("Add", "Sub", "Mul", "Max", "Min", "Mean")),
        Row("Div", "y = Div(x, u)", XU, {"u": "positive"}),
        Row("Pow, computed", "y = Pow(x, u)", XU, {"x": "positive", "u": "unit"}),
        Row("PRelu", "y = PRelu(x, slope)", each(X, *(
            {"slope": uniform(0.05, 0.4, *s)} for s in ((4, 1, 1), (3, 1, 1), (24,), (9, 1), (8, 1, 1))))),
        Row("Where", "t = Greater(x, c) y = Where(t, x, u)", each(XU, {"c": real(0.1)}), jumps=True),
        Row("Concat", "y = Concat<axis={axis}>(x, u)", [
            {"x": (1, 4, 6, 6), "u": (1, 2, 6, 6), "axis": 1}, {"x": (1, 4, 6, 6), "u": (1, 4, 3, 6), "axis": 2},
            {"x": (2, 24), "u": (2, 8), "axis": -1}, {"x": (1, 9, 16), "u": (1, 9, 16), "axis": 1},
            {"x": (1, 3, 5, 7), "u": (1, 3, 5, 2), "axis": 3}]),
    ]


def _windows() -> list[Row]:
    kinds = ["kernel_shape=[2,2], strides=[2,2]", "kernel_shape=[3,3], pads=[1,1,1,1]",
             "kernel_shape=[2,3], strides=[1,2]", "kernel_shape=[3,3], strides=[2,2], pads=[0,0,1,1]",
             "kernel_shape=[1,4], strides=[1,4]"]
    windows = each(IMAGE, *({"window": kind} for kind in kinds))
    weights = [{"w": normal(8, 4, 3, 3, scale=0.2), "b": normal(8, scale=0.2), "how": "pads=[1,1,1,1]"},
               {"w": normal(6, 3, 3, 3, scale=0.2), "b": normal(6), "how": "strides=[2,2], pads=[1,1,1,1]"},
               {"w": normal(4, 1, 3, 3, scale=0.4), "b": normal(4), "how": "group=4"},
               {"w": normal(16, 8, 1, 1, scale=0.4), "b": normal(16), "how": "strides=[1,1]"},
               {"w": normal(6, 3, 3, 3, scale=0.2), "b": normal(6), "how": "group=2, dilations=[1,2]"}]
    turned = [{"w": normal(4, 6, 2, 2, scale=0.3), "b": normal(6), "how": "strides=[2,2]"},
              {"w": normal(3, 4, 3, 3, scale=0.3), "b": normal(4), "how": "strides=[2,2], pads=[1,1,1,1]"},
              {"w": normal(4, 4, 3, 3, scale=0.3), "b": normal(4), "how": "pads=[1,1,1,1]"},
              {"w": normal(8, 1, 4, 4, scale=0.3), "b": normal(8), "how": "group=8, strides=[2,2]"},
              {"w": normal(6, 6, 1, 3, scale=0.3), "b": normal(6), "how": "strides=[1,3]"}]
    moved = {"w": normal(6, 4, 3, 3, scale=0.2), "b": normal(6)}
    return [
        Row("AveragePool", "y = AveragePool<{window}>(x)", windows),
        Row("MaxPool", "y = MaxPool<{window}>(x)", windows),
        Row("LpPool", "y = LpPool<{window}, p=2>(x)", windows),
        Row("GlobalAveragePool", "y = GlobalAveragePool(x)", each(IMAGE, *({"x": (1, c, 6, 5)} for c in (16, 24, 9, 32, 12)))),
        Row("GlobalMaxPool", "y = GlobalMaxPool(x)", each(IMAGE, *({"x": (1, c, 6, 5)} for c in (16, 24, 9, 32, 12)))),
        Row("GlobalLpPool", "y = GlobalLpPool<p=2>(x)", each(IMAGE, *({"x": (1, c, 6, 5)} for c in (16, 24, 9, 32, 12)))),
        Row("LRN", "y = LRN<size={size}, alpha=0.1, bias=1.0>(x)", each(IMAGE, {"size": 3}, {"size": 3})),
        Row("Conv", "y = Conv<{how}>(x, w, b)", each(IMAGE, *weights)),
        Row("ConvTranspose", "y = ConvTranspose<{how}>(x, w, b)", each(IMAGE, *turned)),
        Row("DeformConv", "y = DeformConv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, u, b)",
            [{"x": (1, 4, h, w), "u": (1, 18, h, w), **moved} for h, w in ((6, 6), (5, 7), (4, 4), (8, 3), (3, 9))],
            {"u": "unit"}),
        Row("MaxUnpool", "t, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) "
            "y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(t, i)",
            [{"x": s} for s in ((1, 2, 4, 4), (1, 4, 6, 6), (1, 1, 8, 4), (1, 3, 4, 10), (1, 8, 2, 6))], jumps=True),
    ]


def _moves() -> list[Row]:
    boxes = [(1, 4, 6, 6), (1, 8, 3, 5), (1, 4, 4, 8), (1, 16, 2, 3), (1, 12, 4, 2)]
    even = [(1, 2, 6, 6), (1, 3, 4, 8), (1, 1, 8, 8), (1, 4, 2, 6), (1, 5, 4, 4)]
    pads = [(0, 0, 1, 1, 0, 0, 1, 1), (0, 0, 0, 2, 0, 0, 1, 0), (0, 3, 0, 2), (0, 1, 0, 0, 2, 1), (0, 0, 0, 3, 0, 0, 0, 3)]
    return [
        Row("Transpose", "y = Transpose<perm={perm}>(x)", each(
            X, {"perm": [0, 2, 3, 1]}, {"perm": [0, 3, 1, 2]}, {"perm": [1, 0]}, {"perm": [0, 2, 1]}, {"perm": [3, 2, 1, 0]})),
        Row("Reshape", "y = Reshape(x, to)", each(X, *({"to": whole(*s)} for s in (
            (1, 144), (1, 7, 15), (1, 6, 8), (1, 4, 6, 6), (1, 2, 4, 12))))),
        Row("Flatten", "y = Flatten<axis={axis}>(x)", each(X, {"axis": 1}, {"axis": 2}, {"axis": 1})),
        Row("Squeeze", "y = Squeeze(x, axes)", each(X, *({"axes": whole(a), **s} for a, s in (
            (0, {}), (0, {}), (0, {"x": (1, 24)}), (0, {}), (2, {}))))),
        Row("Unsqueeze", "y = Unsqueeze(x, axes)", [
            {"x": s, "axes": whole(a)} for s, a in (((2, 24), 1), ((1, 9, 16), 2), ((3, 16), 0), ((1, 4, 20), 3), ((2, 6, 6), 1))]),
        Row("Slice", "y = Slice(x, from, to, axes, steps)", each(X, *(
            {"from": whole(f), "to": whole(t), "axes": whole(a), "steps": whole(s)}
            for f, t, a, s in ((1, 5, 2, 1), (0, 7, 2, 2), (-9, 24, 1, 1), (15, -17, 2, -3), (2, 12, 3, 4))))),
        Row("Split", "y, t = Split<axis={axis}>(x, parts)", each(X, *(
            {"axis": a, "parts": whole(*p)} for a, p in ((1, (1, 3)), (2, (2, 5)), (1, (8, 16)), (2, (8, 8)), (1, (3, 5)))))),
        Row("Pad", 'y = Pad<mode="{mode}">(x, pads)', each(X, *(
            {"pads": whole(*p), "mode": m}
            for p, m in zip(pads, ("constant", "reflect", "edge", "constant", "reflect"), strict=True)))),
        Row("Expand", "y = Expand(x, to)", [{"x": s, "to": whole(*t)} for s, t in (
            ((1, 4, 1, 6), (1, 4, 6, 6)), ((24,), (3, 24)), ((1, 8, 1), (1, 8, 9)), ((1, 1, 5, 4), (2, 3, 5, 4)), ((2, 12), (2, 12)))]),
        Row("Tile", "y = Tile(x, times)", each(X, *({"times": whole(*t)} for t in (
            (1, 2, 1, 2), (1, 1, 3, 1), (2, 2), (1, 3, 1), (1, 1, 4, 1))))),
        Row("DepthToSpace", 'y = DepthToSpace<blocksize=2, mode="{mode}">(x)',
            each([{"x": s} for s in boxes], {"mode": "DCR"}, {"mode": "CRD"})),
        Row("SpaceToDepth", "y = SpaceToDepth<blocksize=2>(x)", [{"x": s} for s in even]),
        Row("Gather", "y = Gather<axis={axis}>(x, at)", each(X, *({"axis": a, "at": whole(*i)} for a, i in (
            (1, (3, 0)), (2, (6, 5, 0)), (1, (0, 2, 2, 23)), (2, (1, 15)), (3, (11, 3, 4)))))),
        Row("Resize", 'y = Resize<mode="{mode}", coordinate_transformation_mode="{how}"{more}>(x, none, scales)', each(
            [{"x": s, "none": np.zeros(0, np.float32)} for s in even],
            {"mode": "nearest", "how": "asymmetric", "scales": np.array([1, 1, 2, 2], np.float32), "more": ', nearest_mode="floor"'},
            {"mode": "linear", "how": "half_pixel", "scales": np.array([1, 1, 2, 2], np.float32), "more": ""},
            {"mode": "linear", "how": "align_corners", "scales": np.array([1, 1, 1.5, 1.5], np.float32), "more": ""},
            {"mode": "cubic", "how": "half_pixel", "scales": np.array([1, 1, 2, 2], np.float32), "more": ""},
            {"mode": "linear", "how": "half_pixel", "scales": np.array([1, 1, 0.5, 0.5], np.float32), "more": ", antialias=1"})),
        Row("Upsample", "y = Upsample<mode=\"{mode}\">(x, scales)", each(
            [{"x": s} for s in even], {"mode": "nearest", "scales": np.array([1, 1, 2, 2], np.float32)},
            {"mode": "linear", "scales": np.array([1, 1, 2, 2], np.float32)}), opset=9),
        Row("ReverseSequence", "y = ReverseSequence<batch_axis=0, time_axis=1>(x, lengths)", [
            {"x": s, "lengths": whole(*n)} for s, n in (
                ((1, 6, 8), (4,)), ((2, 24), (10, 24)), ((1, 9, 16), (9,)), ((3, 5, 4), (1, 3, 5)), ((2, 7, 6), (7, 2)))]),
        Row("CenterCropPad", "y = CenterCropPad<axes={axes}>(x, to)", [
            {"x": s, "axes": a, "to": whole(*t)} for s, a, t in (
                ((1, 4, 6, 6), [2, 3], (4, 4)), ((1, 4, 6, 6), [2, 3], (8, 4)), ((2, 24), [1], (20,)),
                ((1, 9, 16), [1, 2], (11, 10)), ((1, 3, 5, 7), [3], (9,)))]),
        Row("Trilu", "y = Trilu<upper={upper}>(x)", each([{"x": s} for s in (
            (6, 6), (1, 8, 8), (1, 4, 6, 6), (2, 5, 7), (9, 4))], {"upper": 0}, {"upper": 1})),
        Row("Compress", "y = Compress<axis={axis}>(x, kept)", each(X, *(
            {"axis": a, "kept": np.arange(n) % 3 != 1} for a, n in ((1, 4), (3, 5), (1, 24), (2, 16), (3, 12))))),
    ]


def _indices() -> list[Row]:
    table = [(6, 8), (9, 16), (12, 4), (5, 24), (30, 6)]
    some = [whole(2, 0, 5), whole(8, 8, 1, 3), whole(0, 11), whole(4, 1), whole(29, 3, 17, 11, 2)]
    rows = [(3,), (4,), (2, 2), (5,), (6,)]
    return [
        Row("Gather, computed", "y = Gather(x, i)", [
            {"x": s, "i": Index(r, s[0])} for s, r in zip(table, rows, strict=True)]),
        Row("GatherElements", "y = GatherElements(x, i)", [
            {"x": s, "i": Index((3, s[1]), s[0])} for s in table]),
        Row("GatherElements, constant", "y = GatherElements(x, at)", [
            {"x": s, "at": np.random.default_rng(s).integers(0, s[0], (3, s[1]))} for s in table]),
        Row("GatherND", "y = GatherND(x, i)", [{"x": s, "i": Index((4, 1), s[0])} for s in table]),
        Row("GatherND, constant", "y = GatherND(x, at)", [
            {"x": s, "at": a[:, None]} for s, a in zip(table, some, strict=True)]),
        Row("ScatterElements", 'y = ScatterElements<reduction="{how}">(x, i, u)', each(
            [{"x": s, "i": Index((3, s[1]), s[0]), "u": (3, s[1])} for s in table],
            {"how": "add"}, {"how": "none"}, {"how": "max"}, {"how": "min"}, {"how": "add"})),
        Row("ScatterElements, constant", "y = ScatterElements(x, at, u)", [
            {"x": s, "at": np.random.default_rng(s).permuted(np.tile(np.arange(s[0])[:, None], s[1]), axis=0)[:3], "u": (3, s[1])}
            for s in table]),
        Row("Scatter", "y = Scatter(x, i, u)", [
            {"x": s, "i": Index((3, s[1]), s[0]), "u": (3, s[1])} for s in table], opset=10),
        Row("ScatterND", 'y = ScatterND<reduction="{how}">(x, i, u)', each(
            [{"x": s, "i": Index((3, 1), s[0]), "u": (3, s[1])} for s in table],
            {"how": "add"}, {"how": "none"}, {"how": "max"}, {"how": "none"}, {"how": "add"})),
        Row("TensorScatter", "y = TensorScatter(x, u, at)", [
            {"x": (1, *s), "u": (1, 2, s[1]), "at": whole(2)} for s in table], opset=24),
        Row("OneHot", "y = OneHot<axis={axis}>(i, depth, ends)", each(
            [{"i": Index(s, d), "depth": np.array(d)} for s, d in (((1, 6), 5), ((12,), 9), ((2, 8), 4), ((1, 3, 4), 7), ((24,), 3))],
            {"axis": -1, "ends": np.array([-1, 2], np.float32)}, {"axis": 0, "ends": np.array([0, 1], np.float32)}), jumps=True),
        *(Row(name, f"y = {name}<axis={{axis}}, keepdims={{keep}}>(x)",
              each(X, {"axis": 1, "keep": 0}, {"axis": -1, "keep": 1}), jumps=True) for name in ("ArgMax", "ArgMin")),
        Row("TopK", "y, t = TopK<axis={axis}, largest={largest}>(x, k)", each(
            X, {"axis": 1, "k": whole(2), "largest": 1}, {"axis": -1, "k": whole(5), "largest": 0},
            {"axis": -1, "k": whole(10), "largest": 1}), jumps=True),
        Row("Hardmax", "y = Hardmax<axis={axis}>(x)", each(X, {"axis": 1}, {"axis": -1}), jumps=True),
        Row("Gather, positions", "p = ArgMax<axis=1, keepdims=0>(u) m = Mod(p, n) y = Gather(x, m)", [
            {"x": s, "u": (4, 20), "n": np.array(s[0])} for s in table], jumps=True),
        Row("Div, integers", "p = ArgMax<axis=1, keepdims=0>(x) y = Div(p, n)", [
            {"x": (8, c), "n": np.array(n)} for c, n in ((12, 2), (20, 3), (32, 5), (40, 7), (9, 2))], jumps=True),
        Row("BitShift", "p = ArgMax<axis=1, keepdims=0>(x) q = Cast<to=13>(p) "
            "r = BitShift<direction=\"RIGHT\">(q, n) y = Cast<to=7>(r)", [
            {"x": (8, c), "n": np.array(n, np.uint64)} for c, n in ((12, 1), (20, 2), (32, 1), (40, 3), (9, 1))], jumps=True),
    ]


def _reductions() -> list[Row]:
    axes = [{"axes": whole(1), "keep": 1}, {"axes": whole(2, 3), "keep": 0}, {"axes": whole(1), "keep": 1},
            {"axes": whole(-1), "keep": 0}, {"axes": whole(3), "keep": 1}]
    shapes = each([{"x": s} for s in ((1, 4, 6, 6), (1, 12, 4, 3), (12, 24), (1, 16, 9), (1, 8, 4, 12))], *axes)
    names = {"ReduceMax": "", "ReduceMin": "", "ReduceMean": "", "ReduceSum": "", "ReduceL1": "", "ReduceL2": "",
             "ReduceSumSquare": "", "ReduceLogSumExp": "", "ReduceLogSum": "positive", "ReduceProd": "factor"}
    found = [Row(name, f"y = {name}<keepdims={{keep}}>(x, axes)", shapes, {"x": guard} if guard else {})
             for name, guard in names.items()]
    axis = [{"axis": a} for a in (1, 3, 1, 2, 3)]
    return [
        *found,
        Row("CumSum", "y = CumSum(x, at)", each(X, *({"at": np.array(a)} for a in (1, 3, 1, 2, 3)))),
        *(Row(name, f"y = {name}<axis={{axis}}>(x)", each(X, *axis)) for name in ("Softmax", "LogSoftmax")),
        Row("LpNormalization", "y = LpNormalization<axis={axis}, p={p}>(x)",
            each(each(X, *axis), {"p": 2}, {"p": 1})),
        Row("MeanVarianceNormalization", "y = MeanVarianceNormalization<axes={axes}>(x)", each(
            IMAGE, {"axes": [0, 2, 3]}, {"axes": [1, 2, 3]})),
    ]


def _norms() -> list[Row]:
    groups = [{"n": 2}, {"n": 3}, {"n": 4}, {"n": 4}, {"n": 1}]
    channels = [{"g": uniform(0.5, 1.5, s[1]), "b": normal(s[1], scale=0.3)} for s in IMAGES]
    wide = [{"g": uniform(0.5, 1.5, r["x"][-1]), "b": normal(r["x"][-1], scale=0.3)} for r in ROWS]
    moments = [{"m": normal(s[1], scale=0.2), "s": uniform(0.6, 1.4, s[1])} for s in IMAGES]
    skips = [{"x": s, "u": s, "g": uniform(0.5, 1.5, s[-1])} for s in ((1, 6, 16), (2, 5, 32), (1, 12, 24), (2, 5, 8), (1, 7, 12))]
    return [
        Row("BatchNormalization", "y = BatchNormalization(x, g, b, m, s)", each(each(IMAGE, *channels), *moments)),
        Row("InstanceNormalization", "y = InstanceNormalization(x, g, b)", each(IMAGE, *channels)),
        Row("GroupNormalization", "y = GroupNormalization<num_groups={n}>(x, g, b)",
            each(each(IMAGE, *channels), *groups), opset=21),
        Row("LayerNormalization", "y = LayerNormalization(x, g, b)", each(ROWS, *wide)),
        Row("RMSNormalization", "y = RMSNormalization(x, g)", each(ROWS, *wide), opset=23),
        Row("SimplifiedLayerNormalization", "y = SimplifiedLayerNormalization(x, g)", each(ROWS, *wide)),
        Row("SkipSimplifiedLayerNormalization", "y = com.microsoft.SkipSimplifiedLayerNormalization(x, u, g)", skips),
    ]


def _products() -> list[Row]:
    pairs = [((6, 16), (16, 8)), ((1, 6, 16), (1, 16, 8)), ((2, 4, 8), (2, 8, 5)), ((1, 2, 6, 8), (1, 2, 8, 6)), ((12, 24), (24, 3))]
    weights = [{"x": a, "w": normal(*b[-2:], scale=0.3)} for a, b in pairs]
    flat = [{"x": (m, k), "w": normal(k, n, scale=0.3), "b": normal(n, scale=0.3)} for m, k, n in (
        (1, 64, 32), (6, 16, 8), (4, 24, 10), (12, 8, 8), (3, 40, 5))]
    return [
        Row("MatMul", "y = MatMul(x, w)", weights),
        Row("MatMul, computed", "y = MatMul(x, u)", [{"x": a, "u": b} for a, b in pairs]),
        Row("Gemm", "y = Gemm<alpha=0.5, beta=2.0>(x, w, b)", flat),
        Row("Einsum", 'y = Einsum<equation="{how}">(x, u)', [
            {"x": a, "u": b, "how": h} for a, b, h in (
                ((6, 16), (16, 8), "ij,jk->ik"), ((1, 6, 16), (1, 8, 16), "bik,bjk->bij"), ((1, 4, 6, 6), (4, 6), "bcij,cj->bci"),
                ((2, 5, 8), (2, 5, 8), "bij,bij->bij"), ((6, 8), (5, 8), "ik,jk->ji"))]),
        Row("DFT", "y = DFT<onesided={one}>(x, none, at)", each(
            [{"x": (1, n, 1), "none": whole(n).reshape(()), "at": np.array(1)} for n in (16, 24, 32, 12, 20)], {"one": 0}, {"one": 1})),
        Row("STFT", "y = STFT<onesided=1>(x, step, window)", [
            {"x": (1, n, 1), "step": np.array(s), "window": np.hanning(w + 1)[:-1].astype(np.float32)}
            for n, s, w in ((64, 8, 16), (96, 16, 32), (48, 12, 12), (80, 20, 20), (64, 16, 8))]),
        Row("AffineGrid", "y = AffineGrid(x, size)", [
            {"x": (1, 2, 3), "size": whole(1, 2, h, w)} for h, w in ((4, 4), (6, 5), (3, 8), (7, 7), (2, 9))]),
        Row("GridSample", 'y = GridSample<mode="{mode}", padding_mode="{pad}">(x, u)', each(
            [{"x": (1, c, h, w), "u": (1, a, b, 2)} for c, h, w, a, b in (
                (2, 6, 6, 4, 4), (3, 5, 7, 5, 5), (4, 4, 4, 6, 3), (1, 8, 8, 4, 8), (2, 6, 4, 3, 3))],
            {"mode": "linear", "pad": "zeros"}, {"mode": "linear", "pad": "border"}, {"mode": "linear", "pad": "reflection"}),
            {"u": "unit"}),
        Row("GridSample, nearest", 'y = GridSample<mode="nearest">(x, u)', [
            {"x": (1, c, h, w), "u": (1, a, b, 2)} for c, h, w, a, b in (
                (2, 6, 6, 4, 4), (3, 5, 7, 5, 5), (4, 4, 4, 6, 3), (1, 8, 8, 4, 8), (2, 6, 4, 3, 3))], {"u": "unit"}, jumps=True),
        Row("GridSample, constant", 'y = GridSample<mode="{mode}">(x, grid)', each(
            [{"x": s, "grid": uniform(-0.9, 0.9, s[0], 5, 5, 2)} for s in IMAGES], {"mode": "linear"}, {"mode": "cubic"})),
        Row("Col2Im", "y = Col2Im<strides=[2,2]>(x, image, block)", [
            {"x": (1, c * 4, h * w // 4), "image": whole(h, w), "block": whole(2, 2)}
            for c, h, w in ((2, 4, 4), (1, 6, 8), (3, 4, 6), (4, 8, 4), (2, 2, 8))]),
        Row("RoiAlign", "y = RoiAlign<output_height=3, output_width=3, sampling_ratio=2>(x, boxes, batch)", [
            {"x": (1, c, h, w), "boxes": np.array([[0.5, 0.5, h - 1, w - 1], [1, 0, 4, 3]], np.float32), "batch": whole(0, 0)}
            for c, h, w in ((2, 6, 6), (3, 7, 5), (1, 8, 8), (4, 5, 5), (2, 9, 6))]),
    ]


def _recurrent() -> list[Row]:
    def cell(gates: int, seq: int, batch: int, size: int, hidden: int) -> dict[str, Any]:
        return {"x": (seq, batch, size), "w": normal(1, gates * hidden, size, scale=0.3),
                "r": normal(1, gates * hidden, hidden, scale=0.3), "b": normal(1, 2 * gates * hidden, scale=0.1), "h": hidden}

    sizes = ((5, 1, 8, 6), (4, 2, 6, 4), (7, 1, 4, 8), (3, 3, 8, 4), (6, 1, 12, 5))
    return [Row(name, f"y = {name}<hidden_size={{h}}>(x, w, r, b)", [cell(gates, *s) for s in sizes])
            for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))]


def _attention() -> list[Row]:
    rows = [(1, 4, 8), (1, 6, 16), (2, 5, 8), (1, 9, 12), (1, 3, 24)]
    heads = [(1, 2, 4, 8), (1, 1, 6, 16), (2, 2, 5, 4), (1, 3, 9, 4), (1, 4, 3, 6)]
    return [
        Row("Attention", "y = Attention(x, u, v)", [{"x": s, "u": s, "v": s} for s in heads], opset=23),
        Row("Attention, fused", "y = com.microsoft.Attention<num_heads=2>(x, w, b)", [
            {"x": s, "w": normal(s[2], 3 * s[2], scale=0.4), "b": normal(3 * s[2], scale=0.1)} for s in rows]),
        Row("MultiHeadAttention", "y = com.microsoft.MultiHeadAttention<num_heads=2>(x, u, v)", [
            {"x": s, "u": s, "v": s} for s in rows]),
        Row("GroupQueryAttention",
            'y, t, q = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=1>(x, u, v, "", "", last, total)', [
            {"x": (1, n, 2 * d), "u": (1, n, d), "v": (1, n, d), "last": np.array([[n - 1]], np.int32), "total": np.array(n, np.int32)}
            for n, d in ((4, 8), (6, 8), (5, 16), (3, 8), (8, 24))]),
        Row("RotaryEmbedding", "y = RotaryEmbedding(x, cosines, sines, at)", [
            {"x": s, "cosines": np.cos(uniform(0, 3, s[2], s[3] // 2)), "sines": np.sin(uniform(0, 3, s[2], s[3] // 2)),
             "at": np.tile(np.arange(s[2]), (s[0], 1))} for s in heads], opset=23),
    ]


ROWS_OF_TABLE = (
    *_unary(), *_pairs(), *_windows(), *_moves(), *_indices(), *_reductions(), *_norms(), *_products(),
    *_recurrent(), *_attention(),
)
