"""Exports of a recipe whose network has a loop: a `for` in C, steps written out in TFLite."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from npuflow.cli import main
from tests.export_c.harness import COMPILERS
from tests.networks.onnx_text import normal
from tests.rules.test_recurrent import BATCH, INPUTS, layer

STEPS = 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("loops")
    (made / "net.onnx").write_bytes(layer("GRU", steps=STEPS))
    np.savez(made / "x.npz", x=normal(3, 8, STEPS, BATCH, INPUTS))
    (made / "net.toml").write_text(
        'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "x.npz"\n'
        '[precision]\nstrategy = "none"\n[quantize.weights]\nsymmetric = true\n'
        "[quantize.activations]\nbits = 16\nsymmetric = true\nsigned = true\n"
    )
    return made


def exported(folder: Path, kind: str, name: str, *more: str) -> Path:
    where = ["--cache", str(folder / "cache"), "-o", str(folder / name)]
    assert main(["export", kind, str(folder / "net.toml"), *where, *more]) == 0
    return folder / name


def test_c_has_a_for(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = exported(folder, "c", "net_c")
    assert f"step < {STEPS}; step++" in (made / "net.c").read_text()
    assert "layers; constants" in capfd.readouterr().out
    if COMPILERS:
        run = subprocess.run(["make", "test"], cwd=made, capture_output=True, text=True, check=False)
        assert "2 samples, 0 codes differ" in run.stdout, run.stdout + run.stderr


def test_tflite_is_written_without_a_loop(folder: Path) -> None:
    """Its file has no operator for the borders of one."""
    body = exported(folder, "tflite", "net.tflite", "--check", "0").read_bytes()
    assert body[4:8] == b"TFL3"
