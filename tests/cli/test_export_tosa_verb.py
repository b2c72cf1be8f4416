"""`npuflow export tosa` on a recipe and on its program: the file, what is reported, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import Ran

from tests.cli.test_programs import built, call, product

__all__ = ["built"]
pytest.importorskip("flatbuffers")


def exported(built: Path, capfd: pytest.CaptureFixture[str], source: str, *more: str) -> Ran:
    where = ["-o", str(built / "net.tosa"), "--cache", str(built / "cache")]
    return call(capfd, "export", "tosa", source, *where, *more)


def test_a_recipe_and_its_program_give_the_same_file(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = exported(built, capfd, str(built / "net.toml"))
    assert done.code == 0, done.err
    first = (built / "net.tosa").read_bytes()
    assert first[4:8] == b"TOSA" and "CONV2D" in done.out and "RESCALE" in done.out
    assert "input image: 1x1x28x28, int8, tensor image, the program's codes less 128" in done.out
    assert exported(built, capfd, product(built, ".npu")).code == 0
    assert (built / "net.tosa").read_bytes() == first


def test_sixteen_bits_are_refused(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (built / "net.tosa").unlink(missing_ok=True)
    done = exported(built, capfd, str(built / "net.toml"), "--set", "quantize.activations.bits=16")
    assert done.code != 0 and "NF-PROGRAM-141" in done.err and "8 bits" in done.err
    assert not (built / "net.tosa").exists()
