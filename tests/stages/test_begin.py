"""A recipe that begins at tensors of the network's inside, and the part of a model as a file of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow.base.errors import ModelError, UsageError
from npuflow.cli._app import application
from npuflow.input.begin import begun
from npuflow.run.interpret import host_session
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import model, normal
from tests.stages.builds import made, products

NETWORK = model(
    "float[1,6] x, float[1,5] z => float[1,3] y",
    "h = MatMul(x, first) r = Relu(h) s = Add(r, z) y = MatMul(s, last)",
    {"first": normal(1, 6, 5), "last": normal(2, 5, 3)},
)


def test_what_lies_before_is_left_out() -> None:
    cut = begun(graph_of(NETWORK), ["r"])
    assert cut.inputs == ("r", "z") and [n.outputs[0] for n in cut.nodes] == ["s", "y"]
    assert begun(graph_of(NETWORK), ["s"]).inputs == ("s",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x", "an input of the model"),
        ("nothing", "no tensor of that name leads to the outputs y"),
        ("y", "behind an output nothing is computed"),
    ],
)
def test_where_it_cannot_begin(name: str, said: str) -> None:
    with pytest.raises(ModelError) as fault:
        begun(graph_of(NETWORK), [name])
    assert said in str(fault.value.because)


def test_at_an_output_it_says_where_to_begin(tmp_path: Path) -> None:
    """Of several outputs one may lie behind another, where the network can begin."""
    with pytest.raises(ModelError, match='cannot begin at the output "y"') as fault:
        begun(graph_of(NETWORK), ["y"])
    assert fault.value.hint == "begin further in front: s"
    both = model("float[1,6] x => float[1,6] r, float[1,6] y", "r = Relu(x) y = Tanh(r)")
    assert begun(graph_of(both), ["r"]).inputs == ("r",)
    (tmp_path / "net.onnx").write_bytes(NETWORK)
    words = ["extract", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "part.onnx")]
    failed = CliRunner().invoke(application("extract"), [*words, "--begin", "y"])
    assert isinstance(failed.exception, ModelError) and not (tmp_path / "part.onnx").exists()


def test_a_part_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(NETWORK)
    words = ["extract", str(tmp_path / "net.onnx"), "--begin", "s", "-o", str(tmp_path / "no" / "part.onnx")]
    failed = CliRunner().invoke(application("extract"), words)
    assert isinstance(failed.exception, UsageError) and failed.exception.code == "NF-USAGE-025"


def test_results_of_one_node_belong_together() -> None:
    body = "r = Relu(x) a, b = Split<num_outputs=2>(r) y = Add(a, b)"
    split = model("float[1,6] x => float[1,3] y", body, opset=18)
    with pytest.raises(ModelError, match='begin at "a" alone'):
        begun(graph_of(split), ["a"])
    assert begun(graph_of(split), ["a", "b"]).inputs == ("a", "b")


def test_a_recipe_that_begins_inside_builds(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(NETWORK)
    np.savez(tmp_path / "data.npz", s=normal(5, 8, 5))
    recipe = tmp_path / "net.toml"
    recipe.write_text(
        '[model]\npath = "net.onnx"\nbegin = ["s"]\n[target]\n[placement]\nmin_macs = 0\n'
        '[data]\nsource = "data.npz"\n[evaluate]\nsource = "data.npz"\nmetric = "sqnr"\n'
    )
    (checked,) = products(recipe, made(recipe, until="rewrite_check"), "rewrite_check")
    (program,) = products(recipe, made(recipe, until="codegen"), "codegen")
    assert not checked.reason and [entry["name"] for entry in program.program.meta["inputs"]] == ["s"]


def test_extract_writes_the_part(tmp_path: Path) -> None:
    file, part = tmp_path / "net.onnx", tmp_path / "part.onnx"
    file.write_bytes(NETWORK)
    asked = ["extract", str(file), "-o", str(part), "--begin", "r", "--output", "s"]
    done = CliRunner().invoke(application("extract"), asked)
    assert done.exit_code == 0, done.output
    assert "1 of 3 nodes, r, z -> s" in done.output
    r, z = normal(3, 1, 5), normal(4, 1, 5)
    (s,) = host_session(part.read_bytes()).run(None, {"r": r, "z": z})
    np.testing.assert_array_equal(s, r + z)
