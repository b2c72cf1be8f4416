"""A function in a process of its own: its answer, its errors, its death and its hanging."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from npuflow.base.errors import InputError
from npuflow.base.isolated import isolated


def answers(path: Path) -> bytes:
    os.write(1, b"what a native library prints")
    return path.read_bytes() * 2


def refuses(path: Path) -> bytes:
    raise InputError("not one of ours", hint="another", code="NF-MODEL-063")


def dies(path: Path) -> bytes:
    os.kill(os.getpid(), signal.SIGSEGV)
    return b""


def fails(path: Path) -> bytes:
    raise ValueError("a fault of its own")


def hangs(path: Path) -> bytes:
    time.sleep(60)
    return b""


def test_the_answer_comes_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\0x")
    assert isolated(answers, tmp_path / "a") == b"\0x\0x"


def test_an_error_comes_back_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        isolated(refuses, tmp_path / "a")
    assert caught.value.where.file == str(tmp_path / "a") and caught.value.hint == "another"


def test_a_crash_and_a_hang_are_one_error_each(tmp_path: Path) -> None:
    for function, seconds, words in (
        (dies, 60.0, "SIGSEGV"),
        (fails, 60.0, "a fault of its own"),
        (hangs, 1.0, "1 s"),
    ):
        with pytest.raises(InputError) as caught:
            isolated(function, tmp_path / "a", seconds=seconds)
        assert words in caught.value.because and caught.value.code in ("NF-MODEL-060", "NF-MODEL-061")
