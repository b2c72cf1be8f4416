"""Models that cannot be compiled are refused at parse, with the numbers; those that can are,
whatever onnx cannot infer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from onnx import parser

from npuflow.base.errors import ModelError
from npuflow.base.tables import FilePath
from npuflow.frontends import FRONTENDS
from npuflow.stages.hardware import Asked
from npuflow.stages.model import Model, ModelTable, plugins
from npuflow.stages.parse import Parse, Parsed, parse


def stage(
    nodes: str, outputs: str = "float[?,?,?,?] y", inputs: str = "float[1,3,8,8] x", opset: int = 21
) -> Parsed:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    data = parser.parse_model(text).SerializeToString()
    table = ModelTable(FilePath("net.onnx", Path("net.onnx")))
    reading = FRONTENDS["onnx"]().read(data, table.bindings)
    found: Parsed = parse(Model("onnx", reading, plugins(reading.graph)), Asked(), Parse())
    return found


def weights(*dims: int) -> str:
    size = 1
    for d in dims:
        size *= d
    return f"w = Constant <value = float[{','.join(map(str, dims))}] {{{','.join(['1'] * size)}}}> () "


@pytest.mark.parametrize(
    "nodes, said",
    [
        (
            weights(1, 3, 30, 30) + "y = Conv (x, w)",
            r"window \[30, 30\] is larger than its input \"x\" \[1, 3, 8, 8\]",
        ),
        (weights(4, 5, 3, 3) + "y = Conv (x, w)", r"for 5 channels, its input \"x\" \[1, 3, 8, 8\] has 3"),
        (weights(4, 2, 3, 3) + "y = Conv <group = 2> (x, w)", "for 4 channels in 2 groups, .* has 3"),
        (weights(5, 2, 3, 3) + "y = ConvTranspose (x, w)", "for 5 channels, .* has 3"),
        ("y = MaxPool <kernel_shape = [9, 9]> (x)", r"window \[9, 9\] is larger"),
    ],
)
def test_shapes_that_contradict_each_other_are_told_with_their_numbers(nodes: str, said: str) -> None:
    with pytest.raises(ModelError, match=r"node y \(") as caught:
        stage(nodes)
    assert caught.value.because is not None and caught.value.hint
    assert re.search(said, caught.value.because), caught.value.because


VECTORS = "s = Constant <value = float[3] {1, 1, 1}> () b = Constant <value = float[3] {0, 0, 0}> () "


FUNCTIONS = [
    "y = MeanVarianceNormalization (x)",
    VECTORS + "y = GroupNormalization <num_groups = 3> (x, s, b)",
]


@pytest.mark.parametrize("nodes", FUNCTIONS)
def test_functions_that_onnx_does_not_infer_have_shapes(nodes: str) -> None:
    assert stage(nodes).graph.type("y").shape == (1, 3, 8, 8)


def test_an_output_that_is_constant_is_the_hosts() -> None:
    nodes = "y = Relu (x) c = Constant <value_floats = [1.0, 2.0]> () z = Add (y, c)"
    found = stage(nodes, "float[1,3,2,2] z, float[2] c", "float[1,3,2,2] x")
    assert found.graph.outputs == ("z", "c") and found.graph.const("c") is None
    assert found.graph.producer()["c"].op.reference(found.graph.const("c:constant"))[0].tolist() == [1.0, 2.0]


def test_an_output_that_nothing_computes_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match='output "x"') as caught:
        stage("y = Relu (x)", "float[1,3,8,8] y, float[1,3,8,8] x")
    assert caught.value.hint == '[model] outputs = ["y"] leaves it out'
    with pytest.raises(ModelError, match="no inputs"):
        stage("y = Constant <value_floats = [1.0, 2.0]> ()", "float[2] y", "")
