"""Small ONNX models by their text, and the comparison of a rewritten graph with onnxruntime on the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import parser

from npuflow.engine.rewrite import Rewritten, rewrite
from npuflow.engine.to_onnx import export_model
from npuflow.ir.contracts import FRONTENDS, Bindings
from npuflow.ir.match import kind
from npuflow.ir.onnx_run import run
from npuflow.ir.text import from_text, to_text


def model(signature: str, body: str, weights: Mapping[str, np.ndarray] | None = None, opset: int = 17) -> bytes:
    """`signature`: "float[1,3] x => float[1,3] y"; `body`: nodes in ONNX's text form."""
    inputs, outputs = signature.split("=>")
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    proto = parser.parse_model(text)
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return bytes(proto.SerializeToString())


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def rewritten(data: bytes, rules: Sequence[str] | None = None, rtol: float = 1e-4, atol: float = 1e-5) -> Rewritten:
    """The graph after the rules, checked after each of them and against onnxruntime on random inputs."""
    graph = FRONTENDS["onnx"]().read(data, Bindings()).graph
    done = rewrite(graph, rules, careful=True)
    feeds = {i: normal(7, *graph.type(i).shape, scale=2.0) for i in graph.inputs}
    expected = run(data, feeds)
    for result in (graph, done.graph):
        for found, wanted in zip(run(export_model(result), feeds), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol, atol)
    assert done.graph.outputs == graph.outputs and done.graph.inputs == graph.inputs
    assert from_text(to_text(done.graph), done.graph.consts) == done.graph
    return done


def ops(done: Rewritten) -> list[str]:
    return [kind(n) for n in done.graph.nodes]


def refused(done: Rewritten, rule: str) -> str:
    """The reason of the rule's one refusal."""
    (reason,) = {r.reason for r in done.refusals if r.rule == rule}
    return reason
