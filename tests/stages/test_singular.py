"""What a build of one layer and one sample says: one of a thing is in the singular."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from npuflow.cli import main
from npuflow.flow.stage import STAGES
from tests.networks.onnx_text import model, normal

NOUNS = (
    "array|axis|axes|channel|code|command|core|element|file|figure|group|image|input|layer|message|network|node|"
    "object|operator|output|part|pixel|point|process|range|record|row|sample|sequence|step|stage|tensor|thread|"
    "tile|trial|value|warning|weight|worker"
)
WRONG = re.compile(rf"(?<![\d.,:/x-])1 (?:more |other |held-out )?(?:(?:{NOUNS})s|axes|processes)\b")
RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "data.npz"
[evaluate]
source = "data.npz"
metric = "sqnr"
"""


def test_wrong_plurals_are_found() -> None:
    assert all(WRONG.search(text) for text in ("1 layers", "of 1 samples", "(1 more tensors)"))
    assert not any(WRONG.search(text) for text in ("1 layer", "11 layers", "0.1 values", "2 of 3 samples"))


def test_a_build_of_one_layer_and_one_sample(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its own lines, the log and the page of every stage, the report."""
    net = model("float[1,6] x => float[1,4] y", "y = MatMul(x, w)", {"w": normal(1, 6, 4)})
    (tmp_path / "net.onnx").write_bytes(net)
    (tmp_path / "net.toml").write_text(RECIPE)
    np.savez(tmp_path / "data.npz", x=normal(2, 1, 6))
    recipe, place = str(tmp_path / "net.toml"), ["--cache", str(tmp_path / "cache")]
    said = {}
    for name, scheduler in (("build", "threads"), ("build by a process", "processes:1")):
        words = ["build", recipe, *place, "--scheduler", scheduler, "--out", str(tmp_path / "out")]
        assert main(words if name == "build" else [*words, "--set", "calibrate.method=mse"]) == 0
        said[name] = "".join(capfd.readouterr())
    for stage in STAGES:
        for more in ([], ["--log"]):
            main(["show", stage, recipe, *place, *more])
            said[f"show {stage} {' '.join(more)}"] = "".join(capfd.readouterr())
    said["report"] = (tmp_path / "out" / "net" / "report.json").read_text()
    assert "1 tensor" in said["show simulate --log"]
    wrong = {where: sorted({found[0] for found in WRONG.finditer(text)}) for where, text in said.items()}
    assert not {where: found for where, found in wrong.items() if found}
