"""Small ONNX models by their text, and the comparison of a rewritten graph with
onnxruntime on the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import parser

from npuflow.hw.target import Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import Rewritten
from npuflow.rules import Hardware, Rule
from npuflow.run.interpret import host_session
from npuflow.testing.op import check_program
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import check_rewrite, graph_of

TARGET = Target(memory=Memory(local_bytes=1 << 16))


def model(
    signature: str, body: str, weights: Mapping[str, np.ndarray] | None = None, opset: int = 17
) -> bytes:
    """`signature`: "float[1,3] x => float[1,3] y"; `body`: nodes in ONNX's text form."""
    inputs, outputs = signature.split("=>")
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    proto = parser.parse_model(text)
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return bytes(proto.SerializeToString())


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def rewritten(
    data: bytes, rules: Sequence[str] | None = None, rtol: float = 1e-4, atol: float = 1e-5,
    feeds: Mapping[str, np.ndarray] | None = None, hardware: Hardware = Rule.hardware,
) -> Rewritten:
    """The graph after the rules, checked after each of them and against onnxruntime on random inputs."""
    graph = graph_of(data)
    feeds = feeds or {i: normal(7, *graph.type(i).shape, scale=2.0) for i in graph.inputs}
    done = check_rewrite(graph, rules, feeds, rtol, atol, hardware)
    for found, wanted in zip(run(export_model(done.graph), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol, atol)
    return done


def ops(done: Rewritten) -> list[str]:
    return [kind(n) for n in done.graph.nodes]


def refused(done: Rewritten, rule: str) -> str:
    """The reason of the rule's one refusal."""
    (reason,) = {r.reason for r in done.refusals if r.rule == rule}
    return reason


def on_npu(
    done: Rewritten,
    scheme: Quantize | None = None,
    feeds: Mapping[str, np.ndarray] | None = None,
    host: Sequence[str] = (),
) -> Graph:
    """Every node of the rewritten graph but those of the kinds in `host` is quantised for the NPU, and its
    program simulates to the reference's codes. Gives the quantised graph."""
    graph = done.graph
    placed = place(graph, TARGET)
    left = {i: kind(n) for i, n in enumerate(graph.nodes) if kind(n) in host}
    assert len(placed.reasons()) == len(left), placed.reasons()
    feeds = feeds or {i: normal(7, *graph.type(i).shape) for i in graph.inputs}
    wanted = [o for n in graph.nodes for o in n.outputs if o]
    found = zip(wanted, host_session(export_model(graph, wanted)).run(wanted, feeds), strict=True)
    real = {name: a for name, a in (*feeds.items(), *found) if a.dtype.kind == "f"}
    ranges = {name: (float(a.min()), float(a.max())) for name, a in real.items()}
    made = quantize_graph(graph, placed.on_npu, ranges, scheme or Quantize(), TARGET.numerics)
    assert len([note.reason for note in made.notes if note.on_host]) <= len(left), made.notes
    check_program(made.graph, feeds, TARGET, "decomposed")
    return made.graph
