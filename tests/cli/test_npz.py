"""npz: list, dump, stats, compare, extract, raw bytes and pictures of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commandline import Ran
from PIL import Image

from npuflow.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    float_, codes = rng.normal(size=(1, 5, 4, 4)).astype(np.float32), np.arange(48, dtype=np.int8)
    np.savez(
        tmp_path / "a.npz", conv1=float_, conv2=codes.reshape(1, 3, 4, 4), nan=np.array([np.nan, 0.0, 2.0])
    )
    close = float_ + 1e-3 * rng.normal(size=float_.shape).astype(np.float32)
    np.savez(tmp_path / "b.npz", conv1=close, conv2=codes.reshape(1, 3, 4, 4), other=codes)
    np.save(tmp_path / "one.npy", np.array([[0, 128], [255, 7]], np.uint8))
    return tmp_path


def call(capfd: pytest.CaptureFixture[str], *args: object) -> Ran:
    capfd.readouterr()
    code = main(["npz", *map(str, args)])
    out, err = capfd.readouterr()
    assert "Traceback" not in err, err
    return Ran(code, out, err)


def test_list_and_stats(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    listed = call(capfd, "list", folder / "a.npz")
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [
        ["conv1", "float32", "1x5x4x4"],
        ["conv2", "int8", "1x3x4x4"],
        ["nan", "float64", "3"],
    ]
    rows = {
        row["tensor"]: row for row in call(capfd, "stats", folder / "a.npz", "conv2", "n*", "--json").lines
    }
    assert set(rows) == {"conv2", "nan"}
    assert (rows["conv2"]["min"], rows["conv2"]["max"], rows["conv2"]["mean"]) == (0, 47, 23.5)
    assert rows["nan"]["not finite"] == 1 and rows["nan"]["zeros"] == 1 and rows["nan"]["max"] == 2
    assert call(capfd, "list", folder / "one.npy").out.splitlines()[1].split()[:2] == ["one", "uint8"]


def test_dump_prints_values(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(capfd, "dump", folder / "one.npy").out == "one  uint8  2x2\n[[  0 128]\n [255   7]]\n"
    short = call(capfd, "dump", folder / "a.npz", "conv2", "-n", "3").out.splitlines()
    assert short == ["conv2  int8  1x3x4x4", "[0 1 2]", "... 45 more values"]
    assert "47" in call(capfd, "dump", folder / "a.npz", "conv2", "-n", "0").out


def test_compare_accepts_by_cosine_and_sqnr(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pair = (folder / "a.npz", folder / "b.npz")
    exact = call(capfd, "compare", *pair)
    assert exact.code == 1 and exact.out.splitlines()[-1] == "1 of 2 tensors accepted"
    assert call(capfd, "compare", *pair, "--cosine", "0.99", "--sqnr", "40").code == 0
    assert call(capfd, "compare", *pair, "--sqnr", "90").code == 1
    assert call(capfd, "compare", *pair, "--tolerance", "0.1").code == 0
    rows = {row["tensor"]: row for row in call(capfd, "compare", *pair, "--json").lines}
    assert rows["conv2"]["different"] == 0 and rows["conv1"]["different"] == 80
    np.savez(folder / "c.npz", conv2=np.zeros((2, 2)))
    assert "shapes" in call(capfd, "compare", folder / "a.npz", folder / "c.npz", "--cosine", "0").out
    assert "no tensor in common" in call(capfd, "compare", pair[0], folder / "one.npy").err


def test_extract_and_raw_bytes(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(capfd, "extract", folder / "a.npz", "conv*", "-o", folder / "e.npz").code == 0
    with np.load(folder / "a.npz") as a, np.load(folder / "e.npz") as e:
        assert e.files == ["conv1", "conv2"] and all(np.array_equal(a[n], e[n]) for n in e.files)
        values = a["conv2"]
    assert call(capfd, "extract", folder / "a.npz", "conv1", "conv2", "-o", folder / "e.npy").code == 2
    assert (
        call(capfd, "to-raw", folder / "a.npz", "conv2", "-o", folder / "r.bin", "--dtype", "int16").code == 0
    )
    assert np.array_equal(np.fromfile(folder / "r.bin", "<i2"), values.reshape(-1))
    wide = call(capfd, "to-raw", folder / "one.npy", "-o", folder / "r.bin", "--dtype", "int8")
    assert wide.code == 2 and "do not fit int8" in wide.err
    assert "has 3 tensors" in call(capfd, "to-raw", folder / "a.npz").err
    assert '"conv' in call(capfd, "to-raw", folder / "a.npz", "conv9").err
    assert "no element type" in call(capfd, "to-raw", folder / "one.npy", "--dtype", "nibble").err


def test_pictures(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def pixels(*args: object) -> np.ndarray:
        assert call(capfd, "to-image", *args, "-o", folder / "p.png").code == 0
        return np.asarray(Image.open(folder / "p.png"))

    assert np.array_equal(pixels(folder / "one.npy"), np.load(folder / "one.npy"))
    assert pixels(folder / "a.npz", "conv1").shape == (9, 14)  # five channels: three columns
    colours = pixels(folder / "a.npz", "conv2", "--low", "0", "--high", "47")
    assert colours.shape == (4, 4, 3) and colours[0, 0, 0] == 0 and colours[3, 3, 2] == 255
    # golden tensors: samples of [1, channels, height, width]
    golden = np.zeros((2, 1, 5, 4, 4), np.uint8)
    golden[1] = 1
    np.save(folder / "golden.npy", golden)
    assert pixels(folder / "golden.npy").shape == (9, 14)
    assert pixels(folder / "golden.npy", "--sample", 1).max() == 1
    refused = call(capfd, "to-image", folder / "a.npz", "nan", "-o", folder / "p.png")
    assert refused.code == 2 and "not a picture" in refused.err
    assert "samples" in call(capfd, "to-image", folder / "a.npz", "conv1", "--sample", "4").err
    assert "samples" in call(capfd, "to-image", folder / "golden.npy", "--sample", "2").err
