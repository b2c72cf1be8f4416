"""Dimensions of inputs that a model leaves free: a batch is 1, all others are one error that names them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import pytest
from onnx import helper

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, Reading

Dims = Sequence[str | int | None]


def model(**inputs: Dims | None) -> bytes:
    """A model that hands each input through a Relu."""
    infos = [helper.make_tensor_value_info(name, 1, dims) for name, dims in inputs.items()]
    nodes = [helper.make_node("Relu", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_tensor_value_info(f"{name}_out", 1, None) for name in inputs]
    graph = helper.make_graph(nodes, "g", infos, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def read(data: bytes, bindings: Bindings | None = None) -> Reading:
    found: Reading = FRONTENDS["onnx"]().read(data, bindings or Bindings())
    return found


def test_every_free_dimension_of_every_input_is_named_as_the_file_spells_it() -> None:
    data = model(x=["N", 3, "p2o.Dim.1", "?"], mask=[1, -1, 0, None], fixed=[1, 4], any=None)
    with pytest.raises(ModelError, match="leaves 6 dimensions of its inputs free") as caught:
        read(data)
    fault = caught.value
    assert fault.because is not None and fault.hint is not None and fault.where.key == "model.inputs"
    assert '"x" is declared [N, 3, p2o.Dim.1, ?]: dimensions 2 (p2o.Dim.1), 3 (?)' in fault.because
    assert (
        '"mask" is declared [1, -1, 0, not given]: dimensions 1 (-1), 2 (0), 3 (not given)' in fault.because
    )
    assert '"any" is declared without a shape' in fault.because and '"fixed"' not in fault.because
    assert "[model] inputs = { x = [1, 3, ?, ?], mask = [1, ?, ?, ?], any = [?] }" in fault.hint
    assert "--shape x=1,3,?,? --shape mask=1,?,?,? --shape any=?" in fault.hint


def test_one_size_for_each_makes_them_static() -> None:
    data = model(x=["N", 3, "H", "?"], mask=[1, -1, 0, None])
    graph = read(data, Bindings({"x": (1, 3, 48, 320), "mask": (1, 2, 3, 4)})).graph
    assert graph.type("x_out").shape == (1, 3, 48, 320) and graph.type("mask_out").shape == (1, 2, 3, 4)


@pytest.mark.parametrize("spelling", ["N", -1, 0, None, "?"])
def test_a_free_batch_alone_is_one_and_said(spelling: str | int | None) -> None:
    reading = read(model(x=[spelling, 4]))
    assert reading.graph.type("x").shape == (1, 4)
    assert [note for note in reading.notes if "free and taken as 1" in note and 'input "x"' in note]


def test_sizes_of_one_input_hold_for_the_names_in_others() -> None:
    data = model(x=["N", "T", 4], mask=["N", "T"])
    assert read(data, Bindings({"x": (2, 5, 4)})).graph.type("mask").shape == (2, 5)
    assert read(data, Bindings(dims={"T": 5})).graph.type("mask").shape == (1, 5)


def test_a_name_that_stands_elsewhere_too_is_no_batch() -> None:
    with pytest.raises(ModelError, match="2 dimensions") as caught:
        read(model(tokens=["T"], mask=[1, "T"]))
    assert '"tokens" is declared [T]: dimension 0 (T)' in str(caught.value.because)
    assert read(model(tokens=["T"], mask=[1, "T"]), Bindings(dims={"T": 7})).graph.type("tokens").shape == (
        7,
    )


def test_values_that_are_no_tensors_have_no_dimensions() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (seq(float[N]) s, float[2] x) => (float[2] y) { y = '
        'Relu(x) }'
    )
    assert read(proto.SerializeToString()).graph.type("x").shape == (2,)


FOUR = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 7] x, float[M, 7] y) => (float[4, A] z) '
    '<int64[2] s = {4, SIZE}> { a = Add(x, y) b = Flatten<axis = 0>(a) c = Squeeze(b) z = Reshape(c, s) }'
)
"""A network for four samples at a time, as those that average mirrored pictures; the file leaves it free."""


@pytest.mark.parametrize("size", ["-1", "7"])
def test_a_fault_behind_a_batch_taken_as_one_says_so(size: str) -> None:
    data = onnx.parser.parse_model(FOUR.replace("SIZE", size)).SerializeToString()
    with pytest.raises(ModelError) as caught:
        read(data)
    fault = caught.value
    assert fault.code == "NF-MODEL-014" and fault.where.node == "z (Reshape)"
    assert 'the batch of "x", "y" is free in the file and was taken as 1' in fault.because
    assert fault.hint.startswith("[model] inputs = { x = [?, 7], y = [?, 7] }")
    assert read(data, Bindings({"x": (4, 7), "y": (4, 7)})).graph.type("z").shape == (4, 7)


def test_a_fault_under_a_stated_batch_does_not_blame_it() -> None:
    data = onnx.parser.parse_model(FOUR.replace("SIZE", "7")).SerializeToString()
    with pytest.raises(ModelError, match=r"14 elements.*28") as caught:
        read(data, Bindings({"x": (2, 7), "y": (2, 7)}))
    assert "batch" not in str(caught.value)
