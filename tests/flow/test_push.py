"""Pushing a cache: a remote added to a full local one is filled on demand, again for
nothing, and after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toys

from npuflow.base.errors import StoreError, UsageError
from npuflow.flow import store_push, store_remote
from npuflow.flow.store import Store
from npuflow.flow.store_lease import add_root
from npuflow.flow.store_push import last_build, push
from npuflow.flow.store_remote import connect


def local(
    tmp_path: Path, url: str | None = None, mode: str = "read-write", reported: list[str] | None = None
) -> Store:
    lines = reported if reported is not None else []
    return Store(tmp_path / "one", connect(url or f"file://{tmp_path / 'share'}", mode), warn=lines.append)


def test_a_remote_added_to_a_full_cache_is_filled(tmp_path: Path) -> None:
    made = toys.run(tmp_path / "one")
    toys.run(None, store=local(tmp_path))
    assert not (tmp_path / "share").exists(), "a build uploads what it makes, and this one made nothing"
    counted = push(local(tmp_path), dry=True)
    assert not (tmp_path / "share").exists()
    done = push(local(tmp_path))
    assert (done.records, done.objects, done.records_there, done.left_out) == (10, 10, 0, 0)
    assert done.bytes > 0 and counted == done
    other = toys.run(None, store=Store(tmp_path / "two", connect(f"file://{tmp_path / 'share'}", "read")))
    assert (other.ran, other.hit) == (0, 10) and other.outputs == made.outputs


def test_a_second_push_sends_nothing(tmp_path: Path) -> None:
    toys.run(tmp_path / "one")
    push(local(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "share").rglob("*")}
    done = push(local(tmp_path))
    assert (done.records, done.objects, done.bytes, done.records_there) == (0, 0, 0, 10)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "share").rglob("*")} == before


def test_a_push_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.run(tmp_path / "one", {"source": {"count": 40}})
    monkeypatch.setattr(store_push, "CHUNK", 8)
    monkeypatch.setattr(store_push, "TOGETHER", 1)
    send, sent = store_remote._send, []

    def breaks(fs: Any, place: str, fill: Any) -> None:
        sent.append(place)
        if len(sent) > 30:
            raise OSError("the network is gone")
        send(fs, place, fill)

    monkeypatch.setattr(store_remote, "_send", breaks)
    with pytest.raises(StoreError, match=r"stopped: the network is gone") as caught:
        push(local(tmp_path))
    assert "records and" in caught.value.because and "resumes from there" in caught.value.hint
    monkeypatch.setattr(store_remote, "_send", send)
    done = push(local(tmp_path))
    assert done.records_there > 0 and done.records + done.records_there == 82
    assert not list((tmp_path / "share").rglob(".*")), "half of an upload was left"
    other = Store(tmp_path / "two", connect(f"file://{tmp_path / 'share'}", "read"))
    assert toys.run(None, {"source": {"count": 40}}, store=other).ran == 0


def test_damage_is_not_uploaded(tmp_path: Path) -> None:
    made = toys.run(tmp_path / "one")
    total = Store(tmp_path / "one").object_path(made.outputs["total"])
    (path,) = [one for one in total.iterdir() if one.name != "manifest.json"]
    path.write_bytes(path.read_bytes()[::-1])
    reported: list[str] = []
    done = push(local(tmp_path, reported=reported))
    assert (done.records, done.left_out) == (9, 1) and "is not what was written" in reported[0]


def test_only_what_the_last_build_used(tmp_path: Path) -> None:
    toys.run(tmp_path / "one", {"source": {"count": 40}})
    used = toys.run(tmp_path / "one", {"source": {"count": 3}}, out_dir=tmp_path / "out")
    assert len(last_build(local(tmp_path), tmp_path / "out")) == used.hit + used.ran
    assert push(local(tmp_path), last_build(local(tmp_path), tmp_path / "out")).records == used.hit + used.ran
    with pytest.raises(UsageError, match="no build of"):
        last_build(local(tmp_path), tmp_path / "elsewhere")
    add_root(tmp_path / "one", tmp_path / "lost", ["x3:00"])
    assert push(local(tmp_path), last_build(local(tmp_path), tmp_path / "lost")).records == 0


def test_no_remote_and_one_that_is_only_read_are_one_clear_error(tmp_path: Path) -> None:
    toys.run(tmp_path / "one")
    with pytest.raises(UsageError, match="no remote cache is configured"):
        push(Store(tmp_path / "one"))
    with pytest.raises(UsageError, match='remote_mode = "read"'):
        push(local(tmp_path, mode="read"))


@pytest.mark.parametrize("url", ["file:///no/such/share/npuflow", "nosuch://bucket/cache"])
def test_an_unreachable_remote_is_one_clear_error(tmp_path: Path, url: str) -> None:
    toys.run(tmp_path / "one")
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        push(local(tmp_path, url))
    assert caught.value.because and "mounted" in caught.value.hint
    assert not Path("/no").exists()


def test_an_unreachable_server_is_one_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    toys.run(tmp_path / "one")
    with pytest.raises(StoreError, match="cannot be reached"):
        push(local(tmp_path, "s3://bucket/cache?endpoint_url=http://127.0.0.1:1&key=a&secret=b"))
