"""Builds whose widths are chosen by what a metric loses on labelled samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import NpuflowError
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, build, open_cache
from npuflow.ir.op import OPS
from npuflow.onnx.export import export_model
from npuflow.stages.evaluate import Evaluation
from npuflow.stages.precision import Precision
from tests.networks import recipes
from tests.networks.floats import Net, floats
from tests.precision.harnesses import feeds_of
from tests.tiers import often

RECIPE = recipes.RECIPE.replace("edge-4t", "bm1684x") + """\
[precision]
strategy = "greedy"
weights = [2, 4, 8]
activations = [8]
minimise = "bits"
max_drop = 0.05

# with the observed ranges no mixture of these widths loses nothing
[calibrate]
method = "mse"

[precision.labelled]
source = "labelled.npz"
count = 60

[evaluate]
source = "labelled.npz"
metric = "top1"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("drop")
    net = Net(2, 1, 4, 8, 8)
    net.conv("c1", "x", 8, clip=(0.0, float("inf")))
    net.conv("c2", "c1", 8, clip=(0.0, float("inf")))
    net.add("flat", OPS["reshape"]((1, 512)), "c2")
    net.gemm("logits", "flat", 4)
    graph = net.graph("logits")
    (folder / "net.onnx").write_bytes(export_model(graph))
    feeds = feeds_of(graph, 120)
    labels = np.array([floats(graph, feed)["logits"].argmax() for feed in feeds])
    arrays = np.concatenate([feed["x"] for feed in feeds])
    np.savez(folder / "calib.npz", x=arrays[:40])
    np.savez(folder / "labelled.npz", x=arrays[40:], label=labels[40:])
    (folder / "net.toml").write_text(RECIPE)
    return folder


def made(project: Path, *sets: str, until: str = "precision") -> tuple[Precision, dict[str, str]]:
    result = build(project / "net.toml", sets, cache=project / "cache", until=until, publish=False)
    store = open_cache(load(project / "net.toml", sets), Settings(cache=project / "cache"))
    return store.load(result.outputs["precision"], Precision), dict(result.outputs)


def drop(found: Precision) -> float:
    (one,) = (one for one in found.after if one.drop is not None)
    assert one.drop is not None and one.name == "top1 on 60 labelled samples"
    return one.drop


def test_the_fewest_bits_whose_metric_loses_no_more(project: Path) -> None:
    strict, _ = made(project, "precision.max_drop=0.0")
    loose, _ = made(project, "precision.max_drop=0.3")
    assert strict.holds and loose.holds and drop(strict) <= 0.0 and drop(loose) <= 0.3
    bits = [sum(o.weight_bits or 8 for o in one.overrides) for one in (loose, strict)]
    assert bits[0] < bits[1] or len(loose.overrides) != len(strict.overrides)


def test_samples_that_judge_take_no_part_in_the_evaluation(project: Path) -> None:
    _, outputs = made(project, "precision.max_drop=0.3", until="evaluate")
    store = open_cache(load(project / "net.toml"), Settings(cache=project / "cache"))
    assert store.load(outputs["evaluate"], Evaluation).score.samples == 20


@pytest.mark.parametrize(
    ("sets", "because"),
    often([
        (("precision.weights=[2, 8]", "precision.max_bits=2.0"), "max_bits = 2 binds"),
        (("precision.weights=[2]", "precision.activations=[2]"), "widths do not bind"),
    ], 2),
)
def test_an_unreachable_drop_gives_the_best_and_what_binds(
    project: Path, sets: tuple[str, ...], because: str
) -> None:
    with pytest.raises(NpuflowError, match=r"keeps max_drop = -?0: the best loses 0\.\d+ of top1") as caught:
        made(project, "precision.max_drop=0.0", *sets)
    assert because in caught.value.because and caught.value.where.key == "precision.max_drop"


def test_without_labelled_samples_it_is_one_error(project: Path) -> None:
    text = RECIPE.replace('[precision.labelled]\nsource = "labelled.npz"\ncount = 60\n', "")
    (project / "bare.toml").write_text(text)
    with pytest.raises(NpuflowError, match="max_drop needs labelled samples"):
        build(project / "bare.toml", (), cache=project / "cache", until="precision", publish=False)


def test_a_strategy_that_chooses_nothing_cannot_keep_it(project: Path) -> None:
    with pytest.raises(NpuflowError, match="chooses no widths"):
        made(project, "precision.strategy=none")
