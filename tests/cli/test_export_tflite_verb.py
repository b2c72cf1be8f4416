"""`npuflow export tflite` on a recipe and on its program: the file, what is reported, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import Ran

from npuflow.cli import main
from npuflow.export_tflite import elements
from tests.cli.test_programs import built, call, product

__all__ = ["built"]


def exported(built: Path, capfd: pytest.CaptureFixture[str], source: str, *more: str) -> Ran:
    where = ["-o", str(built / "net.tflite"), "--cache", str(built / "cache")]
    return call(capfd, "export", "tflite", source, *where, *more)


def test_a_recipe_and_its_program_give_the_same_file(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert")
    done = exported(built, capfd, str(built / "net.toml"), "--check", "2")
    assert done.code == 0, done.err
    first = (built / "net.tflite").read_bytes()
    assert "input image: 1x28x28x1, channels last, int8, scale" in done.out
    assert "LiteRT on 2 random samples: " in done.out
    done = exported(built, capfd, product(built, ".npu"))
    assert done.code == 0 and "LiteRT on 2 random samples: " in done.out
    assert parts(first) == parts((built / "net.tflite").read_bytes())


def test_a_file_is_checked_unless_said_otherwise(
    built: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ai_edge_litert")
    done = exported(built, capfd, str(built / "net.toml"))
    assert done.code == 0 and "LiteRT on 2 random samples: " in done.out
    monkeypatch.setitem(elements.BINARY, "Add", "SUB")
    (built / "net.tflite").unlink()
    wrong = exported(built, capfd, str(built / "net.toml"))
    assert wrong.code != 0 and "NF-PROGRAM-124" in wrong.err and "--check 0" in wrong.err
    assert not (built / "net.tflite").exists()
    unchecked = exported(built, capfd, str(built / "net.toml"), "--check", "0")
    assert unchecked.code == 0 and "LiteRT" not in unchecked.out and (built / "net.tflite").exists()


def test_loops_are_written_out_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ai_edge_litert")
    from tests.networks.lite_loops import TARGET
    from tests.networks.looped import quantised
    from tests.rules.test_recurrent import layer

    graph, _ = quantised(layer("LSTM", steps=9), TARGET)
    monkeypatch.setattr("npuflow.cli._export_tflite.graph_of", lambda *_: (graph, TARGET.numerics))
    where = ["net.toml", "-o", str(tmp_path / "net.tflite")]
    done = call(capfd, "export", "tflite", *where)
    assert done.code == 0 and "WHILE 1" in done.out and "LiteRT on 2 random samples: " in done.out, done.err
    size = (tmp_path / "net.tflite").stat().st_size
    done = call(capfd, "export", "tflite", *where, "--unroll")
    assert done.code == 0 and "WHILE" not in done.out, done.err
    assert (tmp_path / "net.tflite").stat().st_size > 2 * size


def test_without_litert_a_note_says_that_nothing_was_checked(
    built: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tflite")
    monkeypatch.setattr("npuflow.cli._export_tflite.find_spec", lambda _: None)
    done = exported(built, capfd, str(built / "net.toml"))
    assert done.code == 0 and "note: not checked against the program" in done.out


def parts(model: bytes) -> list[tuple[str, tuple[int, ...]]]:
    from npuflow.frontends.tflite.schema import parsed

    return [(t.name, t.shape) for t in parsed(model).tensors]


def test_sixteen_bits_with_zero_points_are_refused(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tflite")
    done = exported(built, capfd, str(built / "net.toml"), "--set", "quantize.activations.bits=16")
    assert done.code != 0
    assert "NF-PROGRAM-122" in done.err
    assert "symmetric = true, signed = true" in done.err


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert main(["export", "tflite", str(tmp_path / "none.toml"), "-o", str(tmp_path / "x.tflite")]) != 0
