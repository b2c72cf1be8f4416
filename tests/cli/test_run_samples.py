"""Inputs from folders, numbered sequences, patterns and standard input; progress of long runs."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import DataError, UsageError
from npuflow.cli._input_files import files_of, input_sets, natural
from npuflow.cli._inputs import Port
from npuflow.cli._run_samples import every_sample, run_samples
from npuflow.cli._slow import Slow

X, Y = Port("x", "float32", (1, 2)), Port("y", "float32", (1, 1))


class Sums:
    """A model whose output is the sum of its inputs; it notes how many samples it is given at a time."""

    def __init__(self, *ports: Port) -> None:
        self.ports, self.preparation, self.notes = ports, None, ()
        self.given: list[int] = []

    def run(self, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        self.given.append(len(samples))
        return [{"sum": np.array(sum(float(a.sum()) for a in one.values()))} for one in samples]


def results(model: Sums, *paths: Path, batch: int = 8) -> list[float]:
    outputs, several = run_samples(model, list(paths), None, batch)
    assert several == (len(outputs) > 1)
    return [float(one["sum"]) for one in outputs]


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for i in (1, 2, 10, 11):
        np.save(folder / f"f{i}.npy", np.array([[i, 0.0]], np.float32))
    (folder / "notes.txt").write_text("not an input")
    return folder


def test_a_folder_a_sequence_a_pattern_and_a_list_are_the_same_samples(frames: Path) -> None:
    files = [frames / f"f{i}.npy" for i in (1, 2, 10, 11)]
    for paths in ([frames], [frames / "f%d.npy"], [frames / "f*.npy"], files):
        assert results(Sums(X), *paths) == [1, 2, 10, 11]
    assert results(Sums(X), frames / "f1?.npy") == [10, 11] and results(Sums(X), files[0]) == [1]
    assert [p.name for p in files_of(frames / "f%04d.npy", frames)] == [
        "f1.npy",
        "f2.npy",
        "f10.npy",
        "f11.npy",
    ]
    assert sorted(["a10", "a9", "b1", "a"], key=natural) == ["a", "a9", "a10", "b1"]


def test_samples_are_run_some_at_a_time(frames: Path) -> None:
    np.save(frames / "f3.npy", np.ones((7, 2), np.float32))
    model = Sums(X)
    assert results(model, frames, batch=1) == [1, 2, *[2.0] * 7, 10, 11]
    assert max(model.given) == 4 and sum(model.given) == 11


def test_several_inputs_take_a_folder_each_or_npz_files(frames: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for i in range(4):
        np.save(other / f"{i}.npy", np.array([[100.0 * i]], np.float32))
    assert results(Sums(X, Y), frames, other) == [1, 102, 210, 311]
    (other / "3.npy").unlink()
    with pytest.raises(UsageError, match="7 input files for 2 inputs"):
        results(Sums(X, Y), frames, other)
    packed = tmp_path / "packed"
    packed.mkdir()
    for i in range(2):
        np.savez(packed / f"{i}.npz", x=np.array([[i, 1.0]], np.float32), y=np.array([[5.0]], np.float32))
    assert results(Sums(X, Y), packed) == [6, 7]
    assert results(Sums(X, Y), packed / "0.npz", packed / "1.npz") == [6, 7]
    for name in ("x", "y"):
        np.savez(tmp_path / f"{name}.npz", **{name: np.ones((1, 1 + (name == "x")), np.float32)}, note=[1])
    parts = [tmp_path / "x.npz", tmp_path / "y.npz"]
    assert results(Sums(X, Y), *parts) == [3]
    with pytest.raises(DataError, match='no data for the input "y"') as raised:
        results(Sums(X, Y), packed / "0.npz", parts[0])
    assert str(parts[0]) in raised.value.because
    single = input_sets([frames / "f1.npy", other / "0.npy"], ("x", "y"), tmp_path)
    assert single == [[frames / "f1.npy", other / "0.npy"]]


def test_golden_and_raw_take_what_run_takes(
    frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [frames / f"f{i}.npy" for i in (1, 2, 10, 11)]
    for paths in ([frames], [frames / "f%d.npy"], files):
        assert [float(one["x"].sum()) for one in every_sample(paths, [X], None)] == [1, 2, 10, 11]
    held = io.BytesIO()
    np.save(held, np.array([[5.0, 0.0]], np.float32))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(held.getvalue())))
    assert [float(one["x"].sum()) for one in every_sample([Path("-")], [X], None)] == [5]
    (tmp_path / "p.png").write_bytes(b"")
    with pytest.raises(UsageError, match="channels-last"):
        every_sample([tmp_path], [X], None, pictures=False)


def test_arrays_that_do_not_fit_say_what_would(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 5), np.float32))
    with pytest.raises(DataError) as raised:
        every_sample([tmp_path / "x.npy"], [X], None)
    assert raised.value.code == "NF-DATA-014" and raised.value.because and raised.value.hint
    for name in ("junk.npz", "junk.npy"):
        for content in (b"junk", b"PK\x03\x04junk", b""):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataError, match="is not a readable") as raised:
                every_sample([tmp_path / name], [X], None)
            assert raised.value.because and "pickle" not in raised.value.because


def test_one_sample_may_lack_the_batch_axis(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([3.0, 4.0], np.float32))
    (one,) = every_sample([tmp_path / "x.npy"], [X], None)
    assert one["x"].shape == (1, 2)


def test_what_is_no_input_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("none.png", "none.npz", "none.npy", "none"):
        with pytest.raises(DataError, match=f'no file ".*{name}"'):
            files_of(tmp_path / name, tmp_path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"junk")))
    with pytest.raises(DataError, match="standard input is neither") as raised:
        files_of(Path("-"), tmp_path)
    assert str(tmp_path) not in str(raised.value)


def test_nothing_found_is_an_error(frames: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", frames / "g%d.npy", frames / "*.bmp"):
        with pytest.raises(DataError, match="has no input"):
            files_of(path, tmp_path)


def test_what_is_done_to_pictures_is_said_of_those_in_folders_too(frames: Path, tmp_path: Path) -> None:
    from PIL import Image

    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(3):
        Image.new("L", (2, 2), i).save(pictures / f"{i}.png")
    for folder, count in ((pictures, 1), (frames, 0)):
        said: list[str] = []
        port = Port("x", "float32", (1, 1, 2, 2)) if count else X
        run_samples(Sums(port), [folder], None, note=said.append)
        assert len(said) == count and all("no preprocessing is stated" in text for text in said)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".png"])
def test_standard_input(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = io.BytesIO()
    if suffix == ".png":
        from PIL import Image

        Image.new("L", (2, 2), 5).save(held, "PNG")
    else:
        array = np.array([[3.0, 4.0]], np.float32)
        np.save(held, array) if suffix == ".npy" else np.savez(held, x=array)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(held.getvalue())))
    port = Port("x", "float32", (1, 1, 2, 2)) if suffix == ".png" else X
    assert results(Sums(port), Path("-")) == [20.0 if suffix == ".png" else 7.0]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    with pytest.raises(DataError, match="standard input is empty"):
        results(Sums(X), Path("-"))


def picture(form: str, grey: int, **more: Any) -> bytes:
    from PIL import Image

    held = io.BytesIO()
    Image.new("L" if form == "PPM" else "RGB", (16, 16), grey if form == "PPM" else (grey,) * 3).save(
        held, form, **more
    )
    return held.getvalue()


def arrays(form: str, number: float) -> bytes:
    held, array = io.BytesIO(), np.array([[number, 0.0]], np.float32)
    np.save(held, array) if form == "npy" else np.savez(held, x=array)
    return held.getvalue()


def given(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    return Path("-")


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "BMP", "PPM"])
def test_pictures_behind_each_other_are_samples(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `cat *.png |` and video tools write them; also of several formats."""
    more = {"lossless": True} if form == "WEBP" else {"quality": 100} if form == "JPEG" else {}
    one, port = 16 * 16 * 3, Port("x", "float32", (1, 3, 16, 16))
    content = b"".join(picture(form, grey, **more) for grey in (1, 2, 3)) + picture("PNG", 7)
    found = results(Sums(port), given(content, monkeypatch))
    assert found == [one, 2 * one, 3 * one, 7 * one]


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_arrays_behind_each_other_are_samples(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(arrays(form, i) for i in range(12)) + arrays("npy", 12)
    assert results(Sums(X), given(content, monkeypatch)) == list(range(13))


def test_pictures_that_a_picture_carries_are_not_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """JPEG files of telephones hold a second picture behind the first, under an index."""
    from PIL import Image

    held = io.BytesIO()
    Image.new("RGB", (16, 16), (5, 5, 5)).save(
        held, "MPO", save_all=True, append_images=[Image.new("RGB", (16, 16), (9, 9, 9))], quality=100
    )
    assert held.getvalue().count(b"\xff\xd8\xff") == 2
    port = Port("x", "float32", (1, 3, 16, 16))
    found = results(Sums(port), given(held.getvalue() + picture("PNG", 7), monkeypatch))
    assert found == [16 * 16 * 3 * 5, 16 * 16 * 3 * 7]


def test_what_follows_the_last_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for rest, said in ((b"", 0), (b"\n\0", 0), (b"notes", 1)):
        notes: list[str] = []
        path = given(arrays("npy", 1) + arrays("npy", 2) + rest, monkeypatch)
        outputs, _ = run_samples(Sums(X), [path], None, note=notes.append)
        assert len(outputs) == 2 and len(notes) == said
    assert "last 5 bytes are left out: they follow 2 files" in notes[0]


def test_a_damaged_file_reaches_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is cut or overwritten, something is said of it or everything is read; nothing hangs."""
    rng, port = np.random.default_rng(0), Port("x", "float32", (1, 3, 16, 16))
    forms = {"PNG": {}, "JPEG": {}, "BMP": {}, "PPM": {}, "WEBP": {}, "MPO": {"save_all": True}}
    for form, more in forms.items():
        whole = picture(form, 3, **more)
        for _ in range(40):
            damaged = bytearray(whole + whole)
            at = int(rng.integers(2, len(damaged)))
            damaged[at : at + 4] = rng.bytes(4)
            for content in (bytes(damaged), bytes(damaged[:at])):
                try:
                    assert results(Sums(port), given(content, monkeypatch))
                except DataError as error:
                    assert error.message


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_begins_after_two_seconds() -> None:
    now = [0.0]
    for stream, said in ((io.StringIO(), 2), (Screen(), 3)):
        now[0] = 0.0
        with Slow("samples", 100, stream, lambda: now[0]) as slow:
            for done in range(1, 21):
                now[0] += 1.0 if stream.isatty() is False else 0.1
                slow.at(done)
            if stream.isatty():
                assert stream.getvalue() == "\r20/100 samples, 10/s, 8 s left"
            else:
                lines = stream.getvalue().splitlines()
                assert len(lines) == said and lines[0] == "2/100 samples, 1/s, 98 s left"
    assert stream.getvalue().endswith("\r")
    quiet = io.StringIO()
    with Slow("samples", 2, quiet, lambda: 0.0) as slow:
        slow.at(2)
    assert quiet.getvalue() == ""


def test_what_counts_nothing_says_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from npuflow.cli import _slow

    monkeypatch.setattr(_slow, "AFTER", 0.05)
    quick, slow = io.StringIO(), io.StringIO()
    with _slow.Working("simulating", quick):
        pass
    with _slow.Working("simulating", slow):
        until = time.monotonic() + 20
        while not slow.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert quick.getvalue() == "" and re.fullmatch(r"simulating, 0 s\n", slow.getvalue())
