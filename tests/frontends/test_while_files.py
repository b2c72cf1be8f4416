"""Loops as TensorFlow's converter writes them, against its interpreter's values (see while_files.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")

from npuflow.base.errors import ModelError
from npuflow.frontends import Bindings
from npuflow.frontends.tflite.convert import plain, reading
from npuflow.frontends.tflite.schema import parsed
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from tests.frontends.while_files import STORE, stored

FILES = stored()
BY_DATA = "an end that data decides"
LOOPED = {
    "counter": [9], "number of the step": [9], "rows read and written": [12], "backwards": [12],
    "every second row": [6], "a slice of one row": [12], "a value of the outside": [9], "two loops": [12, 6],
    "a cell of its own": [10], "a cell backwards": [10], "a cell both ways": [10, 10], "masked": [10],
    "convolutions": [5], "a loop in a loop": [4] * 5, "whole numbers that data decides": [6],
}
WRITTEN_OUT = {"three steps", "fewer rows than the list has", "one number"}
LAYERS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}


def graph_of(name: str) -> Graph:
    return verify(reading(parsed(FILES[name][0]), Bindings()).graph, "reading")


@pytest.mark.parametrize("name", [name for name in FILES if name != BY_DATA])
def test_a_loop_gives_the_interpreters_values(name: str) -> None:
    _, x, wanted = FILES[name]
    graph = graph_of(name)
    found = run(export_model(graph), {graph.inputs[0]: x})
    assert len(found) == len(wanted)
    for one in wanted:      # in the order of the file, which may be another one
        assert any(one.shape == a.shape and np.abs(one - a).max() < 1e-5 for a in found)


@pytest.mark.parametrize("name", [name for name in FILES if name != BY_DATA])
def test_a_loop_stays_one(name: str) -> None:
    graph = graph_of(name)
    assert sorted(loop.steps for loop in loops(graph)) == sorted(LOOPED.get(name, []))
    kinds = [node.op.onnx_type()[1] for node in graph.nodes]
    assert {kind for kind in kinds if kind in LAYERS.values()} == {LAYERS[k] for k in (name,) if k in LAYERS}


def test_all_files_are_tried_and_small() -> None:
    assert {*FILES} == {*LOOPED, *LAYERS, *WRITTEN_OUT, BY_DATA}
    assert Path(STORE).stat().st_size < 100_000


def test_directions_of_rows() -> None:
    """Rows that are read and written from the last one on need no node that turns them."""
    graph = graph_of("backwards")
    borders = {node.op.border_of_loop: node for node in graph.nodes if node.op.border_of_loop}
    assert all(vars(borders[kind].op)["reverse"] for kind in ("slice", "stack"))
    assert "Gather" not in [node.op.onnx_type()[1] for node in graph.nodes]


def test_a_loop_whose_end_depends_on_data_is_one_error_with_its_place_and_what_to_try() -> None:
    with pytest.raises(ModelError, match="1 operator of the TFLite model cannot be converted") as caught:
        graph_of(BY_DATA)
    fault = caught.value
    (loop,) = (o for o in plain(parsed(FILES[BY_DATA][0])).operators if o.name == "WHILE")
    place = plain(parsed(FILES[BY_DATA][0])).tensors[loop.outputs[0]].name
    assert fault.code == "NF-MODEL-066" and fault.where.node == place
    assert "WHILE: its condition depends on data" in fault.because
    assert "a constant number of steps" in fault.hint and "ONNX" in fault.hint
