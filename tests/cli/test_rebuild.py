"""A real network: one changed layer rebuilds only what it reaches, `plan` says so beforehand, and
the next build does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import Ran

from npuflow.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/fashion"
RECIPE = f"""target = "edge-4t"
[model]
path = "{EXAMPLE}/fashion.onnx"
inputs = {{ image = [1, 1, 28, 28] }}
[data]
source = "{EXAMPLE}/calib.npz"
count = 4
[[data.steps]]
normalize = {{ mean = [72.94], std = [90.02] }}
[[data.steps]]
layout = "nchw"
[precision]
strategy = "none"
[tiling]
level = 1
"""
FASHION = RECIPE.replace("count = 4", "count = 24")
FOUR = '--set=quantize.overrides=[{layers=["/classify/classify.1/Gemm"], weight_bits=4}]'
# thresholds fit their bits
ABOVE = {"samples", "model", "parse", "placement", "segments", "statistics.items", "statistics"}

# they run the network as it is quantised
JUDGED = {"clipping", "baseline", "sensitivity", "width_costs", "precision", "correct"}
SEARCH = {"costs.layers", "costs.tiles", "costs.runs", "costs.groups", "costs", "tiling"}


def call(capfd: pytest.CaptureFixture[str], *args: str) -> Ran:
    capfd.readouterr()
    code = main([args[0], "net.toml", "--cache", "cache", "--until", "codegen", "--json", *args[1:]])
    out, err = capfd.readouterr()
    assert code == 0, err
    return Ran(code, out, err)


def stages(ran: Ran, *status: str) -> set[str]:
    return {line["stage"] for line in ran.lines[:-1] if line["event"] == "step" and line["status"] in status}


def test_a_change_of_one_layers_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NPUFLOW_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.toml").write_text(RECIPE)
    first = call(capfd, "build")
    assert stages(first, "ran") >= ABOVE | {"thresholds", "quantize", "tiling", "codegen"}
    again = call(capfd, "build")
    assert again.lines[-1]["ran"] == again.lines[-1]["failed"] == 0

    planned = call(capfd, "plan", FOUR)
    assert stages(planned, "run", "maybe") & ABOVE == set()
    rounding = {"moments", "moments.picked", "moments.grids", "moments.columns"}
    rounding |= {"rounded", "rounded.items", "rounded.schemes"}
    assert (
        stages(planned, "run", "maybe")
        == {"checked", "thresholds", "quantize", "codegen"} | JUDGED | rounding | SEARCH
    )

    changed = call(capfd, "build", FOUR)
    assert stages(changed, "ran") <= stages(planned, "run", "maybe") and "codegen" in stages(changed, "ran")
    assert changed.lines[-1]["outputs"]["codegen"] != first.lines[-1]["outputs"]["codegen"]
    assert call(capfd, "build", FOUR).lines[-1]["ran"] == 0
    assert call(capfd, "build").lines[-1]["outputs"] == first.lines[-1]["outputs"]
