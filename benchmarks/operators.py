"""Where single operators run: a model of one node each, placed on shipped targets.

    python benchmarks/operators.py [NAME ...]

One model a form: indices that are computed or come from outside, grids and boxes that are computed, integer
arithmetic on positions, loops, and onnxruntime's fused operators (com.microsoft). `NPU`: every node but Casts
and moves of integers at the ends; else the first node that stays on the host, with the reason. Writes
its study when no names are given.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
import study
from onnx import parser
from shapes import target_named

from npuflow.base.errors import NpuflowError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import Hardware

TARGETS = ("edge-4t", "bm1684x")
MOVES = ("slice", "reshape", "transpose")
MICROSOFT = "com.microsoft"
Form = tuple[str, str]  # inputs and outputs; nodes


def normal(*shape: int) -> np.ndarray:
    return (np.random.default_rng(len(shape)).normal(size=shape) * 0.2).astype(np.float32)


def codes(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).integers(-9, 9, shape).astype(np.int8)


WEIGHTS = {
    "k": np.array([3], np.int64),
    "one": np.array(1, np.int64),
    "two": np.array(2, np.int64),
    "shift": np.array([1], np.uint64),
    "lengths": np.array([4, 4], np.int32),
    "image": np.array([4, 4], np.int64),
    "block": np.array([2, 2], np.int64),
    "size": np.array([1, 2, 4, 4], np.int64),
    "batch": np.zeros(2, np.int64),
    "filter": normal(4, 2, 3, 3),
    "bias4": normal(4),
    "w": normal(8, 8),
    "b": normal(8),
    "gamma": normal(8) + 1,
    "words": normal(30, 8),
    "places": normal(6, 8),
    "kinds": normal(2, 8),
    "w3": normal(8, 24),
    "b3": normal(24),
    "s": np.array(0.05, np.float32),
    "z": np.array(0, np.int8),
    "wq": codes(8, 8),
    "fq": codes(4, 2, 3, 3),
    "steps": np.array(3, np.int64),
    "many": np.array(5000, np.int64),
    "yes": np.array(True),
    "lw": normal(1, 16, 8),
    "lr": normal(1, 16, 4),
    "packed": np.random.default_rng(4).integers(0, 255, (8, 1, 16)).astype(np.uint8),
    "scales": normal(8) + 1,
    "half": np.array(0.5, np.float32),
    "cos": normal(6, 2),
    "sin": normal(6, 2),
    "ids4": np.arange(4, dtype=np.int64)[None],
}
IN = "float[6,8] x, int64[3] i"
SCATTER = "float[6,8] x, int64[3,8] i, float[3,8] u => float[6,8] y"
SCATTER_ND = "float[6,8] x, int64[3,1] i, float[3,8] u => float[6,8] y"
GRID = "float[1,2,6,6] x, float[1,4,4,2] g => float[1,2,4,4] y"
ROWS = "float[1,4,8] x => float[1,4,8] y"
IMAGE = "float[1,2,6,6] x => float[1,4,6,6] y"
BODY = "(int64 n, bool c, float[2,3] s) => (bool d, float[2,3] t) {{ d = Identity(c) t = {}(s) }}"
QUANT, REAL = "q = QuantizeLinear(x, s, z)", "y = DequantizeLinear(c, s, z)"
PICKED = "float[6,8] x, float[6,40] s => float[6,8] y"
AT = "p = ArgMax<axis=1, keepdims=0>(s) m = Mod(p, n6)"

FORMS: dict[str, Form] = {
    "Gather, indices from outside": (f"{IN} => float[3,8] y", "y = Gather(x, i)"),
    "GatherElements": ("float[6,8] x, int64[3,8] i => float[3,8] y", "y = GatherElements(x, i)"),
    "GatherND, 1 dimension": ("float[6,8] x, int64[3,1] i => float[3,8] y", "y = GatherND(x, i)"),
    "GatherND, 2 dimensions": ("float[6,5,4] x, int64[3,2] i => float[3,4] y", "y = GatherND(x, i)"),
    "GatherND, batch_dims": (
        "float[2,5,4] x, int64[2,3,1] i => float[2,3,4] y",
        "y = GatherND<batch_dims=1>(x, i)",
    ),
    **{
        f"{op}, {form}": (signature, f'y = {op}<reduction="{form}">(x, i, u)')
        for op, signature in (("ScatterElements", SCATTER), ("ScatterND", SCATTER_ND))
        for form in ("none", "add", "max", "min", "mul")
    },
    "ScatterND, 2 dimensions": (
        "float[6,5,4] x, int64[3,2] i, float[3,4] u => float[6,5,4] y",
        "y = ScatterND(x, i, u)",
    ),
    **{
        f"GridSample, {mode}, {padding}": (
            GRID,
            f'y = GridSample<mode="{mode}", padding_mode="{padding}">(x, g)',
        )
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
    },
    "AffineGrid and GridSample": (
        "float[1,2,4,4] x, float[1,2,3] t => float[1,2,4,4] y",
        "g = AffineGrid(t, size) y = GridSample(x, g)",
    ),
    "RoiAlign": (
        "float[1,2,6,6] x, float[2,4] r => float[2,2,2,2] y",
        "y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, batch)",
    ),
    "RoiAlign, adaptive samples": (
        "float[1,2,6,6] x, float[2,4] r => float[2,2,2,2] y",
        "y = RoiAlign<output_height=2, output_width=2>(x, r, batch)",
    ),
    "DeformConv": (
        "float[1,2,6,6] x, float[1,18,6,6] o => float[1,4,6,6] y",
        "y = DeformConv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, filter, o, bias4)",
    ),
    "DeformConv, mask": (
        "float[1,2,6,6] x, float[1,18,6,6] o, float[1,9,6,6] m => float[1,4,6,6] y",
        "y = DeformConv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, filter, o, bias4, m)",
    ),
    "positions + 1": (PICKED, f"{AT} t = Sub(m, one) y = Gather(x, t)"),
    "positions * 2 + 1": (
        "float[6,8] x, float[6,3] s => float[6,8] y",
        "p = ArgMax<axis=1, keepdims=0>(s) d = Mul(p, two) e = Add(d, one) y = Gather(x, e)",
    ),
    "positions / 2": (
        "float[6,8] x, float[6,12] s => float[6,8] y",
        "p = ArgMax<axis=1, keepdims=0>(s) d = Div(p, two) y = Gather(x, d)",
    ),
    "positions shifted": (
        "float[6,8] x, float[6,12] s => float[6,8] y",
        (
            'p = ArgMax<axis=1, keepdims=0>(s) q = Cast<to=13>(p) d = BitShift<direction="RIGHT">(q, shift) '
            "e = Cast<to=7>(d) y = Gather(x, e)"
        ),
    ),
    "Mod, fmod": ("float[6,8] x => float[6,8] y", "y = Mod<fmod=1>(x, half)"),
    "MaxUnpool after MaxPool": (
        "float[1,2,4,4] x => float[1,2,4,4] y",
        (
            "p, q = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) "
            "y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(p, q)"
        ),
    ),
    "Col2Im": ("float[1,8,4] x => float[1,2,4,4] y", "y = Col2Im<strides=[2,2]>(x, image, block)"),
    "Loop of 3 steps": ("float[2,3] x => float[2,3] y", "y = Loop(steps, yes, x) <body = b {BODY}>"),
    "Loop of 5000 steps": ("float[2,3] x => float[2,3] y", "y = Loop(many, yes, x) <body = b {BODY}>"),
    "LSTM": (
        "float[5,2,8] x => float[5,1,2,4] y",
        "y, h, c = LSTM<hidden_size=4>(x, lw, lr)",
    ),
    "LSTM, short sequences": (
        "float[5,2,8] x => float[5,1,2,4] y",
        'y, h, c = LSTM<hidden_size=4>(x, lw, lr, "", lengths)',
    ),
    "LSTM, 300 steps": (
        "float[300,2,8] x => float[300,1,2,4] y",
        "y, h, c = LSTM<hidden_size=4>(x, lw, lr)",
    ),
}
FUSED: dict[str, Form] = {
    "FusedConv": (
        IMAGE,
        'y = M.FusedConv<kernel_shape=[3,3], pads=[1,1,1,1], activation="Relu">(x, filter, bias4)',
    ),
    "FusedGemm": ("float[4,8] x => float[4,8] y", 'y = M.FusedGemm<activation="Relu">(x, w, b)'),
    "FusedMatMul": (
        "float[2,4,8] x, float[2,4,8] v => float[2,4,4] y",
        "y = M.FusedMatMul<transB=1, alpha=0.5>(x, v)",
    ),
    "Gelu": (ROWS, "y = M.Gelu(x)"),
    "FastGelu": (ROWS, "y = M.FastGelu(x, b)"),
    "BiasGelu": (ROWS, "y = M.BiasGelu(x, b)"),
    "QuickGelu": (ROWS, "y = M.QuickGelu<alpha=1.7>(x)"),
    "BiasSoftmax": (
        "float[1,4,8] x, float[1,4,8] v => float[1,4,8] y",
        "y = M.BiasSoftmax<axis=2, is_inner_broadcast=0>(x, v)",
    ),
    "BiasAdd": (
        "float[1,4,8] x, float[1,4,8] v => float[1,4,8] y",
        "y = M.BiasAdd(x, b, v)",
    ),
    "BiasSplitGelu": ("float[1,4,8] x => float[1,4,4] y", "y = M.BiasSplitGelu(x, b)"),
    "BiasDropout": (ROWS, "y = M.BiasDropout(x, b)"),
    "SkipLayerNormalization": (
        "float[1,4,8] x, float[1,4,8] v => float[1,4,8] y",
        "y = M.SkipLayerNormalization(x, v, gamma, b)",
    ),
    "SkipSimplifiedLayerNormalization": (
        "float[1,4,8] x, float[1,4,8] v => float[1,4,8] y",
        "y = M.SkipSimplifiedLayerNormalization(x, v, gamma)",
    ),
    "EmbedLayerNormalization": (
        "int32[1,4] i, int32[1,4] t => float[1,4,8] y, int32[1] m",
        "y, m = M.EmbedLayerNormalization(i, t, words, places, kinds, gamma, b)",
    ),
    "Attention": (ROWS, "y = M.Attention<num_heads=2>(x, w3, b3)"),
    "MultiHeadAttention": (
        "float[1,4,8] x, float[1,4,8] v => float[1,4,8] y",
        "y = M.MultiHeadAttention<num_heads=2>(x, v, v)",
    ),
    "GroupQueryAttention": (
        "float[1,4,8] x, float[1,4,4] v, int32[1,1] n => float[1,4,8] y, float[1,1,4,4] k, float[1,1,4,4] l",
        'y, k, l = M.GroupQueryAttention<num_heads=2, kv_num_heads=1>(x, v, v, "", "", n, total)',
    ),
    "RotaryEmbedding": (
        "float[1,2,4,4] x => float[1,2,4,4] y",
        "y = M.RotaryEmbedding(x, ids4, cos, sin)",
    ),
    "GroupNorm": (
        "float[1,6,6,8] x => float[1,6,6,8] y",
        "y = M.GroupNorm<groups=2, activation=1>(x, gamma, b)",
    ),
    "NhwcConv": (
        "float[1,6,6,2] x => float[1,6,6,4] y",
        "y = M.NhwcConv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, filter_nhwc, bias4)",
    ),
    "MatMulNBits": (
        "float[4,16] x => float[4,8] y",
        "y = M.MatMulNBits<K=16, N=8, bits=8, block_size=16>(x, packed, scales)",
    ),
    "DynamicQuantizeMatMul": (
        "float[4,8] x => float[4,8] y",
        "y = M.DynamicQuantizeMatMul(x, wq, s, z)",
    ),
    "QLinearConv": (
        IMAGE,
        (
            "q = QuantizeLinear(x, s, z) c = QLinearConv<kernel_shape=[3,3], pads=[1,1,1,1]>"
            "(q, s, z, fq, s, z, s, z) y = DequantizeLinear(c, s, z)"
        ),
    ),
    "QLinearMatMul": (
        "float[4,8] x => float[4,8] y",
        f"{QUANT} c = QLinearMatMul(q, s, z, wq, s, z, s, z) {REAL}",
    ),
    **{
        f"QLinear{op}": (
            "float[4,8] x => float[4,8] y",
            f"q = QuantizeLinear(x, s, z) c = M.QLinear{op}({given}) y = DequantizeLinear(c, s, z)",
        )
        for op, given in (
            ("Add", "q, s, z, q, s, z, s, z"),
            ("Mul", "q, s, z, q, s, z, s, z"),
            ("Sigmoid", "q, s, z, s, z"),
            ("LeakyRelu", "q, s, z, s, z"),

        )
    },
    "QLinearConcat": (
        "float[4,8] x => float[4,16] y",
        f"{QUANT} c = M.QLinearConcat<axis=1>(s, z, q, s, z, q, s, z) {REAL}",
    ),
    "QLinearSoftmax": (
        "float[4,8] x => float[4,8] y",
        (
            "q = QuantizeLinear(x, s, z) c = M.QLinearSoftmax<axis=1, opset=13>(q, s, z, s, z) "
            "y = DequantizeLinear(c, s, z)"
        ),
    ),
    "QLinearGlobalAveragePool": (
        "float[1,2,6,6] x => float[1,2,1,1] y",
        (
            "q = QuantizeLinear(x, s, z) c = M.QLinearGlobalAveragePool(q, s, z, s, z) "
            "y = DequantizeLinear(c, s, z)"
        ),
    ),
    "QLinearAveragePool": (
        "float[1,2,6,6] x => float[1,2,3,3] y",
        (
            "q = QuantizeLinear(x, s, z) c = M.QLinearAveragePool<kernel_shape=[2,2], strides=[2,2]>"
            "(q, s, z, s, z) y = DequantizeLinear(c, s, z)"
        ),
    ),
    "QGemm": (
        "float[4,8] x => float[4,8] y",
        'q = QuantizeLinear(x, s, z) c = M.QGemm(q, s, z, wq, s, z, "", s, z) y = DequantizeLinear(c, s, z)',
    ),
}
WEIGHTS.update(
    n6=np.array(6, np.int64),
    total=np.array(4, np.int32),
    filter_nhwc=normal(4, 3, 3, 2),
)


def model(form: Form) -> bytes:
    """The one-operator model with the constants that its nodes name."""
    signature, body = form
    inputs, outputs = signature.split("=>")
    body = body.replace("{BODY}", BODY.format("Relu").replace("{{", "{").replace("}}", "}"))
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20, "{MICROSOFT}" : 1]> g ({inputs}) => ({outputs}) '
        f"{{ {body.replace('M.', MICROSOFT + '.')} }}"
    )
    read = {name for node in proto.graph.node for name in node.input} - {i.name for i in proto.graph.input}
    for name in sorted(read & set(WEIGHTS)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS[name], name))
    return bytes(proto.SerializeToString())


def verdict(form: Form, target_name: str) -> str:
    """NPU, or what stays and why."""
    target = target_named(target_name)
    try:
        graph = FRONTENDS["onnx"]().read(model(form), Bindings()).graph
        hardware = Hardware.of(target.compute, target.memory, target.dma)
        done = rewrite(graph, hardware=hardware)
    except NpuflowError as fault:
        return f"refused: {fault.message}"
    placed = place(done.graph, target).places
    ends = ("dtype int32", "dtype int64")  # of indices from outside, before they are cast
    away = [p for p in placed if not (p.on_npu or p.op == "Cast" or (p.op in MOVES and p.reason in ends))]
    return f"host: {away[0].op}: {away[0].reason}" if away else "NPU"


def main() -> None:
    forms = {**FORMS, **FUSED}
    wanted = sys.argv[1:]
    rows = []
    for name, form in forms.items():
        if wanted and not any(w.lower() in name.lower() for w in wanted):
            continue
        found = [verdict(form, target) for target in TARGETS]
        rows.append((name, *found))
        print(f"{name:40} " + (found[0] if len(set(found)) == 1 else " / ".join(found)), flush=True)
    if wanted:
        return
    whole = sum(set(found) == {"NPU"} for _, *found in rows)
    lines = [
        "# Where single operators run",
        "",
        *str(__doc__).strip().splitlines()[:1],
        "",
        f"{whole} of {len(rows)} forms run on the NPU of both targets (`python benchmarks/operators.py`).",
        "",
        f"| operator | {' | '.join(TARGETS)} |",
        f"| --- |{' --- |' * len(TARGETS)}",
        *(f"| {' | '.join((name, *found))} |" for name, *found in rows),
    ]
    study.write(__file__, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
