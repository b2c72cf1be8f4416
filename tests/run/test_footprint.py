"""Memory is foreseen from shapes: a step that cannot fit ends the build before anything dear has
run, with a key that helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuflow.base.errors import NpuflowError
from npuflow.flow import executor
from npuflow.flow.events import Event, StepEvent, Warned
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.stage import STAGES
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.run.footprint import footprint
from npuflow.stages import footprints
from npuflow.statistics import segments

SIZE, LAYERS = 64, 20


def network(folder: Path, layers: int = LAYERS) -> Path:
    """A square through products, each with weights as large as it and a bias, and
    point-wise layers between them."""
    value, rng = onnx.helper.make_tensor_value_info, np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(layers):
        w, b = (rng.normal(size=shape).astype(np.float32) / 8 for shape in ((SIZE, SIZE), (SIZE,)))
        weights += [onnx.numpy_helper.from_array(w, f"w{i}"), onnx.numpy_helper.from_array(b, f"b{i}")]
        nodes.append(
            onnx.helper.make_node(
                "Gemm", [f"t{i - 1}" if i else "x", f"w{i}", f"b{i}"], [f"g{i}"], f"product{i}"
            )
        )
        nodes.append(
            onnx.helper.make_node("Tanh", [f"g{i}"], [f"t{i}" if i < layers - 1 else "y"], f"tanh{i}")
        )
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", 1, [SIZE, SIZE])], [value("y", 1, [SIZE, SIZE])], weights
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), folder / "m.onnx"
    )
    np.save(folder / "d.npy", rng.normal(size=(8, SIZE, SIZE)).astype(np.float32))
    path = folder / "r.toml"
    path.write_text(
        'target = "edge-4t"\n[model]\npath = "m.onnx"\n[data]\nsource = "d.npy"\n[correct]\nsamples = 128\n'
    )
    return path


def test_the_footprint_of_a_chain(tmp_path: Path) -> None:
    network(tmp_path)
    graph = FRONTENDS["onnx"]().read((tmp_path / "m.onnx").read_bytes(), Bindings()).graph
    found = footprint(graph, lambda _: True)
    tensor = SIZE * SIZE
    assert found.weights == LAYERS * 4 * (tensor + SIZE)
    assert (found.live, found.codes, found.node) == (2 * tensor * 4, 2 * tensor, 2 * tensor * 4)
    assert found.all_codes == 2 * LAYERS * tensor


def built(
    folder: Path, sets: list[str], monkeypatch: pytest.MonkeyPatch, most: int
) -> tuple[list[Event], list[NpuflowError]]:
    monkeypatch.setattr(segments.tuned, "SEGMENT_WORK", 0)  # a small network has more than one part
    monkeypatch.setattr(executor, "machine", lambda: most)
    loaded, settings = (
        load(folder / "r.toml", sets),
        Settings(cache=folder / "cache", out=folder / "out", jobs=1),
    )
    plan, events = plan_recipe(loaded, STAGES, settings), list[Event]()
    return events, run_plan(plan, loaded, open_cache(loaded, settings), settings, events.append).errors


def ran(events: list[Event]) -> set[str]:
    return {e.stage for e in events if isinstance(e, StepEvent) and e.status == "ran"}


QUICK = {
    "model",
    "hardware",
    "parse",
    "checked",
    "choose",
    "fit",
    "splits",
    "verify",
    "page_library",
    "pixels",
    "placement",
    "segments",
    "footprints",
    "samples",
    "input_check",
    "rewrite_check",
}
TENSOR = SIZE * SIZE * 4


def test_a_float_pass_that_cannot_fit_names_the_key_that_cuts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network(tmp_path)
    events, errors = built(tmp_path, [], monkeypatch, 50 * TENSOR)
    (error,) = (one for one in errors if one.where.stage == "statistics.items")
    assert error.code == "NF-STEP-004" and "of memory, and there are 0.819 MB" in error.message
    assert error.hint.startswith('[statistics] max_memory = "') and "weights" in error.because
    assert ran(events) <= QUICK


@pytest.mark.slow
def test_what_the_hint_says_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network(tmp_path)
    _, errors = built(tmp_path, [], monkeypatch, 50 * TENSOR)
    key = errors[0].hint.split('"')[1]
    _, errors = built(
        tmp_path, [f"statistics.max_memory={key}", "correct.samples=2"], monkeypatch, 50 * TENSOR
    )
    assert not [one for one in errors if one.where.stage == "statistics.items"]


def test_a_step_that_comes_late_is_foreseen_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network(tmp_path, 6)
    monkeypatch.setattr(footprints, "BATCH", 8)
    events, errors = built(tmp_path, ["statistics.max_memory=100kB"], monkeypatch, 12 * TENSOR)
    assert {one.where.stage for one in errors} >= {"correct"} and ran(events) <= QUICK
    assert all("[model] inputs" in one.hint for one in errors if one.where.stage == "correct")


def test_what_would_fit_with_fewer_samples_is_a_warning_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network(tmp_path, 6)
    events, errors = built(tmp_path, [], monkeypatch, 100 * TENSOR)
    assert not errors
    (reported,) = [e for e in events if isinstance(e, Warned) and e.stage == "correct"]
    count = int(reported.hint.rpartition("= ")[2])
    assert reported.hint.startswith("[correct] samples = ") and 2 <= count < 128
    assert "correct will need about" in reported.message
    events, _ = built(tmp_path, [f"correct.samples={count}"], monkeypatch, 100 * TENSOR)
    assert not [e for e in events if isinstance(e, Warned) and e.stage == "correct"]


def test_products_in_the_cache_need_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network(tmp_path, 6)
    built(tmp_path, [], monkeypatch, 1 << 34)
    events, errors = built(tmp_path, [], monkeypatch, 1000)
    assert not errors and not ran(events)


def test_a_machine_with_enough_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network(tmp_path, 6)
    events, errors = built(tmp_path, [], monkeypatch, 1 << 34)
    assert not errors and not [e for e in events if isinstance(e, Warned) and "memory" in e.message]
