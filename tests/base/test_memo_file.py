"""What one process found is found by the next, in the same cache or in another one of the user's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from packages import DAMAGES, damaged

from npuflow.base.memo_file import DAY, made_once, read_memo, read_shared, user_folder, write_shared

MANY = list(range(1000))


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


def test_another_cache_has_it_too(tmp_path: Path) -> None:
    assert write_shared(tmp_path / "one" / "memo.json", "me", MANY)
    assert read_memo(tmp_path / "other" / "memo.json", "me") is None
    assert read_shared(tmp_path / "other" / "memo.json", "me") == MANY
    assert read_shared(tmp_path / "other" / "memo.json", "you") is None
    assert read_shared(tmp_path / "other" / "name.json", "me") is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_no_memo_in_either_place(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "one" / "memo.json"
    write_shared(path, "me", MANY)
    path.write_bytes(damaged(path.read_bytes(), damage))
    assert read_shared(path, "me") == MANY
    mine = user_folder("npuflow-memo") / "memo.json"
    mine.write_bytes(damaged(mine.read_bytes(), damage))
    assert read_shared(path, "me") is None


def test_a_process_that_saw_little_replaces_only_what_is_old_or_anothers(tmp_path: Path) -> None:
    path, mine = tmp_path / "one" / "memo.json", user_folder("npuflow-memo") / "memo.json"

    def user_has(maker: str) -> object:
        return read_memo(mine, maker)

    write_shared(path, "me", MANY)
    write_shared(path, "me", [1])
    assert read_shared(path, "me") == [1] and user_has("me") == MANY
    write_shared(path, "me", MANY[1:])
    assert user_has("me") == MANY[1:]
    os.utime(mine, (0, time.time() - 2 * DAY))
    write_shared(path, "me", [2])
    assert user_has("me") == [2]
    write_shared(path, "me", MANY)
    write_shared(path, "you", [3])
    assert user_has("you") == [3]


def test_a_user_who_cannot_keep_anything_has_what_the_cache_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = tmp_path / "one" / "memo.json"
    assert write_shared(path, "me", MANY) and read_shared(path, "me") == MANY
    assert made_once("value.json", "me", lambda: 5) == 5


def test_a_user_without_a_home_has_what_the_cache_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(none))
    path = tmp_path / "one" / "memo.json"
    assert read_shared(path, "me") is None
    assert write_shared(path, "me", MANY) and read_shared(path, "me") == MANY
    assert made_once("value.json", "me", lambda: 5) == 5


def test_a_value_is_made_once_by_each_maker() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [made_once("value.json", maker, make) for maker in ("me", "me", "you", "you")] == [1, 1, 2, 2]
