"""QDQ export: every operator's integers against onnxruntime on the exported model, one node at a time."""

from __future__ import annotations

import io

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import interpret
from npuflow.run.qdq import isolated, to_qdq
from npuflow.testing.op import quantised, samples
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import model
from tests.tiers import spread

NUMERICS = Numerics(acc_bits=32)
SCHEMES = {
    "w8a8": Quantize(),
    "symmetric": Quantize(activations=Activations(symmetric=True)),
    "w5a6": Quantize(weights=Weights(bits=5), activations=Activations(bits=6)),
}
# made by the quantiser, tested with every other operator
BOUNDARIES = ("quantizelinear", "dequantizelinear")
CASES = [(name, i) for name in OPS.names() if name not in BOUNDARIES for i in range(len(samples(name)))]


def _session(written: bytes) -> ort.InferenceSession:
    onnx.checker.check_model(onnx.load(io.BytesIO(written)))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.log_severity_level = 4
    return ort.InferenceSession(written, options)


@pytest.mark.parametrize(
    ("case_of", "scheme"), spread(CASES, list(SCHEMES)),
    ids=lambda one: "-".join(map(str, one)) if isinstance(one, tuple) else None,
)
def test_every_integer_of_every_operator_is_within_one_step(case_of: tuple[str, int], scheme: str) -> None:
    name, index = case_of
    sample = samples(name)[index]
    graph, case = quantised(sample, NUMERICS, SCHEMES[scheme])
    kept = interpret(graph, case.inputs, NUMERICS, keep=lambda _: True)
    judge, shown = isolated(graph)
    assert shown, "the operator left no integer value to compare"
    session = _session(judge)
    found = session.run(list(shown.values()), {i.name: kept[i.name] for i in session.get_inputs()})
    for value_id, array in zip(shown, found, strict=True):
        distance = np.abs(array.astype(np.int64) - kept[value_id].astype(np.int64)).max(initial=0)
        assert distance <= max(sample.lsb, 1), f"{value_id}: {distance} steps"


@pytest.mark.parametrize("name", ["lookup", "topk", "argextreme"])
def test_no_local_functions_are_left(name: str) -> None:
    """OpenVINO's reader, among others, does not know them."""
    graph, case = quantised(samples(name)[0], NUMERICS, Quantize())
    exported = to_qdq(graph).model
    written = onnx.load_from_string(exported)
    assert not written.functions and {o.domain for o in written.opset_import} == {""}
    found = _session(exported).run(list(graph.outputs), case.inputs)
    wanted = interpret(graph, case.inputs, NUMERICS)
    for name, array in zip(graph.outputs, found, strict=True):
        assert np.abs(array.astype(np.float64) - wanted[name]).max() <= 1


def test_a_whole_graph_keeps_ids_and_outputs() -> None:
    graph, case = quantised(samples("conv")[0], NUMERICS, Quantize())
    exported = to_qdq(graph)
    names = {o for n in onnx.load(io.BytesIO(exported.model)).graph.node for o in n.output}
    assert {v.id for v in graph.values.values() if v.quant is not None and v.const is None} <= names
    found = dict(
        zip(graph.outputs, _session(exported.model).run(list(graph.outputs), case.inputs), strict=True)
    )
    expected = interpret(graph, case.inputs, NUMERICS)
    for value_id in graph.outputs:
        np.testing.assert_allclose(found[value_id], expected[value_id], atol=2 * _step(graph))


def _step(graph: object) -> float:
    return max(v.quant.scale[0] for v in graph.values.values() if v.quant is not None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["averagepool", "maxpool", "conv", "globalaveragepool"])
def test_runtimes_may_fuse_quantised_layers(name: str) -> None:
    """onnxruntime replaces Q/DQ by kernels of its own, which refuse attributes that they do not know."""
    for sample in samples(name):
        if "pool" in name and any(d != 1 for d in getattr(sample.op, "dilations", ())):
            continue  # its kernel of a quantised pool has no dilation
        graph, case = quantised(sample, NUMERICS, Quantize())
        session = ort.InferenceSession(to_qdq(graph).model)
        assert len(session.run(None, case.inputs)) == len(graph.outputs)


SUFFIXES = ("real", "dq", "own", "scale", "zero", "lo", "hi", "clipped")


def test_names_of_the_model_stay_apart_from_those_that_are_made() -> None:
    """RotaryEmbedding leaves a value "y:real" beside "y", and a model may have any names."""
    body = " ".join(f"{name} = Elu<alpha=0.{k + 1}>(x)" for k, name in enumerate(SUFFIXES))
    body += f" y = Sum({', '.join(SUFFIXES)}) z = Mul(y, y)"
    proto = onnx.load_from_string(model("float[2,6] x => float[2,6] z", body))
    for node in proto.graph.node:
        for ends in (node.input, node.output):
            ends[:] = [f"y:{name}" if name in SUFFIXES else name for name in ends]
    graph = rewrite(graph_of(proto.SerializeToString())).graph
    ranges = dict.fromkeys(graph.values, (-8.0, 8.0))
    scheme = Quantize(activations=Activations(bits=6))
    made = quantize_graph(graph, lambda _: True, ranges, scheme, NUMERICS).graph
    feeds = {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(2, 6)}
    (found,) = _session(to_qdq(made).model).run(None, feeds)
    np.testing.assert_allclose(found, interpret(made, feeds, NUMERICS)["z"], atol=3.0)
    one, shown = isolated(made)
    assert set(shown) <= set(made.values)
    _session(one)
