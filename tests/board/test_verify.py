"""Golden tensors and planted faults in dumps: layer, tile, address and cause; what is damaged is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.checks.board.dump import dumps
from npuflow.checks.board.golden import Golden, golden_of, load, save
from npuflow.checks.board.locate import Finding, first_difference
from npuflow.cli import main
from npuflow.hw.target import Numerics
from npuflow.program.container import Program
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.made import tile_of
from tests.networks.harness import SMALL, build
from tests.networks.small import mixed


@pytest.fixture(scope="module")
def made() -> tuple[Program, Golden]:
    graph, feed = mixed(Numerics())
    program = build(graph, SMALL)
    rng = np.random.default_rng(0)
    samples = [{n: rng.normal(size=a.shape).astype(np.float32) for n, a in feed.items()} for _ in range(2)]
    return program, golden_of(program, ProgramRunner(program).run_many(samples, dump=True))


def _tiled(program: Program, golden: Golden) -> tuple[str, tuple[int, ...]]:
    """A tensor of several tiles, and an element in its second half."""
    for name, array in golden.tensors.items():
        index = tuple(d - 1 for d in array.shape[1:])
        tile = tile_of(program, name, index)
        if tile is not None and tile.count > 2 and array[0].size > 200:
            part = array[:, *(slice(a, b) for a, b in tile.box)]
            if not np.array_equal(part[0], part[1]) and part[0].size >= 32:
                return name, index
    raise AssertionError("no tensor has several tiles")


def _found(program: Program, golden: Golden, name: str, wrong: np.ndarray) -> Finding:
    """With everything behind the tensor noise, as on a board."""
    names, rng = list(golden.tensors), np.random.default_rng(2)
    dump = {n: golden.tensors[n] for n in names[: names.index(name)]}
    dump[name] = np.stack([wrong, golden.tensors[name][1]])
    for later in names[names.index(name) + 1 :]:
        dump[later] = rng.integers(0, 9, golden.tensors[later].shape).astype(golden.tensors[later].dtype)
    found = first_difference(program, golden, dump)
    assert found is not None and found.tensor == name and found.sample == 0
    return found


def test_a_dump_that_agrees(made: tuple[Program, Golden]) -> None:
    program, golden = made
    assert first_difference(program, golden, golden.tensors) is None
    some = dict(list(golden.tensors.items())[::3])
    assert first_difference(program, golden, some) is None


def test_a_flipped_bit(made: tuple[Program, Golden]) -> None:
    program, golden = made
    name, index = _tiled(program, golden)
    wrong = golden.tensors[name][0].copy()
    wrong[index] ^= 4
    found = _found(program, golden, name, wrong)
    assert found.index == index and found.different == 1 and found.tile == tile_of(program, name, index)
    assert found.cause.kind == "bit flip" and "bit 2" in found.cause.text
    assert (
        found.found[found.at] == wrong[index] and found.expected[found.at] == golden.tensors[name][0][index]
    )
    assert found.address is not None


def test_a_stale_tile_and_one_read_early(made: tuple[Program, Golden]) -> None:
    program, golden = made
    name, index = _tiled(program, golden)
    tile = tile_of(program, name, index)
    assert tile is not None
    box = tuple(slice(a, b) for a, b in tile.box)
    own, old = golden.tensors[name]
    whole = own.copy()
    whole[box] = old[box]
    found = _found(program, golden, name, whole)
    assert found.tile == tile and found.cause.kind == "stale memory"
    part = own[box].copy()
    part.reshape(-1)[part.size // 2 :] = old[box].reshape(-1)[part.size // 2 :]
    half = own.copy()
    half[box] = part
    found = _found(program, golden, name, half)
    assert found.tile == tile and found.cause.kind == "missing wait"


def test_a_tile_of_another_address(made: tuple[Program, Golden]) -> None:
    program, golden = made
    name, index = _tiled(program, golden)
    tile = tile_of(program, name, index)
    assert tile is not None
    box = tuple(slice(a, b) for a, b in tile.box)
    own = golden.tensors[name][0]
    wrong = own.copy()
    wrong[box] = np.roll(own.reshape(-1), 3).reshape(own.shape)[box]
    found = _found(program, golden, name, wrong)
    assert found.tile == tile and found.cause.kind == "shifted address" and "3 bytes off" in found.cause.text


def test_layout_range_and_another_tensor(made: tuple[Program, Golden]) -> None:
    program, golden = made
    name, _ = _tiled(program, golden)
    own = golden.tensors[name][0]
    wrong = np.ascontiguousarray(np.moveaxis(own, 1, -1)).reshape(own.shape)
    assert _found(program, golden, name, wrong).cause.kind == "layout"
    halved = np.rint(own * 0.5).astype(own.dtype)
    assert _found(program, golden, name, halved).cause.kind == "range"
    other = next(
        n
        for n, a in golden.tensors.items()
        if n != name and a[0].size == own.size and not np.array_equal(a[0].reshape(-1), own.reshape(-1))
    )
    swapped = golden.tensors[other][0].reshape(own.shape)
    cause = _found(program, golden, name, swapped).cause
    assert cause.kind == "swapped tensor" and other in cause.text


def test_files_of_a_board(made: tuple[Program, Golden], tmp_path: Path) -> None:
    program, golden = made
    save(golden, program, tmp_path)
    read = load(tmp_path)
    assert list(read.tensors) == list(golden.tensors) and read.layers == golden.layers
    board = tmp_path / "dump"
    board.mkdir()
    first, second, third = list(golden.tensors)[:3]
    (board / f"{golden.files[first]}.bin").write_bytes(golden.tensors[first][0].tobytes())
    np.save(board / f"{golden.files[second]}.npy", golden.tensors[second])
    np.savez(board / "more.npz", **{third: golden.tensors[third][0]})
    held = dumps(read, board)
    assert {n: len(a) for n, a in held.items()} == {first: 1, second: 2, third: 1}
    assert first_difference(program, read, held) is None
    (board / f"{golden.files[first]}.bin").write_bytes(b"\0")
    with pytest.raises(DataError, match="1 elements"):
        dumps(read, board)


def test_damaged_golden_tensors_are_refused(made: tuple[Program, Golden], tmp_path: Path) -> None:
    program, golden = made
    save(golden, program, tmp_path)
    body = json.loads((tmp_path / "golden.json").read_text())
    body["tensors"][0]["digests"][0] = "x3:0"
    (tmp_path / "golden.json").write_text(json.dumps(body))
    with pytest.raises(DataError, match="is damaged"):
        load(tmp_path)
    for text in ("[]", "{}", "junk", '{"tensors": [{}]}', json.dumps({"tensors": []})):
        (tmp_path / "golden.json").write_text(text)
        with pytest.raises(DataError, match="holds no golden tensors"):
            load(tmp_path)
    with pytest.raises(DataError, match="holds no golden tensors"):
        load(tmp_path / "nowhere")


def test_dumps_that_cannot_be_read_or_hold_nothing(made: tuple[Program, Golden], tmp_path: Path) -> None:
    _, golden = made
    for content in (b"", b"junk", b"PK\x03\x04junk"):
        (tmp_path / "dump.npz").write_bytes(content)
        with pytest.raises(DataError, match="cannot be read") as raised:
            dumps(golden, tmp_path / "dump.npz")
        assert "pickle" not in raised.value.because
    np.savez(tmp_path / "dump.npz", other=np.zeros(3))
    with pytest.raises(DataError, match="none of the program's tensors") as raised:
        dumps(golden, tmp_path / "dump.npz")
    assert next(iter(golden.files.values())) in raised.value.because
    with pytest.raises(DataError, match="no dump") as raised:
        dumps(golden, tmp_path / "nowhere")
    assert raised.value.hint


def test_the_verbs(made: tuple[Program, Golden], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program, _golden = made
    file = tmp_path / "net.npu"
    file.write_bytes(program.to_bytes())
    entry = program.meta["inputs"][0]
    np.save(tmp_path / "in.npy", np.random.default_rng(1).normal(size=entry["shape"]).astype(np.float32))
    assert main(["golden", str(file), str(tmp_path / "in.npy"), "-o", str(tmp_path / "golden")]) == 0
    found = load(tmp_path / "golden")
    np.savez(tmp_path / "all.npz", **{n: a[0] for n, a in found.tensors.items()})
    verify = ["verify", str(file), str(tmp_path / "golden"), "--dump", str(tmp_path / "all.npz")]
    assert main(verify) == 0
    name = list(found.tensors)[2]
    wrong = {n: a[0].copy() for n, a in found.tensors.items()}
    wrong[name].reshape(-1)[5] ^= 1
    np.savez(tmp_path / "all.npz", **wrong)
    capfd.readouterr()
    assert main(verify) == 1
    out = capfd.readouterr().out
    assert f'first difference: "{name}"' in out and "bit flip: bit 0 of 1 element" in out
    assert main([*verify, "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["first"]["cause"]["kind"] == "bit flip"
    assert main(["verify", str(file), str(tmp_path / "golden")]) != 0  # no dump there
