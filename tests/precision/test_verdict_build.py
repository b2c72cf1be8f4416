"""A build says how good its outputs are: in its last line, in the summary event, in
`show`; `--strict` makes it count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuflow.cli import main
from npuflow.onnx.export import export_model
from tests.networks import recipes
from tests.networks.floats import Net

RECIPE = recipes.RECIPE + """\
[precision]
strategy = "none"
"""
SPOILT = """
[[calibrate.layers]]
layers = ["c2"]
range = [0.0, 0.05]
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds of all tests find what others have made: none of them tests what runs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    net = Net(3, 1, 4, 8, 8)
    for name, source in (("c1", "x"), ("c2", "c1"), ("c3", "c2")):
        net.conv(name, source, 8, clip=(0.0, float("inf")))
    net.conv("y", "c3", 4)
    (tmp_path / "net.onnx").write_bytes(export_model(net.graph("y")))
    np.savez(tmp_path / "calib.npz", x=np.concatenate([f["x"] for f in net.feeds(24)]))
    (tmp_path / "good.toml").write_text(RECIPE)
    (tmp_path / "bad.toml").write_text(RECIPE + SPOILT)
    monkeypatch.setenv("NPUFLOW_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_last_line_and_the_exit_code(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def called(*args: str) -> tuple[int, str]:
        capfd.readouterr()
        code = main(list(args))
        return code, capfd.readouterr().out

    def built(name: str, *more: str) -> tuple[int, str]:
        return called("build", f"{name}.toml", "--until", "verdict", *more)

    code, out = built("good", "--strict")
    assert code == 0 and out.splitlines()[-1].startswith(
        "accuracy: every output is close to the float model's on 4 held-out"
    )

    code, out = built("bad")
    last = out.splitlines()[-1]
    assert code == 0 and last.startswith('warning: the output "y" is far from the float model\'s: ')
    assert " dB on 4 held-out" in last
    assert '"/c2"' in last and 'try min-max range for "c2"' in last and "no cycles" in last
    assert out.count("far from the float model") == 1

    code, again = built("bad", "--strict")
    assert code == 1 and again.splitlines()[-1] == last
    code, again = built("bad")                             # nothing to do, and still said
    assert code == 0 and "nothing to do" in again and again.splitlines()[-1] == last

    code, out = built("bad", "--json")
    summary = json.loads(out.splitlines()[-1])
    assert (
        summary["event"] == "summary" and summary["verdict_ok"] is False and "far from" in summary["verdict"]
    )
    assert summary["verdict_hint"].startswith('min-max range for "c2"')

    code, out = called("show", "verdict", "bad.toml")
    assert code == 0 and '[[calibrate.layers]]\n    layers = ["c2"]\n    method = "minmax"' in out
    assert "largest source of error" in out
    assert any(line.startswith("c2 ") and line.endswith("%") for line in out.splitlines())

    # What is printed is pasted, and does what it promised.
    promised = float(last.split(" -> ")[1].split(" dB")[0])
    pasted = "\n".join(
        line.strip() for line in out[out.index("[[calibrate.layers]]") :].split("\n\n")[0].splitlines()
    )
    (folder / "pasted.toml").write_text(f"{RECIPE}{SPOILT}\n{pasted}\n")
    code, out = built("pasted", "--strict")
    assert (
        code == 0 and abs(float(out.splitlines()[-1].rsplit(" has ", 1)[1].split(" dB")[0]) - promised) < 1.5
    )


def test_random_data_is_no_alarm(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = RECIPE.replace('source = "calib.npz"', 'source = "random"\ncount = 12')
    (folder / "random.toml").write_text(text + SPOILT)
    assert main(["build", "random.toml", "--until", "verdict", "--strict"]) == 0
    last = capfd.readouterr().out.splitlines()[-1]
    assert last == "accuracy: the outputs cannot be judged: the calibration samples are random numbers"


@pytest.mark.slow
def test_widths_by_need_are_shown(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Bounds that only 16 bits can serve: what was widened, dB before and after, and the TOML."""
    text = RECIPE.replace('strategy = "none"', "sqnr_db = 50.0")
    (folder / "wide.toml").write_text(text)
    assert main(["build", "wide.toml", "--until", "verdict"]) == 0
    capfd.readouterr()
    assert main(["show", "precision", "wide.toml"]) == 0
    out = capfd.readouterr().out
    assert "[[quantize.overrides]]" in out and "16 bits" in out and "times the cycles" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("y ") and len(line.split()) == 4)
    assert float(row[2]) >= 50.0 > float(row[1])
    capfd.readouterr()
    (folder / "good.toml").write_text(RECIPE)
    assert main(["build", "good.toml", "--until", "verdict"]) == 0
    assert main(["show", "precision", "good.toml"]) == 0
    assert "has the width that the recipe says" in capfd.readouterr().out


def test_the_report_has_the_tables(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "bad.toml", "--out", "out"]) == 0
    capfd.readouterr()
    assert main(["show", "tiling", "bad.toml", "--strategies"]) == 0
    shown = capfd.readouterr().out
    assert "on one core" in shown and ", taken" in shown and "[tiling] without" in shown
    data: dict[str, Any] = json.loads((folder / "out/bad/report.json").read_text())
    assert data["accuracy"]["ok"] is False and data["warnings"][0]["message"] == data["accuracy"]["text"]
    tables = {title: rows for title, _, rows in data["notes"]}
    (row,) = tables["Accuracy: outputs on held-out calibration samples"]
    assert row[0] == "y" and row[-1] == "poor"
    assert 'min-max range for "c2"' in tables["Accuracy: fixes that were applied and help"][0][0]
    assert tables["Accuracy: clipped values, most first"][0][0] == "c2"


def test_nothing_is_said_of_fixes_that_were_not_tried(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "quiet.toml").write_text(RECIPE + "[verdict]\nadvice = false\n" + SPOILT)
    assert main(["build", "quiet.toml", "--until", "verdict"]) == 0
    last = capfd.readouterr().out.splitlines()[-1]
    assert "far from the float model" in last and "was found to help" not in last
    assert "[verdict] advice = true" in last
    assert main(["show", "verdict", "quiet.toml"]) == 0
    shown = capfd.readouterr().out
    assert "no fixes were tried" in shown and "that were tried helps" not in shown


def product(folder: Path, name: str, weight: np.ndarray) -> None:
    """A recipe of one product with a weight of [16, 10]."""
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    held = onnx.numpy_helper.from_array(weight.astype(np.float32), "w")
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1, 16])], [value("y", 1, [1, 10])], [held])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    onnx.save(made, folder / f"{name}.onnx")
    np.savez(folder / "wide.npz", x=np.random.default_rng(5).normal(size=(96, 16)).astype(np.float32))
    (folder / f"{name}.toml").write_text(RECIPE.replace("net.onnx", f"{name}.onnx").replace("calib", "wide"))


def told(name: str, capfd: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    capfd.readouterr()
    code = main(["build", f"{name}.toml", "--until", "verdict", *more])
    return code, capfd.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_the_decibels_of_very_small_numbers_are_those_of_large_ones(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weight = np.random.default_rng(3).normal(size=(16, 10))
    levels = []
    for name, factor in (("plain", 1.0), ("small", 1e-20)):
        product(folder, name, weight * factor)
        _, last = told(name, capfd)
        levels.append(float(last.split(", has ")[1].split(" dB")[0]))
    assert levels[0] < 60 and levels[1] == pytest.approx(levels[0], abs=0.2)
    product(folder, "smaller", weight * 2e-31)             # finer than any scale: nothing is left of it
    code, last = told("smaller", capfd, "--strict")
    assert code == 1 and 'the output "y" is far from' in last
    assert float(last.split("model's: ")[1].split(" dB")[0]) < 5


def test_outputs_that_are_no_numbers_are_not_close(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    weight = np.random.default_rng(3).normal(size=(16, 10))
    weight[3, 7] = np.nan
    product(folder, "broken", weight)
    code, last = told("broken", capfd, "--strict")
    assert code == 1 and 'the output "y" is NaN in the float model itself: 10 % of its values' in last
    assert 'the constant "w" holds 1 NaN' in last


def ended(folder: Path, last: onnx.NodeProto, kind: int, keep: bool) -> None:
    """The recipe's network with an operator of the host behind its output, which is kept beside or not."""
    proto = onnx.load(folder / "net.onnx")
    proto.graph.node.append(last)
    kept = list(proto.graph.output) if keep else []
    del proto.graph.output[:]
    proto.graph.output.extend([onnx.helper.make_tensor_value_info(last.output[0], kind, None), *kept])
    onnx.save(proto, folder / "net.onnx")


@pytest.mark.parametrize("both", [True, False])
def test_an_output_of_the_host_does_not_hide_fixes_of_others(
    folder: Path, capfd: pytest.CaptureFixture[str], both: bool
) -> None:
    """Of a poor output that an operator of the host makes no fixes are measured: those of the other are, or
    the way to the cause is named."""
    whole = onnx.TensorProto.INT32
    ended(folder, onnx.helper.make_node("Cast", ["y"], ["wide"], to=whole), whole, both)
    _, said = told("bad", capfd)
    assert ('try min-max range for "c2"' in said) == both
    assert both or "npuflow why accuracy RECIPE" in said


@pytest.mark.slow
def test_an_output_cast_to_doubles_has_the_fixes_of_what_is_cast(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wide = onnx.helper.make_node("Cast", ["y"], ["wide"], to=onnx.TensorProto.DOUBLE)
    ended(folder, wide, onnx.TensorProto.DOUBLE, keep=False)
    _, said = told("bad", capfd)
    assert 'the output "wide" is far' in said and 'try min-max range for "c2"' in said
