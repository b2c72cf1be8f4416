"""Every fault of a recipe at once: of its tables, its sources, and what the model refuses."""

from __future__ import annotations

from pathlib import Path

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
