"""What searches judge is what the build makes: the same candidate, with rounded weights, stated codes, inputs
that are fed as codes, and the target's memory and prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow import build
from npuflow.ir.text import to_text
from npuflow.quantise import graph as quantising
from npuflow.quantise.candidate import Candidate
from npuflow.tune import judge
from tests.tiers import often

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples/fashion"
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,28,28] image) => (float[1,10] y) {
    a = Conv<pads=[1,1,1,1], strides=[2,2]>(image, first) b = Relu(a)
    k = Conv<pads=[1,1,1,1]>(b, second) c = Relu(k)
    t = Conv<pads=[1,1,1,1]>(c, third) d = Add(b, t) e = Relu(d)
    f = GlobalAveragePool(e) h = Flatten(f) y = MatMul(h, last) }"""
RECIPE = f"""
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "{EXAMPLE}/calib.npz"
count = 16
[[data.steps]]
normalize = {{ mean = [72.94], std = [90.02] }}
[[data.steps]]
layout = "nchw"
[quantize.weights]
bits = 4
[round]
[moments]
samples = 8
[precision]
strategy = "none"
[correct]
bias = "off"
"""


def candidates(folder: Path, monkeypatch: pytest.MonkeyPatch, *sets: str) -> dict[str, list[Candidate]]:
    """The candidates of one build: those that were "judged", and under "quantize" the one that it is of."""
    found: dict[str, list[Candidate]] = {"judged": [], "quantize": []}
    plain = quantising.build

    def recorded(name: str) -> Any:
        def made(candidate: Candidate) -> quantising.Quantization:
            found[name].append(candidate)
            return plain(candidate)

        return made

    monkeypatch.setattr(judge, "build", recorded("judged"))
    monkeypatch.setattr(quantising, "build", recorded("quantize"))
    proto, rng = parser.parse_model(TEXT), np.random.default_rng(0)
    square = (8, 8, 3, 3)                 # two convolutions in a row, whose channels may be equalised
    for name, shape in (("first", (8, 1, 3, 3)), ("second", square), ("third", square), ("last", (8, 10))):
        weights = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    onnx.save_model(proto, str(folder / "net.onnx"))
    (folder / "net.toml").write_text(RECIPE)
    more = {"until": "quantize", "scheduler": "threads", "publish": False}
    build(folder / "net.toml", sets, cache=folder / "cache", **more)
    return found


def integers(one: Candidate) -> tuple[str, tuple[bytes, ...]]:
    """The quantised graph with all its constants."""
    made = quantising.build(one).graph
    return to_text(made), tuple(array.tobytes() for _, array in sorted(made.consts.items()))


def test_the_ranges_that_win_a_search_are_judged_as_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ('search.methods=["minmax","nstd"]', "search.samples=4", "search.mix=false")
    found = candidates(tmp_path, monkeypatch, *sets)
    (one,) = found["quantize"]
    assert one.weights and one.coded and one.room and one.prices is not None
    judged = {integers(rival) for rival in found["judged"]}
    assert len(judged) > 1 and integers(one) in judged


def test_the_widths_that_a_search_takes_are_judged_as_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ('precision.strategy="greedy"', "precision.sqnr_db=40.0", "precision.samples=4")
    found = candidates(tmp_path, monkeypatch, *sets)
    (one,) = found["quantize"]
    assert one.scheme.overrides, "widths are chosen"
    assert integers(one) in {integers(mixture) for mixture in found["judged"]}


@pytest.mark.parametrize("stage", often(["unify", "equalize"], 2))
def test_what_else_a_judge_sees_is_what_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """But for ranges, which come from samples that do not judge, and, of networks that are changed before
    weights are rounded, for codes of weights."""
    more = ('quantize.weights.per="tensor"',) if stage == "equalize" else ()
    found = candidates(tmp_path, monkeypatch, f"{stage}.samples=8", *more)
    (one,) = found["quantize"]
    assert found["judged"]
    for judged in found["judged"]:
        assert (judged.scheme, judged.coded, judged.room, judged.prices) == (
            one.scheme, one.coded, one.room, one.prices
        )
        assert judged.stated == one.stated and len(judged.placed.places) == len(one.placed.places)
        if stage == "unify":
            assert judged.weights.keys() == one.weights.keys() and judged.weights
