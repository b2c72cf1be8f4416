"""Single-operator networks of products and sampling."""

from __future__ import annotations

import numpy as np

from tests.ops.program_rows import (
    IMAGES,
    Row,
    each,
    normal,
    uniform,
    whole,
)


def products_rows() -> list[Row]:
    """Products and sampling."""
    pairs = [
        ((6, 16), (16, 8)),
        ((1, 6, 16), (1, 16, 8)),
        ((2, 4, 8), (2, 8, 5)),
        ((1, 2, 6, 8), (1, 2, 8, 6)),
        ((12, 24), (24, 3)),
    ]
    weights = [{"x": a, "w": normal(*b[-2:], scale=0.3)} for a, b in pairs]
    flat = [
        {"x": (m, k), "w": normal(k, n, scale=0.3), "b": normal(n, scale=0.3)}
        for m, k, n in ((1, 64, 32), (6, 16, 8), (4, 24, 10), (12, 8, 8), (3, 40, 5))
    ]
    return [
        Row("MatMul", "y = MatMul(x, w)", weights),
        Row("MatMul, computed", "y = MatMul(x, u)", [{"x": a, "u": b} for a, b in pairs]),
        Row("Gemm", "y = Gemm<alpha=0.5, beta=2.0>(x, w, b)", flat),
        Row(
            "Einsum",
            'y = Einsum<equation="{how}">(x, u)',
            [
                {"x": a, "u": b, "how": h}
                for a, b, h in (
                    ((6, 16), (16, 8), "ij,jk->ik"),
                    ((1, 6, 16), (1, 8, 16), "bik,bjk->bij"),
                    ((1, 4, 6, 6), (4, 6), "bcij,cj->bci"),
                    ((2, 5, 8), (2, 5, 8), "bij,bij->bij"),
                    ((6, 8), (5, 8), "ik,jk->ji"),
                )
            ],
        ),
        Row(
            "DFT",
            "y = DFT<onesided={one}>(x, none, at)",
            each(
                [
                    {"x": (1, n, 1), "none": whole(n).reshape(()), "at": np.array(1)}
                    for n in (16, 24, 32, 12, 20)
                ],
                {"one": 0},
                {"one": 1},
            ),
        ),
        Row(
            "STFT",
            "y = STFT<onesided=1>(x, step, window)",
            [
                {"x": (1, n, 1), "step": np.array(s), "window": np.hanning(w + 1)[:-1].astype(np.float32)}
                for n, s, w in ((64, 8, 16), (96, 16, 32), (48, 12, 12), (80, 20, 20), (64, 16, 8))
            ],
        ),
        Row(
            "AffineGrid",
            "y = AffineGrid(x, size)",
            [
                {"x": (1, 2, 3), "size": whole(1, 2, h, w)}
                for h, w in ((4, 4), (6, 5), (3, 8), (7, 7), (2, 9))
            ],
        ),
        Row(
            "GridSample",
            'y = GridSample<mode="{mode}", padding_mode="{pad}">(x, u)',
            each(
                [
                    {"x": (1, c, h, w), "u": (1, a, b, 2)}
                    for c, h, w, a, b in (
                        (2, 6, 6, 4, 4),
                        (3, 5, 7, 5, 5),
                        (4, 4, 4, 6, 3),
                        (1, 8, 8, 4, 8),
                        (2, 6, 4, 3, 3),
                    )
                ],
                {"mode": "linear", "pad": "zeros"},
                {"mode": "linear", "pad": "border"},
                {"mode": "linear", "pad": "reflection"},
            ),
            {"u": "unit"},
        ),
        Row(
            "GridSample, nearest",
            'y = GridSample<mode="nearest">(x, u)',
            [
                {"x": (1, c, h, w), "u": (1, a, b, 2)}
                for c, h, w, a, b in (
                    (2, 6, 6, 4, 4),
                    (3, 5, 7, 5, 5),
                    (4, 4, 4, 6, 3),
                    (1, 8, 8, 4, 8),
                    (2, 6, 4, 3, 3),
                )
            ],
            {"u": "unit"},
            jumps=True,
        ),
        Row(
            "GridSample, constant",
            'y = GridSample<mode="{mode}">(x, grid)',
            each(
                [{"x": s, "grid": uniform(-0.9, 0.9, s[0], 5, 5, 2)} for s in IMAGES],
                {"mode": "linear"},
                {"mode": "cubic"},
            ),
        ),
        Row(
            "Col2Im",
            "y = Col2Im<strides=[2,2]>(x, image, block)",
            [
                {"x": (1, c * 4, h * w // 4), "image": whole(h, w), "block": whole(2, 2)}
                for c, h, w in ((2, 4, 4), (1, 6, 8), (3, 4, 6), (4, 8, 4), (2, 2, 8))
            ],
        ),
        Row(
            "RoiAlign",
            "y = RoiAlign<output_height=3, output_width=3, sampling_ratio=2>(x, boxes, batch)",
            [
                {
                    "x": (1, c, h, w),
                    "boxes": np.array([[0.5, 0.5, h - 1, w - 1], [1, 0, 4, 3]], np.float32),
                    "batch": whole(0, 0),
                }
                for c, h, w in ((2, 6, 6), (3, 7, 5), (1, 8, 8), (4, 5, 5), (2, 9, 6))
            ],
        ),
    ]
