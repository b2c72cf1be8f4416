"""onnxruntime's fused operators: read as the standard ones where they are no more, else on
the host with their true cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from npuflow.stages.simulate import Simulation
from tests.frontends.building import built, model

RNG = np.random.default_rng(0)
SHAPES = {
    "k": (4, 3, 3, 3),
    "b": (4,),
    "z": (1, 4, 8, 8),
    "g": (16,),
    "h": (16,),
    "w": (24, 16),
    "v": (1, 16, 7),
    "m": (16, 24),
    "n": (24,),
    "qkv": (16, 48),
    "qkvb": (48,),
}
WEIGHTS = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
PICTURE, ROWS = "float[1,3,8,8] x", "float[1,5,16] x"
FLAT = "a = Constant<value=int64[2] {5, 16}>() f = Reshape(x, a)"
SAME = "pads=[1,1,1,1]"
CONV, MAT = 8 * 8 * 4 * 27, 5 * 16 * 24
# input, call, operators, MACs on the NPU and in all
CASES: dict[str, tuple[str, str, list[str], int, int]] = {
    **{
        f"conv {a}": (
            PICTURE,
            f'y = com.microsoft.FusedConv<{SAME}, activation="{a}">(x, k, b)',
            ["conv", *more],
            CONV,
            CONV,
        )
        for a, more in (("Relu", []), ("Tanh", ["tanh"]), ("Sigmoid", ["sigmoid"]))
    },
    "conv leaky": (
        PICTURE,
        'y = com.microsoft.FusedConv<pads=[1,1,1,1], activation="LeakyRelu", activation_params=[0.2]>(x, k)',
        ["conv", "leakyrelu"],
        CONV,
        CONV,
    ),
    "conv clip": (
        PICTURE,
        ('y = com.microsoft.FusedConv<pads=[1,1,1,1], activation="Clip", activation_params=[0.0,6.0]>(x, k, '
        'b)'),
        ["conv"],
        CONV,
        CONV,
    ),
    "conv hard": (
        PICTURE,
        'y = com.microsoft.FusedConv<activation="HardSigmoid", activation_params=[0.2,0.4]>(x, k)',
        ["conv", "hardsigmoid"],
        6 * 6 * 4 * 27,
        6 * 6 * 4 * 27,
    ),
    "conv sum": (
        PICTURE,
        f'y = com.microsoft.FusedConv<{SAME}, activation="Relu">(x, k, b, z)',
        ["conv", "add"],
        CONV,
        CONV,
    ),
    "gelu": (ROWS, "y = com.microsoft.Gelu(x)", ["gelu"], 0, 0),
    "fast": (ROWS, "y = com.microsoft.FastGelu(x)", ["gelu"], 0, 0),
    "fast bias": (ROWS, "y = com.microsoft.FastGelu(x, g)", ["add", "gelu"], 0, 0),
    "bias gelu": (ROWS, "y = com.microsoft.BiasGelu(x, g)", ["add", "gelu"], 0, 0),
    "quick": (ROWS, "y = com.microsoft.QuickGelu(x)", ["silu"], 0, 0),
    "norm": (
        ROWS,
        "t = Tanh(x) y,,,q = com.microsoft.SkipLayerNormalization<epsilon=0.1>(x, t, g, h, h)",
        ["tanh", "add", "add", "reducemean", "sub", "mul", "reducemean", "add", "sqrt", "div", "mul", "add"],
        0,
        0,
    ),
    "matmul": (ROWS, "y = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, w)", ["matmul", "mul"], MAT, MAT),
    "matmul both": (
        ROWS,
        "t = Transpose<perm=[0,2,1]>(x) y = com.microsoft.FusedMatMul<transA=1>(t, v)",
        ["matmul"],
        5 * 16 * 7,
        5 * 16 * 7,
    ),
    "scores": (
        ROWS,
        "y = com.microsoft.FusedMatMul<transB=1, alpha=0.25>(x, x)",
        ["transpose", "matmul", "mul"],
        400,
        400,
    ),
    "batches": (
        ROWS,
        "y = com.microsoft.FusedMatMul<transBatchA=1, transBatchB=1, transA=1>(x, x)",
        ["host:fusedmatmul"],
        0,
        16 * 16 * 5,
    ),
    "gemm": (
        ROWS,
        f'{FLAT} y = com.microsoft.FusedGemm<activation="LeakyRelu", activation_alpha=0.3>(f, m, n)',
        ["reshape", "gemm", "leakyrelu"],
        MAT,
        MAT,
    ),
    "attention": (
        ROWS,
        "y = com.microsoft.Attention<num_heads=2>(x, qkv, qkvb)",
        [
            "reshape",
            "gemm",
            "reshape",
            "transpose",
            "gemm",
            "reshape",
            "gemm",
            "reshape",
            "transpose",
            "transpose",
            "matmul",
            "softmax",
            "matmul",
            "transpose",
            "reshape",
        ],
        5 * 16 * 48 + 5 * 5 * 32,
        5 * 16 * 48 + 5 * 5 * 32,
    ),
    "heads": (
        ROWS,
        "y = com.microsoft.MultiHeadAttention<num_heads=2>(x, x, x)",
        ["reshape", "transpose", "mul", "transpose", "matmul", "softmax", "matmul", "transpose", "reshape"],
        5 * 5 * 32,
        5 * 5 * 32,
    ),
    "einsum": (ROWS, 'y = Einsum<equation="bij,jk->bik">(x, m)', ["reshape", "matmul", "reshape"], MAT, MAT),
}


def case(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    source, call, *_ = CASES[name]
    used = {
        k: v
        for k, v in WEIGHTS.items()
        if any(k in part.replace(")", ",").replace("(", ",").replace(" ", "").split(",") for part in [call])
    }
    outputs = (
        "float[a,b,c] y, float[a,b,c] q"
        if ",,,q" in call
        else "float[a,b] y"
        if "f =" in call
        else "float[a,b,c] y"
    )
    outputs = "float[a,b,c,d] y" if source == PICTURE else outputs
    proto = model(f"g ({source}) => ({outputs}) {{ {call} }}", 17, used, ', "com.microsoft" : 1')
    shape = (1, 3, 8, 8) if source == PICTURE else (1, 5, 16)
    return proto, {"x": RNG.normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize("name", CASES)
def test_fused_operators_are_what_they_stand_for(name: str) -> None:
    proto, feeds = case(name)
    data = proto.SerializeToString()
    reading = FRONTENDS["onnx"]().read(data, Bindings())
    graph = rewrite(reading.graph).graph
    for mine, theirs in zip(
        run(export_model(graph), feeds, graph.outputs), run(data, feeds, graph.outputs), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    _, _, wanted, on_npu, total = CASES[name]
    placed = place(graph, Target())
    assert [kind(n) for n in graph.nodes] == wanted and (placed.npu_macs, placed.total_macs) == (
        on_npu,
        total,
    )


@pytest.mark.slow
def test_a_network_of_fused_operators_builds(tmp_path: Path) -> None:
    text = """g (float[1,3,8,8] x) => (float[1,4,6] y) {
        c = com.microsoft.FusedConv<pads=[1,1,1,1], activation="Relu">(x, k, b) s = Constant<value=int64[3]
        {1, 4, 64}>()
        r = Reshape(c, s) e = com.microsoft.FusedMatMul<alpha=0.2>(r, d) y = com.microsoft.FastGelu(e) }"""
    weights = {"k": WEIGHTS["k"], "b": WEIGHTS["b"], "d": RNG.normal(size=(64, 6)).astype(np.float32)}
    data = {"x": RNG.normal(size=(8, 3, 8, 8)).astype(np.float32)}
    done = built(tmp_path, model(text, 17, weights, ', "com.microsoft" : 1'), data)
    assert done.artifact("simulate", Simulation).summary()["different"] == 0
