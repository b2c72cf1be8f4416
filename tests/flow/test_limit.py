"""A limit of the cache's size: the oldest unused things go, and nothing that a running build uses."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import toys

from npuflow.base.errors import UsageError
from npuflow.flow import run_keeper, store_limit_remote
from npuflow.flow.events import Event, Warned
from npuflow.flow.memo import Memo
from npuflow.flow.recipe_cache import cache_limit
from npuflow.flow.store import Store
from npuflow.flow.store_lease import Lease, root_file
from npuflow.flow.store_limit import shrink
from npuflow.flow.store_limit_remote import keep_small, shrink_remote
from npuflow.flow.store_remote import Remote, connect
from npuflow.flow.store_verify import stats, verify

OLD = 1e9


def tables(number: int) -> dict[str, Any]:
    """A build that shares only its numbers with others; one of its objects is large."""
    return {"scale": {"by": number}}


def aged(folder: Path, when: float) -> None:
    """Everything in a cache was last used then."""
    for kind in ("records", "objects", "roots"):
        for path in [*(folder / kind).glob("*/*"), *(folder / kind).glob("*.json")]:
            if path.stat().st_mtime > OLD + 1000:
                os.utime(path, (when, when))


def three(cache: Path) -> list[Any]:
    """Three builds, one after the other; what two of them use was used by the later one."""
    found = []
    for number in (2, 3, 4):
        found.append(toys.run(cache, tables(number)))
        aged(cache, OLD + number)
    return found


def size(cache: Path) -> int:
    kept = [path for kind in ("objects", "records") for path in (cache / kind).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in kept)


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    three(tmp_path)
    store = Store(tmp_path)
    whole = size(tmp_path)
    assert shrink(store, whole).bytes == 0
    counted = shrink(store, whole - 1, dry=True)
    assert counted.records + counted.objects == 1 and size(tmp_path) == whole
    done = shrink(store, whole * 3 // 4)
    assert done.bytes > 0 and size(tmp_path) == done.left <= whole * 3 // 4 and not done.over
    again = [toys.run(tmp_path, tables(number)) for number in (4, 3, 2)]
    assert [one.ran == 0 for one in again] == [True, True, False], "the first build's alone have gone"
    assert not verify(store).damaged and not list((tmp_path / "tmp").iterdir())
    assert shrink(store, 0).left == 0 and stats(store).records == 0


def test_what_a_running_build_uses_stays(tmp_path: Path) -> None:
    first, *_ = three(tmp_path)
    lease = Lease(tmp_path)
    held = Store(tmp_path, lease=lease.name)
    used = [key for keys in first.keys.values() for key in keys.values()]
    for key in used:
        record = held.record(key)
        assert record is not None and held.usable(record)
    done = shrink(Store(tmp_path), 0)
    assert done.over and stats(held).records == len(used)
    assert toys.run(tmp_path, tables(2)).ran == 0
    lease.release()
    assert not shrink(Store(tmp_path), 0).over and not size(tmp_path)


def test_the_last_build_of_a_place_counts_as_use(tmp_path: Path) -> None:
    """A build with nothing to do looks nothing up; it notes that its place is in use."""
    cache = tmp_path / "cache"
    toys.run(cache, tables(2), out_dir=tmp_path / "out")
    aged(cache, OLD)
    toys.run(cache, tables(3))
    aged(cache, OLD + 9)
    root = root_file(cache, tmp_path / "out")
    memo = Memo(cache, ["build"])
    assert memo.write(time.time_ns(), {}, [str(root)], {}, "", [str(root)])
    os.utime(root, (OLD + 5, OLD + 5))
    assert memo.write(time.time_ns(), {}, [], {}, "", [str(root)]) and Memo(cache, ["build"]).holds()
    assert root.stat().st_mtime > OLD + 9
    shrink(Store(cache), size(cache) * 2 // 3)
    assert toys.run(cache, tables(2)).ran == 0 and toys.run(cache, tables(3)).ran > 0


def test_a_build_keeps_the_limit_and_says_when_it_cannot(tmp_path: Path) -> None:
    three(tmp_path)
    events: list[Event] = []
    store = Store(tmp_path)
    store.limit = size(tmp_path)
    toys.run(None, tables(5), store=store, on_event=events.append)
    assert size(tmp_path) <= store.limit and not [one for one in events if isinstance(one, Warned)]
    assert toys.run(tmp_path, tables(5)).ran == 0
    aged(tmp_path, OLD)  # a clock's tick may be longer than the time from one build to the next
    store.limit = 1
    result = toys.run(None, tables(6), store=store, on_event=events.append)
    (warning,) = [one for one in events if isinstance(one, Warned)]
    assert result.ok and "more than its limit" in warning.message and "cache_size" in warning.hint
    assert stats(store).records == result.ran + result.hit, "all but what the build used has gone"


def test_several_builds_at_once_beside_evictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that one of them has found or made is built twice."""
    monkeypatch.setattr(run_keeper, "EVERY", 0.02)
    toys.run(tmp_path, {"source": {"count": 30}}, until="numbers")
    aged(tmp_path, OLD)
    results: dict[int, Any] = {}
    events: list[Event] = []
    lease = Lease(tmp_path)

    def run(number: int) -> None:
        store = Store(tmp_path)
        store.limit = 1
        own = {"source": {"count": 30 + number}, "scale": {"by": number, "sleep": 0.01}}
        results[number] = toys.run(None, own, store=store, on_event=events.append, jobs=2)

    threads = [threading.Thread(target=run, args=(number,)) for number in (2, 3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        shrink(Store(tmp_path), 0)
        time.sleep(0.01)
    lease.release()
    for number, result in results.items():
        assert result.ok and result.ran + result.hit == 2 * (30 + number) + 2
    said = [one.message for one in events if isinstance(one, Warned)]
    assert all("more than its limit" in text for text in said), said
    assert not verify(Store(tmp_path)).damaged


def test_a_limit_is_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_limit(None) is None and cache_limit("2GB") == 2 * 10**9
    monkeypatch.setenv("NPUFLOW_CACHE_SIZE", "1GiB")
    assert cache_limit("2GB") == 1 << 30
    monkeypatch.setenv("NPUFLOW_CACHE_SIZE", "much")
    with pytest.raises(UsageError, match="NPUFLOW_CACHE_SIZE is no size"):
        cache_limit(None)


# remotes


class Shared:
    """A remote cache, and builds in front of it with local caches of their own."""

    def __init__(self, url: str, base: Path) -> None:
        self.url, self.base, self.number = url, base, 0

    @property
    def remote(self) -> Remote:
        found = connect(self.url, "read-write")
        assert found is not None
        return found

    def build(self, number: int, mode: str = "read-write", **more: Any) -> Any:
        self.number += 1
        store = Store(self.base / f"local{self.number}", connect(self.url, mode))
        if store.remote is not None:
            store.remote.limit = more.pop("limit", None)
        return toys.run(None, tables(number), store=store, **more)


def evicted(shared: Shared, apart: float) -> None:
    """Only the oldest go, what is in use stays, and what has gone is built again. `apart`: seconds after
    which the remote tells another time; an object server tells whole ones."""
    for number in (2, 3, 4):
        shared.build(number)
        time.sleep(apart)
    remote = shared.remote
    whole = shrink_remote(remote, 0, dry=True).left
    assert shrink_remote(remote, 0).over, "all of it was used in the last hour"
    assert shared.build(2).ran == 0, "and the first build's are now the last used"
    counted = shrink_remote(remote, whole * 3 // 4, -5.0, dry=True)
    done = shrink_remote(remote, whole * 3 // 4, -5.0)
    assert counted == done and 0 < done.left <= whole * 3 // 4 and not done.over
    assert [shared.build(number, "read").ran == 0 for number in (2, 4, 3)] == [True, True, False]
    assert shrink_remote(remote, 0, -5.0).left == 0
    assert shared.build(2).ran == 10


def test_a_remote_folder_is_kept_small(tmp_path: Path) -> None:
    evicted(Shared(f"file://{tmp_path / 'share'}", tmp_path), apart=0.1)
    assert not [path for path in (tmp_path / "share").rglob("*") if path.name.startswith(".")]


@pytest.mark.slow
def test_an_object_server_is_kept_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moto = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        s3fs.S3FileSystem(endpoint_url=endpoint).mkdir("limited")
        evicted(Shared(f"s3://limited/cache?endpoint_url={endpoint}", tmp_path), apart=1.1)
    finally:
        server.stop()


def test_builds_look_at_the_remote_once_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(f"file://{tmp_path / 'share'}", tmp_path)
    looked: list[int] = []
    real = store_limit_remote.shrink_remote

    def noted(remote: Remote, limit: int) -> Any:
        looked.append(limit)
        return real(remote, limit)

    monkeypatch.setattr(store_limit_remote, "shrink_remote", noted)
    events: list[Event] = []
    for number in (2, 3):
        shared.build(number, limit=10, on_event=events.append)
    (warning,) = [one for one in events if isinstance(one, Warned)]
    assert looked == [10] and "more than its limit" in warning.message and "remote_size" in warning.hint
    assert keep_small(shared.remote) is None, "it has no limit"


def test_old_notes_of_use_become_one(tmp_path: Path) -> None:
    shared = Shared(f"file://{tmp_path / 'share'}", tmp_path)
    for _ in range(3):
        shared.build(2)
    notes = [*(tmp_path / "share" / "uses").iterdir()]
    for path in notes:
        os.utime(path, (OLD, OLD))
    for path in (tmp_path / "share" / "objects").rglob("*.tar"):
        os.utime(path, (OLD - 9, OLD - 9))
    kept = shrink_remote(shared.remote, 10**9)
    assert len(notes) == 2 and kept.bytes == 0 and len([*(tmp_path / "share" / "uses").iterdir()]) == 1
    # what the notes said is still known: records are younger, and objects as old as their last use
    entries = shrink_remote(shared.remote, 0, time.time() - OLD + 5)
    assert entries.bytes == 0


def test_a_remote_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    shared = Shared(f"file://{tmp_path / 'share'}", tmp_path)
    shared.build(2)
    with pytest.raises(UsageError, match="is only read"):
        shrink_remote(Remote(shared.url, "read"), 0)
