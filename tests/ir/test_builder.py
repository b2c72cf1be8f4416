"""Graphs made through the builder that all front ends use: types, constants, codes, origins; and no ONNX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.flow.artifact import Reader, seal
from npuflow.flow.store_writer import Writer
from npuflow.frontends import Reading, finished
from npuflow.ir.builder import Builder
from npuflow.ir.op import OPS
from npuflow.ir.types import QuantType, TensorType
from npuflow.ir.verify import verify
from npuflow.stages.model import Model, plugins

CODES = QuantType(8, True, (0.5,))


def network() -> Reading:
    """A convolution and a Relu, a value that reaches no output, and codes that the source states."""
    made = Builder(taken=("later",))
    x = made.input("x", TensorType((1, 3, 8, 8)))
    w = made.constant("w", np.ones((4, 3, 3, 3), np.float32))
    (c,) = made.add(OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), (x, w), ("c",), ("layer 1",))
    (y,) = made.add(OPS["relu"](), (c,), ("y",))
    made.add(OPS["sigmoid"](), (c,), (made.free("later"),))
    made.state(y, CODES)
    made.state("later'", CODES)
    made.notes.append("a note")
    return finished(made, (x,), (y,))


def test_types_are_inferred_and_what_reaches_no_output_is_left_out() -> None:
    made = network()
    graph = verify(made.graph)
    assert graph.type("y") == TensorType((1, 4, 8, 8)) and set(graph.values) == {"x", "w", "c", "y"}
    assert [n.origin for n in graph.nodes] == [("layer 1",), ("y",)]
    assert made.notes == ("a note",) and made.stated == {"y": CODES}


def test_a_value_is_defined_once() -> None:
    made = Builder()
    made.input("x", TensorType((1,)))
    with pytest.raises(ModelError, match="defined twice"):
        made.constant("x", np.zeros(1, np.float32))


READ = """
import sys
for name in ("onnx", "onnxruntime"):
    sys.modules[name] = None                        # any import of it fails
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from npuflow.stages.model import Model
from npuflow.stages.parse import rewritten
from tests.ir.test_builder import network, stored
held = stored(Path(sys.argv[2]))
assert held.reading == network()
print([type(n.op).__name__ for n in rewritten(held.reading).graph.nodes])
"""


def stored(folder: Path) -> Model:
    """The artifact of the stage `model`, written and read back."""
    made = network()
    manifest = seal(Model("any", made, plugins(made.graph)), Writer(folder))
    return Model.load(Reader(folder, manifest))


def test_what_the_model_stage_stores_is_read_and_rewritten_without_onnx(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", READ, root, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "['Conv']\n", done.stderr
