"""`npuflow inspect`: graph before and after, placement, refusals, in text and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx import parser

from npuflow.cli._app import run
from tests.rules.test_recurrent import layer

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,T] x) => (float[N,T] y) {
    s = Sigmoid(x) a = Mul(x, s) b = Pow(a, a) c = Relu(b) y =
    Tanh(c) }"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    proto = parser.parse_model(TEXT)
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return str(path)


def test_the_page_says_what_happened(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", model, "--input", "x=2,5"]) == 0
    out = capsys.readouterr().out
    host = "host: Pow (1)"
    for part in (
        "float32[2, 5]",
        "before: 5 nodes",
        "after: 4 nodes",
        "recognise_gated 1",
        host,
        "segments: 2",
    ):
        assert part in out


def test_detection_heads_are_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """64 by 64 pixels have 64, 16 and 4 cells at strides 8, 16 and 32."""
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,64,64] x) => (float[1,84,7] y) {'
        " m = ReduceMean<axes=[1,2], keepdims=0>(x) s = Constant<value_ints=[1,64,1]>()"
        " c = Constant<value_ints=[1,84,7]>() r = Reshape(m, s) f = ReduceMean<axes=[1]>(r)"
        " y = Expand(f, c) }"
    )
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert run(["inspect", str(tmp_path / "net.onnx")]) == 0
    assert '[postprocess] kind = "yolox" gives boxes' in capsys.readouterr().out


def test_the_hosts_part_is_priced_on_the_page(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", model, "--input", "x=2,5"]) == 0
    out = capsys.readouterr().out
    assert "host: 0 MACs, 30 elements, 10 bytes to and from the NPU at 8 bits: 31 cycles (0 + 30 + 1)" in out
    assert "host: silu (1): an island of one node and 0 MACs next to host nodes: 10 bytes" in out


def test_what_depends_on_data_is_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        TEXT[: TEXT.index("g (")]
        + "g (float[2,5] x) => (float[2,K] y) { p = NonZero(x) c = Cast<to=1>(p) y = Tanh(c) }"
    )
    path = tmp_path / "places.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    assert run(["inspect", str(path)]) == 0
    assert "not counted, as shapes depend on data or on graphs inside: " in capsys.readouterr().out


def test_free_dimensions_are_an_error_with_what_to_write(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", model, "--dim", "N=2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert '"x" is declared [N, T]: dimension 1 (T)' in said and "x = [2, ?]" in said


def test_json_and_text(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", model, "--input", "x=2,5", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["after"]["silu"] == 1 and len(report["places"]) == 4
    # Pow and the sigmoid gate, too little for the way there: 10 elements each, 10
    # codes cross, one element a cycle
    host = report["host"]
    assert (host["macs"], host["elements"], host["bytes"]) == (0, 30, 10) and not host["unknown"]
    assert host["cycles"] == sum(host["terms"].values()) == 30 + 10 / 16
    assert run(["inspect", model, "--input", "x=2,5", "--text"]) == 0
    assert "= silu(x)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--input", "x"], '"="'), (["--input", "x=a"], "no number"), (["--input", "z=1"], "no input"),
     (["--target", "nope"], "no target")],
)
def test_wrong_options_are_explained(
    model: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", model, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_recipe_is_inspected_with_its_own_model_shapes_rules_and_target(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "net.toml"
    own = f'target = "aries"\n[model]\npath = "{model}"\ninputs = {{ x = [2, 5] }}\n'
    recipe.write_text(own + '[parse]\nskip = ["recognise_gated"]\n')
    assert run(["inspect", str(recipe)]) == 0
    out = capsys.readouterr().out
    assert "net.toml on aries" in out and "float32[2, 5]" in out and "rewrites: none" in out
    sets = ["--set", "parse.skip=[]", "--set", "model.inputs.x=[3, 5]"]
    assert run(["inspect", str(recipe), *sets, "--target", "edge-4t"]) == 0
    out = capsys.readouterr().out
    assert "on edge-4t" in out and "float32[3, 5]" in out and "recognise_gated 1" in out
    assert run(["inspect", str(recipe), "--set", "parse.skp=[]"]) == 2
    assert 'unknown key "skp"' in capsys.readouterr().err
    assert run(["inspect", model, "--set", "model.inputs.x=[4, 5]"]) == 0
    assert "float32[4, 5]" in capsys.readouterr().out


def test_a_loop_is_listed_with_its_steps_and_what_it_carries_and_stacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "walk.onnx"
    path.write_bytes(layer("GRU", steps=9, states="input"))
    assert run(["inspect", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (loop,) = report["loops"]
    assert (loop["steps"], loop["carried"], len(loop["carries"]), len(loop["stacks"])) == (9, 1, 1, 1)
    assert run(["inspect", str(path), "--nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = f"  loop {loop['loop']}: 9 steps of {loop['nodes']} nodes, 1 carried value"
    said += f" ({loop['carries'][0]['now']}); it stacks 1 value ({loop['stacks'][0]})"
    # once in the list of loops, and once as the heading of its nodes
    first, second = (i for i, line in enumerate(lines) if line == said)
    inner = lines[second + 1 : second + 1 + loop["nodes"]]
    assert first < second and all(line.startswith(("  npu     ", "  host    ")) for line in inner)
    assert not lines[second - 1].startswith("  npu     ")
