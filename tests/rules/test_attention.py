"""Attention in its forms, spelled as products and Softmax: onnxruntime's results, whole on the NPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import pytest

from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import host_session, interpret
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.onnx_cases import case_named, judge, through
from tests.networks.onnx_text import TARGET, normal, on_npu, ops, refused, rewritten
from tests.tiers import often

FLOAT = onnx.TensorProto.FLOAT


def attention(
    shapes: dict[str, tuple[int, ...]],
    result: tuple[int, ...],
    op: str = "Attention",
    domain: str = "",
    weights: dict[str, np.ndarray] | None = None,
    names: tuple[str, ...] = ("q", "k", "v"),
    **attributes: object,
) -> bytes:
    """A model of one node; `names` of its inputs, of which `weights` are constants."""
    make = onnx.helper
    node = make.make_node(op, list(names), ["y"], "attend", domain=domain, **attributes)
    inputs = [make.make_tensor_value_info(n, FLOAT, s) for n, s in shapes.items()]
    stored = [onnx.numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = make.make_graph([node], "g", inputs, [make.make_tensor_value_info("y", FLOAT, result)], stored)
    opsets = [make.make_opsetid("", 24), make.make_opsetid("com.microsoft", 1)]
    return bytes(make.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


FOUR = {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 6)}
THREE = {"q": (2, 3, 8), "k": (2, 5, 8), "v": (2, 5, 8)}
TRUTH = np.array([[True, False, True, True, False]] * 2 + [[False, True, True, True, True]])
STANDARD = (
    (attention(FOUR, (1, 2, 3, 6)), "plain"),
    (attention(THREE, (2, 3, 8), q_num_heads=2, kv_num_heads=2, scale=0.3), "three dimensions"),
    (
        attention(
            {"q": (2, 3, 16), "k": (2, 5, 8), "v": (2, 5, 8)}, (2, 3, 16), q_num_heads=4, kv_num_heads=2
        ),
        "grouped",
    ),
    (
        attention({"q": (1, 2, 4, 4), "k": (1, 2, 4, 4), "v": (1, 2, 4, 4)}, (1, 2, 4, 4), is_causal=1),
        "causal",
    ),
    (attention(FOUR, (1, 2, 3, 6), softcap=2.0), "capped"),
    (attention({**FOUR, "m": (3, 5)}, (1, 2, 3, 6), names=("q", "k", "v", "m")), "mask"),
    (attention(FOUR, (1, 2, 3, 6), names=("q", "k", "v", "m"), weights={"m": TRUTH}), "constant mask"),
    (
        attention(
            FOUR,
            (1, 2, 3, 6),
            names=("q", "k", "v", "m"),
            weights={"m": np.where(TRUTH, normal(1, 3, 5), -np.inf).astype(np.float32)},
        ),
        "infinite mask",
    ),
)
PADDING = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], np.int32)
ONNXRUNTIME = "com.microsoft"
HEADS = partial(attention, result=(2, 3, 8), op="MultiHeadAttention", domain=ONNXRUNTIME)
PACKED = partial(attention, {"q": (2, 5, 6)}, (2, 5, 8), "Attention", ONNXRUNTIME, num_heads=2)
WEIGHTS = {"w": normal(2, 6, 24), "b": normal(3, 24)}
FUSED = (
    (HEADS(THREE, num_heads=2), "plain"),
    (HEADS(THREE, weights={"b": normal(1, 24)}, names=("q", "k", "v", "b"), num_heads=4), "bias"),
    (HEADS(THREE, weights={"p": PADDING}, names=("q", "k", "v", "", "p"), num_heads=2), "padding"),
    (HEADS({**THREE, "m": (1, 2, 3, 5)}, names=("q", "k", "v", "", "", "m"), num_heads=2, scale=0.2), "mask"),
    (PACKED(WEIGHTS, ("q", "w", "b")), "fused"),
    (PACKED({**WEIGHTS, "p": PADDING}, ("q", "w", "b", "p")), "fused, padding"),
    (PACKED(WEIGHTS, ("q", "w", "b"), unidirectional=1), "fused, causal"),
)


@pytest.mark.parametrize(
    "data", often([d for d, _ in (*STANDARD, *FUSED)], 2), ids=[n for _, n in (*STANDARD, *FUSED)]
)
def test_forms(data: bytes) -> None:
    done = rewritten(data)
    assert not any(name.startswith("host:") for name in ops(done))
    on_npu(done)


def test_a_query_without_keys_stays_on_the_host() -> None:
    none = np.zeros((3, 5), bool)
    done = rewritten(attention(FOUR, (1, 2, 3, 6), names=("q", "k", "v", "m"), weights={"m": none}))
    assert refused(done, "spell_attention") == "a query that attends to no key"


def test_operands_that_do_not_go_together_are_refused() -> None:
    """As files have them that are damaged."""
    model = attention({**FOUR, "m": (3, 3, 5)}, (1, 2, 3, 6), names=("q", "k", "v", "m"))
    done = rewrite(graph_of(model))
    assert "do not go together" in refused(done, "spell_attention")


WINDOWS = (
    "test_attention_bidirectional_window",
    "test_attention_local_window",
    "test_attention_local_window_with_past",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask",
    "test_attention_4d_with_qk_matmul_softcap",
)


@pytest.mark.parametrize("name", often(WINDOWS, 6))
def test_windows_and_scores_as_outputs(name: str) -> None:
    """Against the outputs that onnx publishes: onnxruntime has no windows."""
    case = case_named(name)
    assert judge(case).reason == ""
    graph = through(case.model.SerializeToString())
    assert not any(kind(n).startswith("host:") for n in graph.nodes)


def test_keys_that_are_not_padding_are_a_mask() -> None:
    """Of four keys and of all five; the causal frontier lies at the last of them."""
    valid = {"n": np.array([4, 5], np.int64)}
    shapes = {"q": (2, 2, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 6)}
    names = ("q", "k", "v", "", "", "", "n")
    data = attention(shapes, (2, 2, 3, 6), names=names, weights=valid, is_causal=1)
    graph = graph_of(data)
    done = rewrite(graph)
    assert not any(name.startswith("host:") for name in ops(done))
    feeds = {name: normal(i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    (y,) = host_session(export_model(done.graph)).run(None, feeds)
    for b, n in enumerate(valid["n"]):
        scores = feeds["q"][b] @ feeds["k"][b].swapaxes(-1, -2) / 2
        seen = np.arange(5)[None, :] <= np.arange(3)[:, None] + n - 3
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = weights / weights.sum(-1, keepdims=True) @ feeds["v"][b]
        np.testing.assert_allclose(y[b], wanted, 1e-4, 1e-5)
    on_npu(done)


def group_query(
    new: int,
    total: int,
    past: int | None = None,
    packed: bool = False,
    fixed: bool = False,
    **attributes: object,
) -> tuple[bytes, dict[str, np.ndarray]]:
    """Two heads of queries on one of keys, of size 16; and its inputs."""
    make, rng = onnx.helper, np.random.default_rng(new + total)
    arrays: dict[str, np.ndarray] = {"q": rng.normal(size=(1, new, 64 if packed else 32))}
    if not packed:
        arrays |= {n: rng.normal(size=(1, new, 16)) for n in "kv"}
    if past is not None:
        arrays |= {n: rng.normal(size=(1, 1, past, 16)) for n in ("pk", "pv")}
    if attributes.get("do_rotary"):
        arrays |= {n: rng.normal(size=(12, 8)) for n in ("cos", "sin")}
    arrays = {n: a.astype(np.float32) for n, a in arrays.items()}
    arrays |= {
        "n": np.array([total - 1 if past is not None else new - 2], np.int32),
        "t": np.array(total, np.int32),
    }
    held = {"t", "cos", "sin", *(["n"] if fixed else [])} & set(arrays)
    names = [n if n in arrays else "" for n in ("q", "k", "v", "pk", "pv", "n", "t", "cos", "sin")]
    heads = {"num_heads": 2, "kv_num_heads": 1}
    node = make.make_node(
        "GroupQueryAttention", names, ["y", "p", "r"], domain=ONNXRUNTIME, **heads, **attributes
    )
    length = max(total, past or 0)
    outputs = [make.make_tensor_value_info("y", FLOAT, (1, new, 32))]
    outputs += [make.make_tensor_value_info(n, FLOAT, (1, 1, length, 16)) for n in "pr"]
    kinds = {np.dtype(np.float32): FLOAT, np.dtype(np.int32): onnx.TensorProto.INT32}
    inputs = [
        make.make_tensor_value_info(n, kinds[a.dtype], a.shape) for n, a in arrays.items() if n not in held
    ]
    stored = [onnx.numpy_helper.from_array(arrays[n], n) for n in sorted(held)]
    graph = make.make_graph([node], "g", inputs, outputs, stored)
    opsets = [make.make_opsetid("", 20), make.make_opsetid(ONNXRUNTIME, 1)]
    data = make.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return bytes(data), {n: a for n, a in arrays.items() if n not in held}


GROUPED = {
    "a prompt": {"new": 4, "total": 4},
    "a prompt, packed, turned": {"new": 4, "total": 4, "packed": True, "do_rotary": 1},
    "a prompt and a cache": {"new": 3, "total": 3, "past": 6},
    "a step": {"new": 1, "total": 5, "past": 4, "do_rotary": 1, "rotary_interleaved": 1},
    "a step, the cache is longer": {"new": 1, "total": 4, "past": 6, "do_rotary": 1},
    "several steps": {"new": 2, "total": 4, "past": 6, "softcap": 1.5, "scale": 0.3},
    "a window": {"new": 1, "total": 6, "past": 6, "local_window_size": 2},
    "a prompt, a window": {"new": 5, "total": 5, "local_window_size": 2},
}


@pytest.mark.parametrize("fixed", often([True, False], 2))
@pytest.mark.parametrize("name", often(GROUPED, 2))
def test_groups_of_queries(name: str, fixed: bool) -> None:
    """A number of keys from outside is cast on the host, behind what is added to it for several new ones."""
    form = GROUPED[name]
    data, feeds = group_query(fixed=fixed, **form)  # type: ignore[arg-type]
    done = rewritten(data, feeds=feeds)
    own = {"host:cast", *(["host:add"] if form["new"] == 2 else [])}
    assert {o for o in ops(done) if o.startswith("host:")} <= (set() if fixed else own)
    on_npu(done, feeds=feeds, host=tuple(own))


@pytest.mark.parametrize("new", [1, 2])
def test_keys_are_put_into_their_places_in_floats_of_few_bits(new: int) -> None:
    """bfloat16 has 8 bits of a number: place 281 is none of its."""
    data, feeds = group_query(new, 282, 300, do_rotary=0, local_window_size=9)
    done = rewritten(data, feeds=feeds)
    numerics = replace(TARGET.numerics, float_types=("bfloat16",))
    placed = place(done.graph, TARGET)
    made = quantize_graph(done.graph, placed.on_npu, {}, Quantize(mode="bf16"), numerics)
    found, wanted = interpret(made.graph, feeds, numerics), run(data, feeds)
    for name, array in zip("ypr", wanted, strict=True):
        valid = array[:, :, :282] if name != "y" else array
        shown = found[name][:, :, :282] if name != "y" else found[name]
        np.testing.assert_allclose(shown, valid, rtol=0.02, atol=0.02)


def test_an_attention_with_more_than_plain_inputs_stays_with_the_reason() -> None:
    data, feeds = group_query(4, 4, smooth_softmax=1)
    assert "smooth_softmax" in refused(rewritten(data, feeds=feeds), "spell_groupquery")
