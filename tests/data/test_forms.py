"""Data as people have them: folders as classes, lists with labels, plain numbers, a reader of files."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import AbsentError, DataError
from npuflow.base.tables import Location
from npuflow.input.data.config import Data
from npuflow.input.data.listing import found
from tests.data.sources import loaded, painted, table


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return painted(tmp_path)


def labels(data: Data) -> dict[str, object]:
    return {name: one.label for name, one in found(data).items()}


def test_folders_are_classes(pictures: Path) -> None:
    for kind, name in (("dog", "p0.png"), ("cat", "p1.jpg"), ("dog", "p2.webp")):
        (pictures / "set" / kind).mkdir(parents=True, exist_ok=True)
        shutil.copy(pictures / name, pictures / "set" / kind / name)
    given = labels(table(pictures, "set", class_folders=True))
    assert given == {"cat/p1.jpg": 0, "dog/p0.png": 1, "dog/p2.webp": 1}
    assert set(labels(table(pictures, "set")).values()) == {None}
    taken = found(table(pictures, "set", class_folders=True, choose="balanced", count=2))
    assert {name.split("/")[0] for name in taken} == {"cat", "dog"}
    with pytest.raises(DataError, match="no folder of a class"):
        found(table(pictures, "*.png", class_folders=True))


def test_lists_with_labels(pictures: Path) -> None:
    shutil.copy(pictures / "p0.png", pictures / "two words.png")
    (pictures / "list.txt").write_text("# file label\np0.png 3\np1.jpg 1|4\ntwo words.png 7\np2.webp\n")
    wanted = {"p0.png": 3, "p1.jpg": [1, 4], "two words.png": 7, "p2.webp": None}
    assert labels(table(pictures, "list.txt")) == wanted
    rows = [{"file": "p0.png", "label": 3}, "p1.jpg", {"file": "p2.webp"}]
    (pictures / "list.json").write_text(json.dumps(rows))
    assert labels(table(pictures, "list.json")) == {"p0.png": 3, "p1.jpg": None, "p2.webp": None}
    (pictures / "map.json").write_text(json.dumps({"p0.png": [1, 2], "p1.jpg": 5}))
    assert labels(table(pictures, "map.json")) == {"p0.png": [1, 2], "p1.jpg": 5}
    (pictures / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert labels(table(pictures, "rows.jsonl")) == labels(table(pictures, "list.json"))
    (pictures / "bad.jsonl").write_text('{"file": "p0.png"}\n{"label": 3}\n')
    with pytest.raises(DataError, match="not a list of files"):
        found(table(pictures, "bad.jsonl"))
    for wrong in ("{", "3", "[3]", '[{"label": 3}]', '["absent.png"]'):
        (pictures / "bad.json").write_text(wrong)
        with pytest.raises(DataError):
            found(table(pictures, "bad.json"))


def test_plain_numbers(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(-9, 9, (3, 2, 4)).astype(np.int16)
    rows.tofile(tmp_path / "all.bin")
    rows[1].tofile(tmp_path / "one.raw")
    raw = {"dtype": "int16", "shape": [2, 4]}
    done = loaded(table(tmp_path, ".", raw=raw))
    assert list(done) == ["all.bin#0", "all.bin#1", "all.bin#2", "one.raw"]
    assert all((done[f"all.bin#{i}"].arrays[""] == rows[i]).all() for i in range(3))
    assert (done["one.raw"].arrays[""] == rows[1]).all()
    with pytest.raises(DataError, match="no whole samples"):
        found(table(tmp_path, "all.bin", raw={"dtype": "int16", "shape": [5]}))
    (tmp_path / "list.txt").write_text("all.bin\n")
    with pytest.raises(DataError, match="plain numbers"):
        found(table(tmp_path, "list.txt"))


def test_a_function_reads_files(tmp_path: Path) -> None:
    """Its code is part of the samples' keys, and its faults name it."""
    (tmp_path / "own_reader.py").write_text(
        "import numpy as np\n\n\ndef read(path):\n    return {'x': 2 * np.fromfile(path, 'u1')}\n"
        "\n\ndef fails(path):\n    raise ValueError('not mine')\n"
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.dat").write_bytes(b"\1\2")
    place = Location("python:own_reader:read", tmp_path)
    base = table(tmp_path, "in")
    data = Data(**{**{f: getattr(base, f) for f in base.__dataclass_fields__}, "reader": place})
    assert loaded(data)["a.dat"].arrays["x"].tolist() == [2, 4]
    (detail,) = (one.detail for one in found(data).values())
    assert detail["code"] and detail["function"] == "read"
    other = Data(
        **{
            **{f: getattr(base, f) for f in base.__dataclass_fields__},
            "reader": Location("python:own_reader:fails", tmp_path),
        }
    )
    assert 'own_reader.fails fails on "a.dat"' in loaded(other)["a.dat"].broken
    assert "not mine" in loaded(other)["a.dat"].broken


READERS = """import numpy as np


def read(path):
    return np.frombuffer(path.read_bytes(), "<f4").reshape(2)


def ragged(path):
    return [[1.0], [2.0, 3.0]] if path.stem == "b" else [1.0, 2.0]


def needs(path):
    import a_package_that_is_not_there


def beside(path):
    open(path.parent / "a_table_that_is_not_there")
"""


def test_a_file_that_a_function_cannot_read_is_left_out_as_a_picture_is(tmp_path: Path) -> None:
    """But not where something else is missing: what is kept of a sample is kept for good."""
    (tmp_path / "readers_of_files.py").write_text(READERS)
    (tmp_path / "in").mkdir()
    for name, held in (("a", bytes(8)), ("b", b"cut"), ("c", bytes(8))):
        (tmp_path / "in" / f"{name}.dat").write_bytes(held)
    base = table(tmp_path, "in")
    for name in ("read", "ragged"):
        found_ = loaded(replace(base, reader=Location(f"python:readers_of_files:{name}", tmp_path)))
        assert [bool(one.broken) for one in found_.values()] == [False, True, False], name
        assert found_["c.dat"].arrays[""].shape == (2,) and 'fails on "b.dat"' in found_["b.dat"].broken
    for name, said in (("needs", "No module named"), ("beside", "a_table_that_is_not_there")):
        with pytest.raises(DataError, match=said):
            loaded(replace(base, reader=Location(f"python:readers_of_files:{name}", tmp_path)))


def test_what_is_no_file_or_folder_says_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    for source, what in (
        ("/dev/null", "/dev/null is a device"),
        ("pipe", "is a pipe"),
        ("link", "is a link to nowhere, which is not there"),
    ):
        with pytest.raises(AbsentError) as raised:
            found(table(tmp_path, source))
        assert raised.value.message == f'"{source}" is no file or folder of samples'
        assert what in raised.value.because and ".npy" in raised.value.hint
    with pytest.raises(AbsentError, match='no data at "none"'):
        found(table(tmp_path, "none"))
