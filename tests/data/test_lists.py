"""Lists of several files an entry, one for each input of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuflow.base.errors import DataError
from npuflow.base.tables import Location
from npuflow.input.data.config import Data, InputSample, Raw
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples
from npuflow.input.data.steps import DataStep, Normalize
from npuflow.ir.types import TensorType

RNG = np.random.default_rng(0)
KINDS = {"left": TensorType((1, 3, 4, 5)), "right": TensorType((1, 6)), "plain": TensorType((2,))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(3):
        pixels = RNG.integers(0, 256, (4, 5, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        np.save(tmp_path / f"{i}.npy", np.full((6,), i, np.float32))
        np.array([i, -i], "<i2").tofile(tmp_path / f"{i}.bin")
    rows = [f"{i}.png,{i}.npy,{i}.bin,{i + 1}" for i in range(3)]
    (tmp_path / "list.csv").write_text("left,right,plain,label\n" + "\n".join(rows) + "\n")
    lines = ["left,right,plain,label", *rows]
    (tmp_path / "list.txt").write_text("# comment\n" + "\n".join(line.replace(",", "  ") for line in lines))
    entries = [
        {"files": {"left": f"{i}.png", "right": f"{i}.npy", "plain": f"{i}.bin"}, "label": i + 1}
        for i in range(3)
    ]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    return tmp_path


def data(folder: Path, name: str, **more: Any) -> Data:
    return Data(Location(name, folder), raw=Raw("int16", (2,)), choose="first", **more)


def read(table: Data) -> dict[str, InputSample]:
    return dict(samples({name: (one.files, one.detail) for name, one in found(table).items()}))


@pytest.mark.parametrize("name", ["list.csv", "list.txt", "list.json"])
def test_each_input_has_a_file_of_its_own_kind(folder: Path, name: str) -> None:
    half = DataStep(normalize=Normalize(scale=0.5), input="left")
    table = data(folder, name, steps=(half,))
    listed, made = found(table), read(table)
    assert [one.label for one in listed.values()] == [1, 2, 3]
    assert all(len(one.files) == 3 for one in listed.values())
    fed = [one.feed(KINDS) for one in made.values()]
    for i, one in enumerate(fed):
        pixels = np.asarray(Image.open(folder / f"{i}.png"), np.float32).transpose(2, 0, 1)
        assert np.array_equal(one["left"], pixels[None] * np.float32(0.5))
        assert np.array_equal(one["right"], np.full((1, 6), i, np.float32))
        assert np.array_equal(one["plain"], np.float32([i, -i]))


def test_a_broken_file_leaves_its_sample_out(folder: Path) -> None:
    (folder / "1.png").write_bytes(b"no picture")
    broken = [one.broken for one in read(data(folder, "list.csv")).values()]
    assert broken[0] == broken[2] == "" and "1.png" in broken[1]


def test_mistakes_are_one_error_each(folder: Path) -> None:
    text = (folder / "list.csv").read_text()
    (folder / "list.csv").write_text(text.replace("2.npy", "gone.npy"))
    with pytest.raises(DataError, match="1 of 9 files") as caught:
        found(data(folder, "list.csv"))
    assert "gone.npy" in caught.value.because
    (folder / "list.csv").write_text(text + "0.png,0.npy\n")
    with pytest.raises(DataError, match="has 2 columns, its header 4"):
        found(data(folder, "list.csv"))


@pytest.mark.parametrize("text", ["3", "{", '[{"files": 3}]', '[{"files": {"a": 3}}]'])
def test_other_json_is_no_list(folder: Path, text: str) -> None:
    (folder / "list.json").write_text(text)
    with pytest.raises(DataError, match="is not a list of files"):
        found(data(folder, "list.json"))


def test_a_list_of_files_and_labels_is_what_it_was(folder: Path) -> None:
    (folder / "one.csv").write_text("path,class\n0.png,7\n1.png,8\n")
    listed = found(data(folder, "one.csv"))
    assert {name: one.label for name, one in listed.items()} == {"0.png": 7, "1.png": 8}


@pytest.mark.parametrize("name", ["list.csv", "list.txt", "list.json"])
def test_a_list_is_read_once(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, opened = Path.read_text, []

    def counted(path: Path, *given: Any, **more: Any) -> str:
        opened.append(path.name)
        return plain(path, *given, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    found(data(folder, name))
    assert opened == [name]


def test_names_with_blanks_are_no_columns(folder: Path) -> None:
    """The second word of each line is a file as well."""
    for i in range(2):
        (folder / f"a {i}.png").write_bytes((folder / f"{i}.png").read_bytes())
    (folder / "names.txt").write_text("a 0.png\na 1.png\n")
    assert list(found(data(folder, "names.txt"))) == ["a 0.png", "a 1.png"]


def test_a_line_shorter_than_the_header_is_one_error(folder: Path) -> None:
    (folder / "short.csv").write_text("left,right\n0.png\n1.png,1.npy\n")
    with pytest.raises(DataError, match="1 columns, its header 2"):
        found(data(folder, "short.csv"))


def test_a_text_is_no_list_of_files(tmp_path: Path) -> None:
    """Also where its lines are longer than names of files can be."""
    (tmp_path / "story.txt").write_text("It was a dark and stormy night. " * 20 + "\nThe end.\n")
    with pytest.raises(DataError, match=r'2 of 2 files of the list "story.txt" do not exist') as fault:
        found(Data(Location("story.txt", tmp_path)))
    assert 'text = "story.txt"' in fault.value.hint and len(fault.value.because) < 400
