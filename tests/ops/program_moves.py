"""Single-operator networks of operators that move data, or read or give indices."""

from __future__ import annotations

import numpy as np

from tests.ops.program_rows import (
    Index,
    Row,
    X,
    each,
    whole,
)


def moves_rows() -> list[Row]:
    """That only move data."""
    boxes = [(1, 4, 6, 6), (1, 8, 3, 5), (1, 4, 4, 8), (1, 16, 2, 3), (1, 12, 4, 2)]
    even = [(1, 2, 6, 6), (1, 3, 4, 8), (1, 1, 8, 8), (1, 4, 2, 6), (1, 5, 4, 4)]
    pads = [
        (0, 0, 1, 1, 0, 0, 1, 1),
        (0, 0, 0, 2, 0, 0, 1, 0),
        (0, 3, 0, 2),
        (0, 1, 0, 0, 2, 1),
        (0, 0, 0, 3, 0, 0, 0, 3),
    ]
    return [
        Row(
            "Transpose",
            "y = Transpose<perm={perm}>(x)",
            each(
                X,
                {"perm": [0, 2, 3, 1]},
                {"perm": [0, 3, 1, 2]},
                {"perm": [1, 0]},
                {"perm": [0, 2, 1]},
                {"perm": [3, 2, 1, 0]},
            ),
        ),
        Row(
            "Reshape",
            "y = Reshape(x, to)",
            each(
                X,
                *({"to": whole(*s)} for s in ((1, 144), (1, 7, 15), (1, 6, 8), (1, 4, 6, 6), (1, 2, 4, 12))),
            ),
        ),
        Row("Flatten", "y = Flatten<axis={axis}>(x)", each(X, {"axis": 1}, {"axis": 2}, {"axis": 1})),
        Row(
            "Squeeze",
            "y = Squeeze(x, axes)",
            each(
                X,
                *(
                    {"axes": whole(a), **s}
                    for a, s in ((0, {}), (0, {}), (0, {"x": (1, 24)}), (0, {}), (2, {}))
                ),
            ),
        ),
        Row(
            "Unsqueeze",
            "y = Unsqueeze(x, axes)",
            [
                {"x": s, "axes": whole(a)}
                for s, a in (((2, 24), 1), ((1, 9, 16), 2), ((3, 16), 0), ((1, 4, 20), 3), ((2, 6, 6), 1))
            ],
        ),
        Row(
            "Slice",
            "y = Slice(x, from, to, axes, steps)",
            each(
                X,
                *(
                    {"from": whole(f), "to": whole(t), "axes": whole(a), "steps": whole(s)}
                    for f, t, a, s in (
                        (1, 5, 2, 1),
                        (0, 7, 2, 2),
                        (-9, 24, 1, 1),
                        (15, -17, 2, -3),
                        (2, 12, 3, 4),
                    )
                ),
            ),
        ),
        Row(
            "Split",
            "y, t = Split<axis={axis}>(x, parts)",
            each(
                X,
                *(
                    {"axis": a, "parts": whole(*p)}
                    for a, p in ((1, (1, 3)), (2, (2, 5)), (1, (8, 16)), (2, (8, 8)), (1, (3, 5)))
                ),
            ),
        ),
        Row(
            "Pad",
            'y = Pad<mode="{mode}">(x, pads)',
            each(
                X,
                *(
                    {"pads": whole(*p), "mode": m}
                    for p, m in zip(pads, ("constant", "reflect", "edge", "constant", "reflect"), strict=True)
                ),
            ),
        ),
        Row(
            "Expand",
            "y = Expand(x, to)",
            [
                {"x": s, "to": whole(*t)}
                for s, t in (
                    ((1, 4, 1, 6), (1, 4, 6, 6)),
                    ((24,), (3, 24)),
                    ((1, 8, 1), (1, 8, 9)),
                    ((1, 1, 5, 4), (2, 3, 5, 4)),
                    ((2, 12), (2, 12)),
                )
            ],
        ),
        Row(
            "Tile",
            "y = Tile(x, times)",
            each(
                X,
                *(
                    {"times": whole(*t)}
                    for t in ((1, 2, 1, 2), (1, 1, 3, 1), (2, 2), (1, 3, 1), (1, 1, 4, 1))
                ),
            ),
        ),
        Row(
            "DepthToSpace",
            'y = DepthToSpace<blocksize=2, mode="{mode}">(x)',
            each([{"x": s} for s in boxes], {"mode": "DCR"}, {"mode": "CRD"}),
        ),
        Row("SpaceToDepth", "y = SpaceToDepth<blocksize=2>(x)", [{"x": s} for s in even]),
        Row(
            "Gather",
            "y = Gather<axis={axis}>(x, at)",
            each(
                X,
                *(
                    {"axis": a, "at": whole(*i)}
                    for a, i in (
                        (1, (3, 0)),
                        (2, (6, 5, 0)),
                        (1, (0, 2, 2, 23)),
                        (2, (1, 15)),
                        (3, (11, 3, 4)),
                    )
                ),
            ),
        ),
        Row(
            "Resize",
            'y = Resize<mode="{mode}", coordinate_transformation_mode="{how}"{more}>(x, none, scales)',
            each(
                [{"x": s, "none": np.zeros(0, np.float32)} for s in even],
                {
                    "mode": "nearest",
                    "how": "asymmetric",
                    "scales": np.array([1, 1, 2, 2], np.float32),
                    "more": ', nearest_mode="floor"',
                },
                {
                    "mode": "linear",
                    "how": "half_pixel",
                    "scales": np.array([1, 1, 2, 2], np.float32),
                    "more": "",
                },
                {
                    "mode": "linear",
                    "how": "align_corners",
                    "scales": np.array([1, 1, 1.5, 1.5], np.float32),
                    "more": "",
                },
                {
                    "mode": "cubic",
                    "how": "half_pixel",
                    "scales": np.array([1, 1, 2, 2], np.float32),
                    "more": "",
                },
                {
                    "mode": "linear",
                    "how": "half_pixel",
                    "scales": np.array([1, 1, 0.5, 0.5], np.float32),
                    "more": ", antialias=1",
                },
            ),
        ),
        Row(
            "Upsample",
            'y = Upsample<mode="{mode}">(x, scales)',
            each(
                [{"x": s} for s in even],
                {"mode": "nearest", "scales": np.array([1, 1, 2, 2], np.float32)},
                {"mode": "linear", "scales": np.array([1, 1, 2, 2], np.float32)},
            ),
            opset=9,
        ),
        Row(
            "ReverseSequence",
            "y = ReverseSequence<batch_axis=0, time_axis=1>(x, lengths)",
            [
                {"x": s, "lengths": whole(*n)}
                for s, n in (
                    ((1, 6, 8), (4,)),
                    ((2, 24), (10, 24)),
                    ((1, 9, 16), (9,)),
                    ((3, 5, 4), (1, 3, 5)),
                    ((2, 7, 6), (7, 2)),
                )
            ],
        ),
        Row(
            "CenterCropPad",
            "y = CenterCropPad<axes={axes}>(x, to)",
            [
                {"x": s, "axes": a, "to": whole(*t)}
                for s, a, t in (
                    ((1, 4, 6, 6), [2, 3], (4, 4)),
                    ((1, 4, 6, 6), [2, 3], (8, 4)),
                    ((2, 24), [1], (20,)),
                    ((1, 9, 16), [1, 2], (11, 10)),
                    ((1, 3, 5, 7), [3], (9,)),
                )
            ],
        ),
        Row(
            "Trilu",
            "y = Trilu<upper={upper}>(x)",
            each(
                [{"x": s} for s in ((6, 6), (1, 8, 8), (1, 4, 6, 6), (2, 5, 7), (9, 4))],
                {"upper": 0},
                {"upper": 1},
            ),
        ),
        Row(
            "Compress",
            "y = Compress<axis={axis}>(x, kept)",
            each(
                X,
                *(
                    {"axis": a, "kept": np.arange(n) % 3 != 1}
                    for a, n in ((1, 4), (3, 5), (1, 24), (2, 16), (3, 12))
                ),
            ),
        ),
    ]


def indices_rows() -> list[Row]:
    """That read or give indices."""
    table = [(6, 8), (9, 16), (12, 4), (5, 24), (30, 6)]
    some = [whole(2, 0, 5), whole(8, 8, 1, 3), whole(0, 11), whole(4, 1), whole(29, 3, 17, 11, 2)]
    rows = [(3,), (4,), (2, 2), (5,), (6,)]
    return [
        Row(
            "Gather, computed",
            "y = Gather(x, i)",
            [{"x": s, "i": Index(r, s[0])} for s, r in zip(table, rows, strict=True)],
        ),
        Row(
            "GatherElements",
            "y = GatherElements(x, i)",
            [{"x": s, "i": Index((3, s[1]), s[0])} for s in table],
        ),
        Row(
            "GatherElements, constant",
            "y = GatherElements(x, at)",
            [{"x": s, "at": np.random.default_rng(s).integers(0, s[0], (3, s[1]))} for s in table],
        ),
        Row("GatherND", "y = GatherND(x, i)", [{"x": s, "i": Index((4, 1), s[0])} for s in table]),
        Row(
            "GatherND, constant",
            "y = GatherND(x, at)",
            [{"x": s, "at": a[:, None]} for s, a in zip(table, some, strict=True)],
        ),
        Row(
            "ScatterElements",
            'y = ScatterElements<reduction="{how}">(x, i, u)',
            each(
                [{"x": s, "i": Index((3, s[1]), s[0]), "u": (3, s[1])} for s in table],
                {"how": "add"},
                {"how": "none"},
                {"how": "max"},
                {"how": "min"},
                {"how": "add"},
            ),
        ),
        Row(
            "ScatterElements, constant",
            "y = ScatterElements(x, at, u)",
            [
                {
                    "x": s,
                    "at": np.random.default_rng(s).permuted(np.tile(np.arange(s[0])[:, None], s[1]), axis=0)[
                        :3
                    ],
                    "u": (3, s[1]),
                }
                for s in table
            ],
        ),
        Row(
            "Scatter",
            "y = Scatter(x, i, u)",
            [{"x": s, "i": Index((3, s[1]), s[0]), "u": (3, s[1])} for s in table],
            opset=10,
        ),
        Row(
            "ScatterND",
            'y = ScatterND<reduction="{how}">(x, i, u)',
            each(
                [{"x": s, "i": Index((3, 1), s[0]), "u": (3, s[1])} for s in table],
                {"how": "add"},
                {"how": "none"},
                {"how": "max"},
                {"how": "none"},
                {"how": "add"},
            ),
        ),
        Row(
            "TensorScatter",
            "y = TensorScatter(x, u, at)",
            [{"x": (1, *s), "u": (1, 2, s[1]), "at": whole(2)} for s in table],
            opset=24,
        ),
        Row(
            "OneHot",
            "y = OneHot<axis={axis}>(i, depth, ends)",
            each(
                [
                    {"i": Index(s, d), "depth": np.array(d)}
                    for s, d in (((1, 6), 5), ((12,), 9), ((2, 8), 4), ((1, 3, 4), 7), ((24,), 3))
                ],
                {"axis": -1, "ends": np.array([-1, 2], np.float32)},
                {"axis": 0, "ends": np.array([0, 1], np.float32)},
            ),
            jumps=True,
        ),
        Row(
            "OneHot, positions",
            "p = ArgMax<axis=1, keepdims=0>(x) y = OneHot(p, depth, ends)",
            [
                {"x": (8, c), "depth": np.array(c), "ends": np.array([-1, 2], np.float32)}
                for c in (5, 9, 12, 4, 20)
            ],
            jumps=True,
        ),
        *(
            Row(
                name,
                f"y = {name}<axis={{axis}}, keepdims={{keep}}>(x)",
                each(X, {"axis": 1, "keep": 0}, {"axis": -1, "keep": 1}),
                jumps=True,
            )
            for name in ("ArgMax", "ArgMin")
        ),
        Row(
            "TopK",
            "y, t = TopK<axis={axis}, largest={largest}>(x, k)",
            each(
                X,
                {"axis": 1, "k": whole(2), "largest": 1},
                {"axis": -1, "k": whole(5), "largest": 0},
                {"axis": -1, "k": whole(10), "largest": 1},
            ),
            jumps=True,
        ),
        Row("Hardmax", "y = Hardmax<axis={axis}>(x)", each(X, {"axis": 1}, {"axis": -1}), jumps=True),
        Row(
            "Gather, positions",
            "p = ArgMax<axis=1, keepdims=0>(u) m = Mod(p, n) y = Gather(x, m)",
            [{"x": s, "u": (4, 20), "n": np.array(s[0])} for s in table],
            jumps=True,
        ),
        Row(
            "Div, integers",
            "p = ArgMax<axis=1, keepdims=0>(x) y = Div(p, n)",
            [{"x": (8, c), "n": np.array(n)} for c, n in ((12, 2), (20, 3), (32, 5), (40, 7), (9, 2))],
            jumps=True,
        ),
        Row(
            "BitShift",
            "p = ArgMax<axis=1, keepdims=0>(x) q = Cast<to=13>(p) "
            'r = BitShift<direction="RIGHT">(q, n) y = Cast<to=7>(r)',
            [
                {"x": (8, c), "n": np.array(n, np.uint64)}
                for c, n in ((12, 1), (20, 2), (32, 1), (40, 3), (9, 1))
            ],
            jumps=True,
        ),
    ]
