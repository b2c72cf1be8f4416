"""Dumps of real numbers, dumps of other types, memory that was partly written, signs: what verify says."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.checks.board.compared import compared
from npuflow.checks.board.dump import dumps
from npuflow.checks.board.golden import Array, Golden, golden_of, quants_of, save
from npuflow.checks.board.locate import Finding, first_difference
from npuflow.cli import main
from npuflow.hw.target import Numerics
from npuflow.program.container import Program
from npuflow.runner.feed import dequantize
from npuflow.runner.simulated import ProgramRunner
from tests.networks.harness import SMALL, build
from tests.networks.small import mixed


@pytest.fixture(scope="module")
def made() -> tuple[Program, Golden]:
    graph, feed = mixed(Numerics())
    program = build(graph, SMALL)
    rng = np.random.default_rng(0)
    samples = [{n: rng.normal(size=a.shape).astype(np.float32) for n, a in feed.items()} for _ in range(2)]
    return program, golden_of(program, ProgramRunner(program).run_many(samples, dump=True))


def _largest(golden: Golden) -> str:
    """The tensor with the most values of its own."""
    return max(golden.tensors, key=lambda n: len(np.unique(golden.tensors[n][0])))


def _read(golden: Golden, folder: Path, array: Array) -> dict[str, Array]:
    np.savez(folder / "board.npz", **{_largest(golden): array})
    return dumps(golden, folder / "board.npz")


def _judged(made: tuple[Program, Golden], folder: Path, array: Array) -> Finding | None:
    program, golden = made
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return first_difference(program, golden, _read(golden, folder, array))


def test_codes_with_a_fraction_differ(made: tuple[Program, Golden], tmp_path: Path) -> None:
    codes = made[1].tensors[_largest(made[1])][:1]
    found = _judged(made, tmp_path, codes.astype(np.float32) + np.float32(0.9))
    assert found is not None and found.cause.kind == "codes as real numbers"
    found = _judged(made, tmp_path, codes.astype(np.float32))
    assert found is not None and "dump uint8" in found.cause.text


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint16, np.complex64, np.bool_])
def test_other_types_are_errors(made: tuple[Program, Golden], tmp_path: Path, dtype: type) -> None:
    codes = made[1].tensors[_largest(made[1])]
    assert codes.dtype == np.uint8
    with pytest.raises(DataError, match=r"holds \w+, the tensor has codes of uint8") as raised:
        _read(made[1], tmp_path, codes.astype(dtype))
    assert "dump codes as uint8, or the real numbers" in str(raised.value.hint)


def test_codes_beyond_the_type_are_an_error(made: tuple[Program, Golden], tmp_path: Path) -> None:
    codes = made[1].tensors[_largest(made[1])]
    with pytest.raises(DataError, match="holds int64") as raised:
        _read(made[1], tmp_path, codes.astype(np.int64) + 256)
    assert not raised.value.because
    with pytest.raises(DataError, match="holds int64") as raised:
        _read(made[1], tmp_path, codes.astype(np.int64))
    assert raised.value.because == "its numbers are the right codes in another type"


def test_either_byte_order_of_a_type_is_read(made: tuple[Program, Golden], tmp_path: Path) -> None:
    golden, name = made[1], _largest(made[1])
    wide = replace(golden, tensors={name: golden.tensors[name].astype(np.int16)})
    np.save(tmp_path / f"{golden.files[name]}.npy", wide.tensors[name].astype(">i2"))
    held = dumps(wide, tmp_path)
    assert held[name].dtype == np.int16 and np.array_equal(held[name], wide.tensors[name])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_real_numbers_agree_within_half_a_code(
    made: tuple[Program, Golden], tmp_path: Path, dtype: type
) -> None:
    program, golden = made
    name = _largest(golden)
    quant = quants_of(program)[name]
    scale = float(np.ravel(quant["scale"])[0])
    real = dequantize(golden.tensors[name], quant)
    assert _judged(made, tmp_path, real.astype(dtype)) is None
    assert _judged(made, tmp_path, (real + 0.45 * scale).astype(dtype)) is None
    wrong = (real - 0.6 * scale).astype(dtype)
    found = _judged(made, tmp_path, wrong)
    assert found is not None and found.real and found.cause.kind in ("rounding", "range")
    assert found.found[found.at] == pytest.approx(float(wrong.reshape(-1)[0]), rel=1e-6)
    assert found.different == real[0].size


def test_real_numbers_on_another_scale(made: tuple[Program, Golden], tmp_path: Path) -> None:
    program, golden = made
    name = _largest(golden)
    real = dequantize(golden.tensors[name], quants_of(program)[name])
    found = _judged(made, tmp_path, 3 * real)
    assert found is not None and found.cause.kind == "range" and "about 3 times" in found.cause.text


def test_a_half_precision_dump_of_16_bits_is_let_its_own_rounding() -> None:
    quant = {"bits": 16, "signed": True, "scale": [0.001], "zero_point": [0]}
    codes = np.array([30001, -12345, 7], np.int16)
    real = dequantize(codes, quant)
    assert not compared(codes, real.astype(np.float16), quant).wrong.any()
    assert compared(codes, real + np.float32(0.001), quant).wrong.all()


def test_numbers_that_are_none(made: tuple[Program, Golden], tmp_path: Path) -> None:
    program, golden = made
    name = _largest(golden)
    real = dequantize(golden.tensors[name], quants_of(program)[name])
    real[0].reshape(-1)[5:8] = np.nan
    real[0].reshape(-1)[9] = np.inf
    found = _judged(made, tmp_path, real)
    assert found is not None and found.different == 4 and found.found[found.at] is None
    assert found.cause.kind == "not a number" and "3 NaN and 1 infinite" in found.cause.text


@pytest.mark.parametrize("pattern", [b"\0", b"\xcc", b"\xde\xad\xbe\xef"])
@pytest.mark.parametrize("part", ["front", "middle", "back", "all"])
def test_memory_that_was_partly_written(
    made: tuple[Program, Golden], tmp_path: Path, pattern: bytes, part: str
) -> None:
    codes = made[1].tensors[_largest(made[1])][:1].copy()
    flat = codes.reshape(-1)
    cuts = {"front": (0, 1 / 3), "middle": (1 / 3, 2 / 3), "back": (0.5, 1), "all": (0, 1)}[part]
    where = slice(*(4 * int(c * flat.size / 4) for c in cuts))
    size = flat[where].size
    flat[where] = np.frombuffer((pattern * size)[:size], np.uint8)
    found = _judged(made, tmp_path, codes)
    assert found is not None and found.cause.kind == "stale memory" and "not written" in found.cause.text


def test_parts_that_another_run_left(made: tuple[Program, Golden], tmp_path: Path) -> None:
    """Beyond a tile it is not a transfer that was not waited for."""
    codes = made[1].tensors[_largest(made[1])][:1].copy()
    other = made[1].tensors[_largest(made[1])][1]
    codes[0, :, 1:, 1:3] = other[:, 1:, 1:3]
    found = _judged(made, tmp_path, codes)
    assert found is not None and found.cause.kind == "stale memory"
    assert "sample 1's values" in found.cause.text


def test_exchanged_signs(made: tuple[Program, Golden], tmp_path: Path) -> None:
    golden = made[1]
    name = _largest(golden)
    codes = golden.tensors[name]
    for other, text in (
        (codes.view(np.int8), "its bytes read as uint8 are the right codes"),
        ((codes.astype(np.int16) - 128).astype(np.int8), "its numbers lie 128 below the right codes"),
    ):
        with pytest.raises(DataError, match="holds int8, the tensor has codes of uint8") as raised:
            _read(golden, tmp_path, other)
        assert raised.value.because == f"signed and unsigned are exchanged: {text}"
    (tmp_path / "raw").mkdir()
    raw = codes ^ np.uint8(128)
    (tmp_path / "raw" / f"{golden.files[name]}.bin").write_bytes(raw.tobytes())
    found = first_difference(made[0], golden, dumps(golden, tmp_path / "raw"))
    assert found is not None and found.cause.kind == "signedness" and "128 off" in found.cause.text


def test_signs_that_were_widened_or_clamped(made: tuple[Program, Golden]) -> None:
    program, golden = made
    name = _largest(golden)
    codes = golden.tensors[name]
    wide = (codes.astype(np.int16) - 128).astype(np.int16)
    found = first_difference(program, replace(golden, tensors={name: wide}), {name: wide & 0xFF})
    assert found is not None and found.cause.kind == "signedness"
    assert "8 bits were widened as if they had no sign" in found.cause.text
    found = first_difference(program, golden, {name: np.minimum(codes, 127)})
    assert found is not None and found.cause.kind == "signedness" and "clamped" in found.cause.text


def test_the_verb_on_real_numbers(
    made: tuple[Program, Golden], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, golden = made
    (tmp_path / "net.npu").write_bytes(program.to_bytes())
    save(golden, program, tmp_path / "golden")
    quants, name = quants_of(program), _largest(golden)
    rows = {row["name"]: row for row in json.loads((tmp_path / "golden/golden.json").read_text())["tensors"]}
    assert all(rows[n]["scale"] == quants[n]["scale"] for n in golden.tensors)
    board = {n: dequantize(a, quants[n]) for n, a in golden.tensors.items()}
    np.savez(tmp_path / "board.npz", **board)
    words = ["verify", str(tmp_path / "net.npu"), str(tmp_path / "golden"), "--dump"]
    assert main([*words, str(tmp_path / "board.npz")]) == 0
    assert f"agree, {len(board)} as real numbers to half a code" in capfd.readouterr().out
    board[name][0].reshape(-1)[3] = np.nan
    np.savez(tmp_path / "board.npz", **board)
    assert main([*words, str(tmp_path / "board.npz"), "--json"]) == 1
    first = json.loads(capfd.readouterr().out)["first"]
    assert first["real"] and first["found"][first["at"]] is None
    assert main([*words, str(tmp_path / "board.npz")]) == 1
    captured = capfd.readouterr()
    assert "no number, expected" in captured.out and "Warning" not in captured.err
