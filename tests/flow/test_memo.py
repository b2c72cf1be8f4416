"""The no-op memo: it holds while nothing changed, and never when something did."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import EDITS, World

from npuflow.base import files as file_memo
from npuflow.base.files import DIGESTS, FileDigests, file_digest
from npuflow.base.registry import Registry
from npuflow.flow.lock import lock_of, write
from npuflow.flow.memo import Memo
from npuflow.flow.memo_write import BuiltRecipe, remember
from npuflow.flow.run import Result
from tests.tiers import often


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(Registry, "known", {})  # those of other tests may be gone from the disk
    world = World(tmp_path / "world")
    yield world
    world.close()


def build(world: World, payload: str = "said") -> tuple[Memo, bool, Result]:
    begun = time.time_ns()
    memo = Memo(world.root / "cache", ["build", "x.toml"])
    result, _ = world.build()
    plan = world.plan()
    lock = world.root / "x.lock"
    write(lock, lock_of(plan, result.refs))
    return (
        memo,
        remember(memo, begun, [BuiltRecipe(plan.recipe, plan, world.store, result, lock)], payload),
        result,
    )


def holds(world: World, *command: str) -> bool:
    return Memo(world.root / "cache", command or ("build", "x.toml")).holds()


def test_holds_until_something_changes(world: World) -> None:
    memo, written, _ = build(world)
    assert written and memo.holds() and memo.payload == "said"
    assert holds(world) and not holds(world, "build", "y.toml")


@pytest.mark.parametrize("kind", often(sorted(set(EDITS) - {"recipe", "refinement"}), 4))
def test_an_edit_that_matters_is_seen(world: World, kind: str) -> None:
    """Where the memo still holds, as after an edit of an unused plug-in, a build has nothing to do."""
    rnd, seen = random.Random(3), 0
    for _ in range(6):
        assert build(world)[1]
        EDITS[kind](world.state, rnd)
        world.write()
        if holds(world):
            assert world.build()[1] == {}
        else:
            seen += 1
    assert seen


def test_new_gone_and_touched_files(world: World) -> None:
    root, sample = world.root, world.root / "samples/a.txt"
    for change in (
        lambda: (root / "samples/z.txt").write_text("4"),
        lambda: (root / "src/edited/stages/other.py").write_text(""),
        lambda: (root / "src/edited/entries/new.py").write_text(""),
        sample.unlink,
        (root / "x.lock").unlink,
        lambda: (root / "x.lock").write_text("x"),
    ):
        world.write()
        for extra in ("samples/z.txt", "src/edited/stages/other.py", "src/edited/entries/new.py"):
            (root / extra).unlink(missing_ok=True)
        assert build(world)[1] and holds(world)
        change()
        assert not holds(world)


def test_damage_in_the_cache_is_seen(world: World) -> None:
    for pattern in ("records/*/*.json", "objects/*/*/*"):
        assert build(world)[1] and holds(world)
        victim = sorted(path for path in (world.root / "cache").glob(pattern) if path.is_file())[0]
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(bytes(data))
        assert not holds(world)


def test_a_damaged_memo_does_not_hold(world: World) -> None:
    memo, _, _ = build(world)
    whole = memo.path.read_bytes()
    rnd = random.Random(5)
    for _ in range(50):
        data = bytearray(whole)
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
        memo.path.write_bytes(bytes(data))
        assert not holds(world)
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        memo.path.write_bytes(whole[:cut])
        assert not holds(world)
    memo.path.write_bytes(whole)
    assert holds(world)


def test_edits_within_a_tick_of_the_clock_are_seen(world: World) -> None:
    """Same size, same times: only the bytes can tell."""
    path = world.root / "samples/a.txt"
    assert build(world)[1]
    stat = path.stat()
    path.write_text("7")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert not holds(world)


def test_files_edited_while_the_build_reads_them_give_no_proof(world: World) -> None:
    begun = time.time_ns()
    memo = Memo(world.root / "cache", ["build", "x.toml"])
    result, _ = world.build()
    plan = world.plan()
    assert plan["sources"].listing
    (world.root / "samples/a.txt").write_text("9")
    (world.root / "samples/new.txt").write_text("9")
    write(world.root / "x.lock", lock_of(plan, result.refs))
    built = [BuiltRecipe(plan.recipe, plan, world.store, result, world.root / "x.lock")]
    assert not remember(memo, begun, built, "") or not memo.holds()


def test_digests_of_files_are_kept_between_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, kept = tmp_path / "data", tmp_path / "memo/files.json"
    data.write_bytes(b"one")
    old = time.time() - 60
    monkeypatch.setattr(file_memo, "DOUBTFUL_NS", 0)
    first = FileDigests()
    first.open(kept)
    digest = first.digest(data)
    first.save()
    read = []
    monkeypatch.setattr(file_memo, "digest_file", lambda path: read.append(path) or "x3:new")
    second = FileDigests()
    second.open(kept)
    assert second.digest(data) == digest and not read
    data.write_bytes(b"two")
    os.utime(data, (old, old))
    assert second.digest(data) == "x3:new" and read
    text = kept.read_bytes()
    for damaged in (text[:-1], text.replace(b"x3:", b"x3;", 2), b"", b"\xff"):
        kept.write_bytes(damaged)
        third = FileDigests()
        third.open(kept)
        assert third.digest(data) == "x3:new"


def test_young_files_are_read_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"one")
    memo = FileDigests()
    first, stat = memo.digest(data), data.stat()
    data.write_bytes(b"two")
    os.utime(data, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert memo.digest(data) != first


def test_an_unwritable_place_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memo = FileDigests()
    memo.open(tmp_path / "file/memo.json")
    memo.digest(tmp_path / "file")
    memo.save()
    assert not Memo(tmp_path / "file", ["x"]).write(0, {}, [], {}, "")
    assert file_digest(tmp_path / "file") == DIGESTS.used()[str(tmp_path / "file")]
    shutil.rmtree(tmp_path)
