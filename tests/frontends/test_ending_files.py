"""Loops of TensorFlow's converter whose end data decides, against its interpreter (see ending_files.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")

from npuflow.base.errors import NpuflowError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.loops import ends, loops
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.rewrite.rewrite import rewrite
from tests.frontends.ending_files import STEPS, STORE, stored

FILES = stored()


def read(name: str, most: int | dict[str, int]) -> Graph:
    return verify(FRONTENDS["tflite"]().read(FILES[name][0], Bindings(max_steps=most)).graph, "reading")


@pytest.mark.parametrize("most", [20, STEPS])
@pytest.mark.parametrize("name", FILES)
def test_results_of_several_ends(name: str, most: int) -> None:
    """A list has a row for each step, and its counter ends the loop."""
    graph = rewrite(read(name, most), careful=True).graph
    assert [loop.steps for loop in loops(graph)] == [STEPS if "rows" in name else most]
    _, inputs, wanted = FILES[name]
    for k, x in enumerate(inputs):
        for found, arrays in zip(run(export_model(graph), {graph.inputs[0]: x}), _in_order(graph, wanted),
                                 strict=True):
            np.testing.assert_allclose(found, arrays[k], 1e-5, 1e-6)


def _in_order(graph: Graph, wanted: list[np.ndarray]) -> list[np.ndarray]:
    """The interpreter's outputs as the graph has them."""
    rest, found = list(wanted), []
    for kind in map(graph.type, graph.outputs):
        alike = (i for i, a in enumerate(rest) if (a.shape[1:], a.dtype.name) == (kind.shape, kind.dtype))
        found.append(rest.pop(next(alike)))
    return found


def test_three_steps_are_written_out() -> None:
    graph = read("plain", 3)
    _, inputs, (wanted,) = FILES["plain"]
    assert not loops(graph)
    np.testing.assert_allclose(run(export_model(graph), {graph.inputs[0]: inputs[0]})[0], wanted[0], 1e-5)


def test_a_loop_has_the_name_of_its_first_result() -> None:
    (name,) = ends(read("plain", 8)).values()
    assert [loop.steps for loop in loops(read("plain", {name: 9}))] == [9]
    with pytest.raises(NpuflowError, match='no loop "other" has an end') as caught:
        read("plain", {"other": 9})
    assert [fault.code for fault in caught.value.faults()] == ["NF-MODEL-542"] and name in caught.value.hint


def test_the_store_is_small() -> None:
    assert Path(STORE).stat().st_size < 20_000
