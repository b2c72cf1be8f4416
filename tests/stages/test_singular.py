"""What a build of one layer and one sample says: one of a thing is in the singular."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from npuflow.cli import main
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
    """Its own lines, what its steps logged, the pages of some, the report."""
    net = model("float[1,6] x => float[1,4] y", "y = MatMul(x, w)", {"w": normal(1, 6, 4)})
    (tmp_path / "net.onnx").write_bytes(net)
    (tmp_path / "net.toml").write_text(RECIPE)
    np.savez(tmp_path / "data.npz", x=normal(2, 1, 6))
    recipe, place = str(tmp_path / "net.toml"), ["--cache", str(tmp_path / "cache")]
    assert main(["build", recipe, *place, "--out", str(tmp_path / "out")]) == 0
    said = {"build": "".join(capfd.readouterr())}
    for path in (tmp_path / "cache" / "records").glob("*/*"):
        record = json.loads(path.read_text())["body"]
        said[record["stage"]] = f"{record['log']}\n{record['summary']}"
    assert "equal on 1 sample," in said["simulate"] and len(said) > 20
    for stage in ("parse", "statistics", "quantize", "fidelity", "evaluate", "verdict", "tiling"):
        assert main(["show", stage, recipe, *place]) == 0
        said[f"show {stage}"] = "".join(capfd.readouterr())
    said["report"] = (tmp_path / "out" / "net" / "report.json").read_text()
    wrong = {where: sorted({found[0] for found in WRONG.finditer(text)}) for where, text in said.items()}
    assert not {where: found for where, found in wrong.items() if found}
