"""Every fault of a recipe at once: of its tables, its sources, and what the model refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import build
from npuflow.base.errors import NpuflowError

MODEL = Path(__file__).parents[2] / "examples/fashion/fashion.onnx"
BEGIN = f'target = "edge-4t"\n[model]\npath = "{MODEL}"\n'
DATA = '[data]\nsource = "gone"\n'
EVALUATE = '[evaluate]\nsource = "gone too/*.png"\nmetric = "agreement"\n'
LABELLED = '[evaluate]\nsource = "lost"\nmetric = "top1"\n'


def faults(folder: Path, text: str) -> list[tuple[str | None, str]]:
    """Key and code of every fault, in the order in which they are told."""
    (folder / "r.toml").write_text(text)
    with pytest.raises(NpuflowError) as raised:
        build(folder / "r.toml", cache=folder / "cache", out=folder / "out")
    found = raised.value.faults()
    assert all(one.where.file and one.where.line for one in found)
    return [(one.where.key, one.code) for one in found]


def test_all_sources_that_are_not_there(tmp_path: Path) -> None:
    assert sorted(faults(tmp_path, BEGIN + DATA + LABELLED)) == [
        ("data.source", "NF-DATA-010"), ("evaluate.source", "NF-DATA-010"),
    ]
    assert sorted(faults(tmp_path, BEGIN + DATA + EVALUATE)) == [
        ("data.source", "NF-DATA-010"), ("evaluate.source", "NF-DATA-040"),
    ]


def test_a_source_that_is_not_there_in_a_table_with_other_faults(tmp_path: Path) -> None:
    text = BEGIN + DATA + "count = 0\n" + LABELLED + "labells = 3\n[quantize]\nfoo = 1\n"
    assert sorted(faults(tmp_path, text)) == [
        ("data.count", "NF-RECIPE-011"),
        ("data.source", "NF-DATA-010"),
        ("evaluate.labells", "NF-RECIPE-008"),
        ("evaluate.source", "NF-DATA-010"),
        ("quantize.foo", "NF-RECIPE-008"),
    ]


def test_a_target_that_is_not_there_hides_no_source(tmp_path: Path) -> None:
    text = BEGIN.replace("edge-4t", "edge-44t") + DATA + LABELLED
    assert sorted(faults(tmp_path, text)) == [
        ("data.source", "NF-DATA-010"), ("evaluate.source", "NF-DATA-010"), ("target", "NF-RECIPE-031"),
    ]


def test_what_follows_from_a_faulty_key_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "numbers.bin").write_bytes(bytes(64))
    text = BEGIN + '[data]\nsource = "numbers.bin"\nraw = { dtype = "float33", shape = [16] }\n'
    assert [key for key, _ in faults(tmp_path, text)] == ["data.raw.dtype"]


def test_what_the_model_refuses_is_told_beside_the_sources(tmp_path: Path) -> None:
    found = faults(tmp_path, BEGIN + "inputs = { imag = [1, 1, 28, 28] }\n" + DATA)
    assert ("data.source", "NF-DATA-010") in found
    assert [key for key, _ in found if key != "data.source"] == ["model.inputs.imag"]


def test_with_keep_going_the_rest_is_built(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(BEGIN + DATA)
    with pytest.raises(NpuflowError) as raised:
        build(tmp_path / "r.toml", cache=tmp_path / "cache", out=tmp_path / "out", keep_going=True)
    assert raised.value.code == "NF-DATA-010"
    assert list((tmp_path / "cache/records").rglob("*.json"))  # what parse and others gave


NINE = f"""target = "edge-4t"
[model]
path = "{MODEL}"
[calibrat]
method = "kl"
[calibrate]
bounds = [3.0, -3.0]
[data]
source = "gone"
cuont = 3
[precision]
sqnr_db = 500
strategy = "ilp"
weights = [4, 8]
max_bytes = 0.5
[quantize.activations]
bits = "eight"
[[quantize.overrides]]
layers = ["nobody"]
bits = 16
[round]
layers = [{{ layers = ["nowhere"], method = "nearest" }}]
[tiling]
keep = ["nothing"]
[evaluate]
source = "images.npz"
metric = "top1"
count = 4
"""
KEYS = {
    "calibrat", "calibrate.bounds", "data.source", "data.cuont", "precision.sqnr_db",
    "quantize.activations.bits", "quantize.overrides[0].layers", "round.layers[0].layers", "tiling.keep[0]",
    "evaluate.metric",
}


def images(folder: Path) -> None:
    """Samples without labels."""
    np.savez(folder / "images.npz", image=np.zeros((4, 28, 28), np.uint8))


def test_faults_of_tables_hide_none_that_the_model_shows(tmp_path: Path) -> None:
    """Faults of tables, sources, labels and names of layers are told by one build."""
    images(tmp_path)
    found = [key for key, _ in faults(tmp_path, NINE)]
    assert set(found) >= KEYS and len(found) == len(set(found))
    mended = NINE.replace("[calibrat]", "[calibrate]").replace("[calibrate]\nbounds = [3.0, -3.0]", "")
    for wrong, right in (
        ('"gone"', f'"{MODEL.parent}/calib.npz"'), ("cuont", "count"), ("500", "50"), ('"eight"', "8"),
        ('"nobody"', '"conv"'), ('"nowhere"', '"conv"'), ('keep = ["nothing"]', ""),
    ):
        mended = mended.replace(wrong, right)
    left = [key for key, _ in faults(tmp_path, mended)]
    assert set(left) == {"precision.max_bytes", "evaluate.metric"}


def test_labels_that_a_metric_lacks_are_told_before_anything_is_built(tmp_path: Path) -> None:
    images(tmp_path)
    evaluate = '[evaluate]\nsource = "images.npz"\nmetric = "top1"\ncount = 4\n'
    assert ("evaluate.metric", "NF-METRIC-003") in faults(tmp_path, BEGIN + DATA + evaluate)


def test_names_are_looked_up_where_the_data_are_not_there(tmp_path: Path) -> None:
    text = BEGIN + DATA + '[[quantize.overrides]]\nlayers = ["nobody"]\nbits = 16\n'
    assert [key for key, _ in faults(tmp_path, text)] == ["data.source", "quantize.overrides[0].layers"]


def test_what_a_faulty_target_would_say_is_not_told(tmp_path: Path) -> None:
    text = BEGIN.replace("edge-4t", "edge-44t") + DATA + '[quantize.weights]\nbits = 16\nsymmetric = false\n'
    assert {key for key, _ in faults(tmp_path, text)} == {"target", "data.source"}
