"""A recipe's table, exported, edited and fed back: the same integers where nothing was
changed, others where it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow.base.errors import NpuflowError, UsageError
from npuflow.cli._export_table import write
from npuflow.cli._show_statistics import text as statistics
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, build, open_cache, plan_recipe, run_plan
from npuflow.flow.stage import STAGES
from tests.tiers import often

NET = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,4,4,4] y) {
    a = Conv<pads=[1,1,1,1]>(x, k) b = Relu(a) c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b) d =
    Sigmoid(c) y = Mul(c, d) }"""
RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "d.npz"
[calibrate]
method = "percentile"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    rng = np.random.default_rng(0)
    proto = parser.parse_model(NET)
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "k")
    )
    for i, node in enumerate(proto.graph.node):
        node.name = f"n{i}"
    onnx.save_model(proto, str(folder / "net.onnx"))
    np.savez(folder / "d.npz", x=rng.normal(size=(20, 3, 8, 8)).astype(np.float32))
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


@pytest.fixture(autouse=True)
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of `--set` are relative to where one is."""
    monkeypatch.chdir(project)


def quantised(project: Path, *sets: str) -> tuple[str, dict[str, str]]:
    """Digest of the integer graph, and the methods that chose its ranges."""
    settings = Settings(cache=project / "cache", until="qdq")
    recipe = load(project / "recipe.toml", list(sets))
    plan, store = plan_recipe(recipe, STAGES, settings), open_cache(recipe, settings)
    result = run_plan(plan, recipe, store, settings).check()
    last = plan["quantize"].inputs["thresholds"].step
    assert last is not None
    rows = store.open(result.refs[last].digest).json("thresholds")
    return result.refs["quantize"].digest, {name: row["method"] for name, row in rows.items()}


def exported(project: Path, name: str, form: str, codes: bool = False, weights: bool = False) -> Path:
    path = project / name
    reported = write(
        project / "recipe.toml", path, form, codes=codes, weights=weights, sets=[], cache=project / "cache"
    )
    assert reported[0].startswith(f"wrote {path}")
    return path


@pytest.mark.parametrize(
    ("form", "codes", "weights"),
    often(
        [
            ("toml", True, True),
            ("toml", False, False),
            ("json", False, False),
            ("json", True, True),
            ("aimet", False, True),
            ("compass", False, False),
            ("compass_statistics", False, False),
            ("onnxruntime", False, False),
            ("tpu_mlir", False, False),
        ],
        2,
    ),
)
def test_what_was_exported_gives_the_same_integers(
    project: Path, form: str, codes: bool, weights: bool
) -> None:
    plain, _ = quantised(project)
    path = exported(project, f"t{codes:d}.{form}", form, codes, weights)
    again, methods = quantised(project, f'ranges.file="{path.name}"')
    assert again == plain
    assert all(method.startswith(form) for method in methods.values())


def test_a_symmetric_cache_gives_other_ranges(project: Path) -> None:
    path = exported(project, "c.cache", "tensorrt")
    assert quantised(project, f'ranges.file="{path.name}"')[0] != quantised(project)[0]


def test_an_edited_row_counts_and_a_range_by_hand_counts_more(project: Path) -> None:
    path = exported(project, "edit.json", "json")
    rows = json.loads(path.read_text())
    # they share a scale, so one alone would change nothing
    rows["b"]["hi"] = rows["c"]["hi"] = 1.5
    del rows["y"]
    path.write_text(json.dumps(rows))
    digest, methods = quantised(project, 'ranges.file="edit.json"')
    assert (
        digest != quantised(project)[0] and methods["y"] == "percentile" and methods["b"].startswith("json")
    )
    by_hand = 'calibrate.layers=[{layers=["n1"],range=[0.0,1.5]}]'
    assert quantised(project, 'ranges.file="edit.json"', by_hand)[1]["b"] == "by hand"
    with pytest.raises(NpuflowError, match="has no entry for 1 tensor;"):
        quantised(project, 'ranges.file="edit.json"', 'ranges.missing="error"')


def test_other_names_are_mapped_and_strangers_refused(project: Path) -> None:
    (project / "s.json").write_text(
        '{"n1": {"lo": 0, "hi": 3}, "c_MaxPool": {"lo": 0, "hi": 3}, "zzz": {"lo": 0, "hi": 1}}'
    )
    _, methods = quantised(project, 'ranges.file="s.json"')
    assert methods["b"] == "json" and methods["c"] == "json" and methods["y"] == "percentile"
    _, methods = quantised(project, 'ranges.file="s.json"', "ranges.names={y='zzz'}")
    assert methods["y"] == "json"
    (project / "none.json").write_text('{"zzz": {"lo": 0, "hi": 1}}')
    with pytest.raises(NpuflowError, match="no row of the table"):
        quantised(project, 'ranges.file="none.json"')


def test_the_table_of_statistics(project: Path) -> None:
    quantised(project)
    reported = statistics(project / "recipe.toml", [], project / "cache", [], project / "h.svg")
    lines = reported.splitlines()
    assert lines[0] == "4 tensors, 11 samples" and lines[2].split()[:3] == ["tensor", "low", "high"]
    assert any(line.startswith("b ") and "percentile" in line for line in lines)
    assert (project / "h.svg").read_text().startswith("<svg")
    assert "1 tensor, 11 samples" in statistics(project / "recipe.toml", [], project / "cache", ["b"], None)
    random = ['data.source="random"', "data.count=2"]
    made = build(
        project / "recipe.toml", random, cache=project / "cache", out=project / "out", until="statistics"
    )
    made.check()
    reported = statistics(project / "recipe.toml", random, project / "cache", ["b"], None).splitlines()
    assert reported[0] == "1 tensor, 1 sample; RANDOM DATA, which means nothing for real inputs"
    with pytest.raises(UsageError, match='no tensor is called "q"'):
        statistics(project / "recipe.toml", [], project / "cache", ["q"], None)
    with pytest.raises(UsageError, match=r"neither .svg nor .png"):
        statistics(project / "recipe.toml", [], project / "cache", [], project / "h.bmp")


FOLDED = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
    a = Conv<pads=[1,1,1,1]>(x, k) b = BatchNormalization(a, one, one, one, one) y = Relu(b) }"""


def test_rows_are_those_that_a_tool_takes(project: Path, tmp_path: Path) -> None:
    """AIMET refuses tensors that the model lacks; onnxruntime needs those in front of a Relu, too."""
    proto = parser.parse_model(FOLDED)
    rng = np.random.default_rng(1)
    held = {"k": rng.normal(size=(4, 3, 3, 3)), "one": np.ones(4)}
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in held.items()
    )
    onnx.save_model(proto, str(tmp_path / "net.onnx"))
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("d.npz", str(project / "d.npz")))
    settings = {"codes": False, "sets": [], "cache": tmp_path / "cache"}
    said = write(tmp_path / "recipe.toml", tmp_path / "a", "aimet", weights=True, **settings)
    rows = json.loads((tmp_path / "a").read_text())
    assert {r["name"] for r in rows["activation_encodings"]} == {"x", "y"} and not rows["param_encodings"]
    assert "1 tensor that the compiler made (folded weights) left out" in said[1]
    said = write(tmp_path / "recipe.toml", tmp_path / "o", "onnxruntime", weights=False, **settings)
    assert "3 tensors" in said[0]
    held = json.loads((tmp_path / "o").read_text())["data"]
    assert set(held) == {"x", "b", "y"} and held["b"] == held["y"]
    judge = pytest.importorskip("onnxruntime.quantization.calibrate")
    if hasattr(judge, "load_tensors_data"):              # since onnxruntime 1.32
        read = judge.load_tensors_data(tmp_path / "o")
        assert float(read["b"].highest) == np.float32(held["b"]["highest"]["data"]) > 0
