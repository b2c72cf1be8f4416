"""Single-operator networks of functions, of operators with two operands and of reductions."""

from __future__ import annotations

import numpy as np

from tests.ops.program_rows import (
    IMAGE,
    XU,
    Row,
    X,
    each,
    real,
    uniform,
    whole,
)


def unary_rows() -> list[Row]:
    """Functions of one number."""
    plain = (
        "Abs",
        "Asinh",
        "Atan",
        "Cos",
        "Erf",
        "Exp",
        "HardSwish",
        "Mish",
        "Neg",
        "Relu",
        "Selu",
        "Sigmoid",
        "Sin",
        "Softplus",
        "Softsign",
        "Tanh",
        "Cosh",
        "Sinh",
    )
    steep = {name: {"x": "bounded"} for name in ("Exp", "Cosh", "Sinh")}
    found = [Row(name, f"y = {name}(x)", X, steep.get(name, {})) for name in plain]
    for name, attributes in (
        ("Celu", "alpha=0.7"),
        ("Elu", "alpha=0.5"),
        ("HardSigmoid", "alpha=0.3, beta=0.4"),
        ("LeakyRelu", "alpha=0.1"),
        ("Gelu", 'approximate="tanh"'),
    ):
        found.append(Row(name, f"y = {name}<{attributes}>(x)", X))
    for name, guard in (
        ("Acos", "unit"),
        ("Asin", "unit"),
        ("Atanh", "unit"),
        ("Acosh", "above one"),
        ("Log", "positive"),
        ("Reciprocal", "positive"),
        ("Sqrt", "positive"),
    ):
        found.append(Row(name, f"y = {name}(x)", X, {"x": guard}))
    for name, attributes in (
        ("Ceil", ""),
        ("Floor", ""),
        ("Round", ""),
        ("Sign", ""),
        ("Shrink", "<lambd=0.6>"),
        ("ThresholdedRelu", "<alpha=0.7>"),
    ):
        found.append(Row(name, f"y = {name}{attributes}(x)", X, jumps=True))
    return [
        *found,
        Row("Tan", "y = Tan(x)", X, {"x": "angle"}, jumps=True),
        Row("Tan, beyond its poles", "y = Tan(x)", X, jumps=True, places=("alone", "behind", "second")),
        Row("QuickGelu", "y = com.microsoft.QuickGelu<alpha=1.7>(x)", X),
        Row("Swish", "y = Swish<alpha=1.3>(x)", X, opset=24),
        Row("Clip", "y = Clip(x, low, high)", each(X, {"low": real(-0.8), "high": real(1.1)})),
        Row(
            "Clip, computed",
            "y = Clip(x, low, u)",
            each(X, *({"u": (), "low": real(-1.0)} for _ in X)),
            {"u": "above one"},
        ),
        Row("Pow", "y = Pow(x, e)", each(X, {"e": real(2.0)}, {"e": real(3.0)}), {"x": "bounded"}),
        Row("Pow, roots", "y = Pow(x, e)", each(X, {"e": real(0.5)}, {"e": real(-0.7)}), {"x": "positive"}),
        Row("Mod", "y = Mod<fmod=1>(x, d)", each(X, {"d": real(0.75)}), jumps=True),
        Row("Cast", "t = Greater(x, c) y = Cast<to=1>(t)", each(X, {"c": real(0.3)}), jumps=True),
    ]


def pairs_rows() -> list[Row]:
    """Of two operands."""
    return [
        *(Row(name, f"y = {name}(x, u)", XU) for name in ("Add", "Sub", "Mul", "Max", "Min", "Mean")),
        Row("Div", "y = Div(x, u)", XU, {"u": "positive"}),
        Row("Pow, computed", "y = Pow(x, u)", XU, {"x": "positive", "u": "unit"}),
        Row(
            "PRelu",
            "y = PRelu(x, slope)",
            each(
                X,
                *(
                    {"slope": uniform(0.05, 0.4, *s)}
                    for s in ((4, 1, 1), (3, 1, 1), (24,), (9, 1), (8, 1, 1))
                ),
            ),
        ),
        Row("Where", "t = Greater(x, c) y = Where(t, x, u)", each(XU, {"c": real(0.1)}), jumps=True, off=1.5),
        Row(
            "Concat",
            "y = Concat<axis={axis}>(x, u)",
            [
                {"x": (1, 4, 6, 6), "u": (1, 2, 6, 6), "axis": 1},
                {"x": (1, 4, 6, 6), "u": (1, 4, 3, 6), "axis": 2},
                {"x": (2, 24), "u": (2, 8), "axis": -1},
                {"x": (1, 9, 16), "u": (1, 9, 16), "axis": 1},
                {"x": (1, 3, 5, 7), "u": (1, 3, 5, 2), "axis": 3},
            ],
        ),
    ]


def reductions_rows() -> list[Row]:
    """Over dimensions."""
    axes = [
        {"axes": whole(1), "keep": 1},
        {"axes": whole(2, 3), "keep": 0},
        {"axes": whole(1), "keep": 1},
        {"axes": whole(-1), "keep": 0},
        {"axes": whole(3), "keep": 1},
    ]
    shapes = each(
        [{"x": s} for s in ((1, 4, 6, 6), (1, 12, 4, 3), (12, 24), (1, 16, 9), (1, 8, 4, 12))], *axes
    )
    names = {
        "ReduceMax": "",
        "ReduceMin": "",
        "ReduceMean": "",
        "ReduceSum": "",
        "ReduceL1": "",
        "ReduceL2": "",
        "ReduceSumSquare": "",
        "ReduceLogSumExp": "",
        "ReduceLogSum": "positive",
        "ReduceProd": "factor",
    }
    found = [
        Row(name, f"y = {name}<keepdims={{keep}}>(x, axes)", shapes, {"x": guard} if guard else {})
        for name, guard in names.items()
    ]
    axis = [{"axis": a} for a in (1, 3, 1, 2, 3)]
    return [
        *found,
        Row("CumSum", "y = CumSum(x, at)", each(X, *({"at": np.array(a)} for a in (1, 3, 1, 2, 3)))),
        *(Row(name, f"y = {name}<axis={{axis}}>(x)", each(X, *axis)) for name in ("Softmax", "LogSoftmax")),
        Row(
            "LpNormalization",
            "y = LpNormalization<axis={axis}, p={p}>(x)",
            each(each(X, *axis), {"p": 2}, {"p": 1}),
        ),
        Row(
            "MeanVarianceNormalization",
            "y = MeanVarianceNormalization<axes={axes}>(x)",
            each(IMAGE, {"axes": [0, 2, 3]}, {"axes": [1, 2, 3]}),
        ),
    ]
