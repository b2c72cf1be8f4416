"""Single-operator networks of windows, normalisations, recurrent layers and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.program_rows import (
    IMAGE,
    IMAGES,
    ROWS,
    Row,
    each,
    normal,
    uniform,
)


def windows_rows() -> list[Row]:
    """With a window over images."""
    kinds = [
        "kernel_shape=[2,2], strides=[2,2]",
        "kernel_shape=[3,3], pads=[1,1,1,1]",
        "kernel_shape=[2,3], strides=[1,2]",
        "kernel_shape=[3,3], strides=[2,2], pads=[0,0,1,1]",
        "kernel_shape=[1,4], strides=[1,4]",
    ]
    windows = each(IMAGE, *({"window": kind} for kind in kinds))
    weights = [
        {"w": normal(8, 4, 3, 3, scale=0.2), "b": normal(8, scale=0.2), "how": "pads=[1,1,1,1]"},
        {"w": normal(6, 3, 3, 3, scale=0.2), "b": normal(6), "how": "strides=[2,2], pads=[1,1,1,1]"},
        {"w": normal(4, 1, 3, 3, scale=0.4), "b": normal(4), "how": "group=4"},
        {"w": normal(16, 8, 1, 1, scale=0.4), "b": normal(16), "how": "strides=[1,1]"},
        {"w": normal(6, 3, 3, 3, scale=0.2), "b": normal(6), "how": "group=2, dilations=[1,2]"},
    ]
    turned = [
        {"w": normal(4, 6, 2, 2, scale=0.3), "b": normal(6), "how": "strides=[2,2]"},
        {"w": normal(3, 4, 3, 3, scale=0.3), "b": normal(4), "how": "strides=[2,2], pads=[1,1,1,1]"},
        {"w": normal(4, 4, 3, 3, scale=0.3), "b": normal(4), "how": "pads=[1,1,1,1]"},
        {"w": normal(8, 1, 4, 4, scale=0.3), "b": normal(8), "how": "group=8, strides=[2,2]"},
        {"w": normal(6, 6, 1, 3, scale=0.3), "b": normal(6), "how": "strides=[1,3]"},
    ]
    moved = {"w": normal(6, 4, 3, 3, scale=0.2), "b": normal(6)}
    return [
        Row("AveragePool", "y = AveragePool<{window}>(x)", windows),
        Row("MaxPool", "y = MaxPool<{window}>(x)", windows),
        Row("LpPool", "y = LpPool<{window}, p=2>(x)", windows),
        Row(
            "GlobalAveragePool",
            "y = GlobalAveragePool(x)",
            each(IMAGE, *({"x": (1, c, 6, 5)} for c in (16, 24, 9, 32, 12))),
        ),
        Row(
            "GlobalMaxPool",
            "y = GlobalMaxPool(x)",
            each(IMAGE, *({"x": (1, c, 6, 5)} for c in (16, 24, 9, 32, 12))),
        ),
        Row(
            "GlobalLpPool",
            "y = GlobalLpPool<p=2>(x)",
            each(IMAGE, *({"x": (1, c, 6, 5)} for c in (16, 24, 9, 32, 12))),
        ),
        Row("LRN", "y = LRN<size={size}, alpha=0.1, bias=1.0>(x)", each(IMAGE, {"size": 3}, {"size": 3})),
        Row("Conv", "y = Conv<{how}>(x, w, b)", each(IMAGE, *weights)),
        Row("ConvTranspose", "y = ConvTranspose<{how}>(x, w, b)", each(IMAGE, *turned)),
        Row(
            "DeformConv",
            "y = DeformConv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, u, b)",
            [
                {"x": (1, 4, h, w), "u": (1, 18, h, w), **moved}
                for h, w in ((6, 6), (5, 7), (4, 4), (8, 3), (3, 9))
            ],
            {"u": "unit"},
        ),
        Row(
            "MaxUnpool",
            "t, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) "
            "y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(t, i)",
            [{"x": s} for s in ((1, 2, 4, 4), (1, 4, 6, 6), (1, 1, 8, 4), (1, 3, 4, 10), (1, 8, 2, 6))],
            jumps=True,
        ),
    ]


def norms_rows() -> list[Row]:
    """Normalisations."""
    groups = [{"n": 2}, {"n": 3}, {"n": 4}, {"n": 4}, {"n": 1}]
    channels = [{"g": uniform(0.5, 1.5, s[1]), "b": normal(s[1], scale=0.3)} for s in IMAGES]
    wide = [{"g": uniform(0.5, 1.5, r["x"][-1]), "b": normal(r["x"][-1], scale=0.3)} for r in ROWS]
    moments = [{"m": normal(s[1], scale=0.2), "s": uniform(0.6, 1.4, s[1])} for s in IMAGES]
    skips = [
        {"x": s, "u": s, "g": uniform(0.5, 1.5, s[-1])}
        for s in ((1, 6, 16), (2, 5, 32), (1, 12, 24), (2, 5, 8), (1, 7, 12))
    ]
    return [
        Row(
            "BatchNormalization",
            "y = BatchNormalization(x, g, b, m, s)",
            each(each(IMAGE, *channels), *moments),
        ),
        Row("InstanceNormalization", "y = InstanceNormalization(x, g, b)", each(IMAGE, *channels)),
        Row(
            "GroupNormalization",
            "y = GroupNormalization<num_groups={n}>(x, g, b)",
            each(each(IMAGE, *channels), *groups),
            opset=21,
        ),
        Row("LayerNormalization", "y = LayerNormalization(x, g, b)", each(ROWS, *wide)),
        Row("RMSNormalization", "y = RMSNormalization(x, g)", each(ROWS, *wide), opset=23),
        Row("SimplifiedLayerNormalization", "y = SimplifiedLayerNormalization(x, g)", each(ROWS, *wide)),
        Row(
            "SkipSimplifiedLayerNormalization",
            "y = com.microsoft.SkipSimplifiedLayerNormalization(x, u, g)",
            skips,
        ),
    ]


def recurrent_rows() -> list[Row]:
    """Recurrent layers."""

    def cell(gates: int, seq: int, batch: int, size: int, hidden: int) -> dict[str, Any]:
        return {
            "x": (seq, batch, size),
            "w": normal(1, gates * hidden, size, scale=0.3),
            "r": normal(1, gates * hidden, hidden, scale=0.3),
            "b": normal(1, 2 * gates * hidden, scale=0.1),
            "h": hidden,
        }

    sizes = ((5, 1, 8, 6), (4, 2, 6, 4), (7, 1, 4, 8), (3, 3, 8, 4), (6, 1, 12, 5))
    return [
        Row(name, f"y = {name}<hidden_size={{h}}>(x, w, r, b)", [cell(gates, *s) for s in sizes])
        for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
    ]


def attention_rows() -> list[Row]:
    """Attention and what belongs to it."""
    rows = [(1, 4, 8), (1, 6, 16), (2, 5, 8), (1, 9, 12), (1, 3, 24)]
    heads = [(1, 2, 4, 8), (1, 1, 6, 16), (2, 2, 5, 4), (1, 3, 9, 4), (1, 4, 3, 6)]
    return [
        Row("Attention", "y = Attention(x, u, v)", [{"x": s, "u": s, "v": s} for s in heads], opset=23),
        Row(
            "Attention, fused",
            "y = com.microsoft.Attention<num_heads=2>(x, w, b)",
            [
                {"x": s, "w": normal(s[2], 3 * s[2], scale=0.4), "b": normal(3 * s[2], scale=0.1)}
                for s in rows
            ],
        ),
        Row(
            "MultiHeadAttention",
            "y = com.microsoft.MultiHeadAttention<num_heads=2>(x, u, v)",
            [{"x": s, "u": s, "v": s} for s in rows],
        ),
        Row(
            "GroupQueryAttention",
            'y, t, q = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=1>'
            '(x, u, v, "", "", last, total)',
            [
                {
                    "x": (1, n, 2 * d),
                    "u": (1, n, d),
                    "v": (1, n, d),
                    "last": np.array([[n - 1]], np.int32),
                    "total": np.array(n, np.int32),
                }
                for n, d in ((4, 8), (6, 8), (5, 16), (3, 8), (8, 24))
            ],
        ),
        Row(
            "RotaryEmbedding",
            "y = RotaryEmbedding(x, cosines, sines, at)",
            [
                {
                    "x": s,
                    "cosines": np.cos(uniform(0, 3, s[2], s[3] // 2)),
                    "sines": np.sin(uniform(0, 3, s[2], s[3] // 2)),
                    "at": np.tile(np.arange(s[2]), (s[0], 1)),
                }
                for s in heads
            ],
            opset=23,
        ),
    ]
