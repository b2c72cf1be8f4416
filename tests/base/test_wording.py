"""Numbers with their nouns, also in what verbs print."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuflow.base.wording import counted, first_line
from npuflow.cli import main
from tests.networks.onnx_text import model


def test_one_is_singular() -> None:
    assert [counted(n, "layer") for n in (0, 1, 2)] == ["0 layers", "1 layer", "2 layers"]
    assert counted(1, "axis", "axes") == "1 axis" and counted(2, "axis", "axes") == "2 axes"


def test_a_network_of_one_node(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.onnx").write_bytes(model("float[1,6] x => float[1,6] y", "y = Relu(x)"))
    assert main(["inspect", str(tmp_path / "one.onnx")]) == 0
    out = capfd.readouterr().out
    assert "before: 1 node\n" in out and "1 nodes" not in out
    assert main(["extract", str(tmp_path / "one.onnx"), "-o", str(tmp_path / "part.onnx")]) == 0
    assert "1 of 1 node, x -> y" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("one\ntwo\n", "one"), ("\n  one\r\ntwo", "one"), ("", "ValueError"), (" \n ", "ValueError"),
        ("x" * 999, "x" * 300),
    ],
)
def test_errors_of_other_packages_in_one_line(said: str, line: str) -> None:
    assert first_line(ValueError(said)) == line
