"""Networks that end in a ranking, built whole: layers stay on the NPU, values keep their types, and what is
chosen is what onnxruntime chooses on the program's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import npuflow
from npuflow.ir.codes import decode, encode
from npuflow.ir.types import QuantType
from npuflow.testing.target import load
from tests.ops.programs import decibels, types_of
from tests.ops.ranking_heads import HEADS, Array, Head
from tests.tiers import covering, tiered

TARGETS = sorted((Path(npuflow.__file__).parent / "targets").glob("*.toml"))
INTEGERS = [path.stem for path in TARGETS if load(path).numerics.integers]
NEAR = {"centers": ("scores", "off", "size", "values"), "queries": ("probable", "places", "values"),
        "classifier": ("likely", "values")}
ALIKE = ("at", "classes")                 # positions, and what whole numbers make of them
PLAIN: dict[str, Any] = {
    "precision": {"strategy": "none"}, "correct": {"bias": "off"}, "round": {"method": "nearest"},
    "verdict": {"advice": False},
}


@dataclass(frozen=True)
class Built:
    """A build and its program's outputs on new samples, beside the float network's, and beside those of the
    nodes behind the ranking on what the program has in front of it."""

    share: float
    host_macs: int
    made: Mapping[str, Array]
    real: Mapping[str, Array]
    ranked: Mapping[str, Array]


def built(head: Head, target: str, folder: Path, samples: int, **tables: Any) -> Built:
    path = folder / "network.onnx"
    path.write_bytes(head.network)
    build = npuflow.compile(
        path, target, data={"x": head.samples(1, samples)}, cache=folder / "cache", out=folder / "out",
        jobs=1, **tables,
    )
    program, feeds = build.products["program"], [{"x": x} for x in head.samples(2, 16)]
    with npuflow.Runner(program) as runner:
        made = [dict(runner.run(feed)) for feed in feeds]
    types = types_of(program)
    read = [{k: _as_read(m[k], types.get(k)) for k in head.read} for m in made]
    summary = build.artifact(build._source("codegen", "quantized")).summary()
    return Built(
        summary["npu_macs"], summary["host_macs"], {k: np.stack([m[k] for m in made]) for k in made[0]},
        _ran(head.network, feeds), _ran(head.ranking(), read),
    )


def _as_read(made: Array, quant: QuantType | None) -> Array:
    """What the ranking has in front of it: codes, or the numbers themselves where the host computes them (two
    targets have no Softmax, and so it and the ranking behind it are the host's)."""
    return made if quant is None else decode(encode(made, quant), quant).astype(np.float32)


def _ran(network: bytes, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    rows = [session.run(names, feed) for feed in feeds]
    return {name: np.stack([row[k] for row in rows]) for k, name in enumerate(names)}


def _chosen_as_onnxruntime(found: Built) -> None:
    for name in set(ALIKE) & set(found.ranked):
        np.testing.assert_array_equal(found.made[name], found.ranked[name])
    for name in set(found.ranked) - set(ALIKE):
        assert decibels(found.ranked[name], found.made[name]) > 28, name


@pytest.mark.slow
def test_a_classifier_with_its_best_classes(tmp_path: Path) -> None:
    found = built(HEADS["classifier"](), "edge-4t", tmp_path, 24)
    assert (found.share, found.host_macs) == (1.0, 0)
    _chosen_as_onnxruntime(found)
    for name in NEAR["classifier"]:
        assert decibels(found.real[name], found.made[name]) > 28, name


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["centers", "queries"])
def test_heads_by_defaults(name: str, tmp_path: Path) -> None:
    found = built(HEADS[name](), "edge-4t", tmp_path, 64)
    assert (found.share, found.host_macs) == (1.0, 0)
    _chosen_as_onnxruntime(found)
    for output in NEAR[name]:
        assert decibels(found.real[output], found.made[output]) > 28, output


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "target"),
    tiered([(name, target) for name in HEADS for target in INTEGERS], covering(list(HEADS), INTEGERS, 5)),
)
def test_heads_on_every_target(name: str, target: str, tmp_path: Path) -> None:
    """By the narrowest widths, without searches. Two targets multiply by constants alone: their host has the
    products of an attention."""
    found = built(HEADS[name](), target, tmp_path, 32, **PLAIN)
    if name != "queries" or not target.startswith("dpu"):
        assert (found.share, found.host_macs) == (1.0, 0)
    _chosen_as_onnxruntime(found)
