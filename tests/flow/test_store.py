"""The store: first record wins, damage is set aside, gc keeps what is reached,
remotes are never relied on."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import toys

from npuflow.base.errors import StoreError, UsageError
from npuflow.flow import store_gc
from npuflow.flow.events import Event, Warned
from npuflow.flow.keys import key_of
from npuflow.flow.store import Store
from npuflow.flow.store_gc import gc
from npuflow.flow.store_lease import Lease
from npuflow.flow.store_manifest import sealed, unsealed
from npuflow.flow.store_push import last_build
from npuflow.flow.store_record import Record
from npuflow.flow.store_remote import connect
from npuflow.flow.store_verify import rerun, stats, verify

HERE = Path(__file__).parent


def number(store: Store, value: int) -> str:
    return store.write(toys.kind("Number")(value)).digest


def record(store: Store, name: str, output: str) -> Record:
    preimage = {"stage": "toy", "config": {"name": name}}
    return Record(key_of(preimage), "toy", None, preimage, output, {"ops": ("a",)}, seconds=1.5, log="said")


def test_records_come_back_and_the_first_wins(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one, two = number(store, 1), number(store, 2)
    first = record(store, "k", one)
    assert store.commit(first) == (first, None)
    assert store.record(first.key) == first
    assert store.commit(dataclasses.replace(first, output=two)) == (first, one)
    assert store.record(first.key) == first
    # once the first value is lost the second takes its place, and is still reported
    store.quarantine(one, "test")
    kept, other = store.commit(dataclasses.replace(first, output=two))
    assert kept.output == two and other == one


def test_an_object_that_was_written_again_meanwhile_is_not_set_aside(tmp_path: Path) -> None:
    """A worker could not read it, another wrote it, then the driver heard of the first."""
    store = Store(tmp_path)
    one = number(store, 1)
    store.quarantine_damaged(one)
    assert store.object_path(one).exists() and not store.tell_damages()
    (file,) = [path for path in store.object_path(one).rglob("*") if path.name == "manifest.json"]
    file.write_bytes(file.read_bytes()[:-9])
    store.quarantine_damaged(one)
    assert not store.object_path(one).exists() and len(store.tell_damages()) == 1
    store.quarantine_damaged(one)
    assert not store.tell_damages()


def test_a_record_keeps_the_order_of_its_summary(tmp_path: Path) -> None:
    """A step's figures are shown alike whether it ran or was a hit."""
    store = Store(tmp_path)
    said = {"nodes": 3, "bytes": 5, "errors": {"worst": 1.0, "mean": 0.5}, "a": 0}
    first = dataclasses.replace(record(store, "k", number(store, 1)), summary=said)
    store.commit(first)
    found = Store(tmp_path).record(first.key)
    assert found is not None and str(dict(found.summary)) == str(said)


def test_many_writers_of_one_key_agree(tmp_path: Path) -> None:
    store = Store(tmp_path)
    values = [number(store, value) for value in range(8)]
    kept: list[str] = []
    gate = threading.Barrier(8)

    def writer(output: str) -> None:
        gate.wait()
        kept.append(Store(tmp_path).commit(record(store, "k", output))[0].output)

    threads = [threading.Thread(target=writer, args=(value,)) for value in values]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(set(kept)) == 1 and not list((tmp_path / "tmp").iterdir())


def test_a_digest_algorithm_is_fixed_when_a_cache_is_made(tmp_path: Path) -> None:
    Store(tmp_path)
    body = unsealed((tmp_path / "store.json").read_bytes(), "store", "here")
    (tmp_path / "store.json").write_bytes(sealed({**body, "algorithm": "b3"}))
    with pytest.raises(StoreError, match="uses the digest b3"):
        Store(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 50_000_000])
def test_streams_of_any_size(tmp_path: Path, size: int) -> None:
    store = Store(tmp_path)
    ref = store.write(toys.Blob(size))
    reader = store.open(ref.digest)
    assert reader.path("blob.bin").stat().st_size == size
    assert not verify(store).damaged


@pytest.mark.slow
def test_ten_gigabytes_pass_through_little_memory(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, toys\n"
        "from npuflow.flow.store import Store\n"
        "from npuflow.flow.store_verify import verify\n"
        "store = Store(sys.argv[1])\n"
        "ref = store.write(toys.Blob(10_000_000_000))\n"
        "assert store.open(ref.digest).path('blob.bin').stat().st_size == 10_000_000_000\n"
        "assert not verify(store).damaged\n"
        "rows = pathlib.Path('/proc/self/status').read_text().splitlines()\n"
        "print(next(row.split()[1] for row in rows if row.startswith('VmHWM')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=toys.environment(), check=True, capture_output=True, text=True,
    )
    # kilobytes; getrusage counts what the process that started this one had
    assert int(done.stdout) < 200_000


def test_a_shared_cache_that_takes_nothing_is_told_of_once(tmp_path: Path) -> None:
    """Nothing being there is an answer to a question, but not to an upload."""
    reported: list[str] = []
    store = Store(tmp_path / "cache", connect("/proc/none/such", "read-write"), warn=reported.append)
    store.commit(record(store, "k", store.write(toys.Blob(1)).digest))
    store.commit(record(store, "l", store.write(toys.Blob(2)).digest))
    assert len(reported) == 1 and "an upload failed" in reported[0]


def test_gc_keeps_what_a_place_used_and_drops_the_rest(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = toys.run(cache, out_dir=tmp_path / "out")
    toys.run(cache, {"scale": {"by": 7}})
    store = Store(cache)
    assert gc(store).records == 0  # everything is younger than the grace period
    assert gc(store, 0.0, dry=True).records == 6
    done = gc(store, 0.0)
    assert (done.records, done.kept_records, done.kept_objects) == (6, 10, 10)
    again = toys.run(cache, out_dir=tmp_path / "out")
    assert again.ran == 0 and again.outputs == first.outputs
    for path in sorted((tmp_path / "out").iterdir()):
        path.unlink()
    (tmp_path / "out").rmdir()
    assert gc(store, 0.0).kept_records == 0
    assert not list(store.digests()) and not [*(cache / "tmp").iterdir(), *(cache / "leases").iterdir()]


def test_gc_takes_half_written_memos_but_not_memos(tmp_path: Path) -> None:
    store = Store(tmp_path)
    memo = tmp_path / "memo"
    memo.mkdir()
    for name in ("code.json", ".code.json.abcd"):
        (memo / name).write_text("")
    assert gc(store, 0.0, dry=True).debris == 1
    lease = Lease(tmp_path)
    assert gc(store, 0.0).debris == 0, "a running build may be writing it"
    lease.release()
    assert gc(store, 0.0).debris == 1 and [path.name for path in memo.iterdir()] == ["code.json"]


def test_a_damaged_root_stops_a_collection(tmp_path: Path) -> None:
    toys.run(tmp_path / "cache", out_dir=tmp_path / "out")
    (root,) = (tmp_path / "cache" / "roots").iterdir()
    root.write_bytes(root.read_bytes()[:-20])
    store = Store(tmp_path / "cache")
    assert "damaged root" in gc(store, 0.0).stopped
    assert stats(store).records == 10


def test_a_build_of_a_part_keeps_what_the_whole_build_used(tmp_path: Path) -> None:
    toys.run(tmp_path / "cache", out_dir=tmp_path / "out")
    store = Store(tmp_path / "cache")
    whole = last_build(store, tmp_path / "out")
    toys.run(tmp_path / "cache", until="numbers", out_dir=tmp_path / "out", part=True)
    assert last_build(store, tmp_path / "out") == whole
    gc(store, 0.0)
    assert stats(store).records == 10
    # one that uses other steps is the last build of the place
    toys.run(tmp_path / "cache", {"source": {"count": 30}}, "numbers", out_dir=tmp_path / "out", part=True)
    assert last_build(store, tmp_path / "out") != whole


def test_a_lease_protects_until_its_build_dies(tmp_path: Path) -> None:
    base = Store(tmp_path)
    lease = Lease(tmp_path)
    building = Store(tmp_path, lease=lease.name)
    digest = number(building, 5)
    assert building.record("x3:" + "0" * 32) is None
    kept = record(base, "k", number(base, 6))
    base.commit(kept)
    assert building.record(kept.key) is not None
    assert gc(base, 0.0).kept_records == 1 and base.intact(digest)
    lease.release()
    assert gc(base, 0.0).kept_records == 0 and not base.intact(digest)


def test_what_is_used_while_a_collection_runs_stays(tmp_path: Path) -> None:
    """It was found old, and a build came before it was moved, or while it was."""
    store = Store(tmp_path)
    used, old = (store.object_path(number(store, value)) for value in (1, 2))
    for path in (used, old):
        os.utime(path, (1e9, 1e9))
    begun = time.time() - 1.0
    kept = record(store, "k", f"x3:{used.parent.name}{used.name}")
    store.commit(kept)
    assert store.usable(kept)
    assert store_gc.sweep(store, [used, old], begun)[0] == 1
    assert used.exists() and not old.exists()


def test_gc_beside_a_running_build_removes_nothing_it_needs(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    toys.run(cache, {"source": {"count": 30}})
    tables = {"source": {"count": 60}, "scale": {"by": 3, "sleep": 0.04}}
    first = toys.run(cache, tables, until="numbers")
    assert first.ran == 30
    events: list[Event] = []
    stop, collections = threading.Event(), 0

    def collect() -> None:
        nonlocal collections
        while not stop.is_set():
            gc(Store(cache), 0.0)
            collections += 1

    lease = Lease(cache)  # a build that has looked everything up once
    held = Store(cache, lease=lease.name)
    for keys in first.keys.values():
        for key in keys.values():
            found = held.record(key)
            assert found is not None and held.usable(found)
    thread = threading.Thread(target=collect)
    thread.start()
    try:
        result = toys.run(cache, tables, on_event=events.append, jobs=2)
    finally:
        stop.set()
        thread.join()
        lease.release()
    assert collections > 2 and result.ok
    assert result.hit == 60 and result.ran == 62  # scaled, table, total; nothing twice
    assert not [event for event in events if isinstance(event, Warned)]
    assert not verify(Store(cache)).damaged


def test_two_builds_at_once_share_a_cache(tmp_path: Path) -> None:
    script = (
        "import sys, json, toys, pathlib\n"
        "result = toys.run(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), jobs=2).check()\n"
        "print(json.dumps([result.outputs, result.ran]))\n"
    )
    tables = json.dumps({"source": {"count": 40}, "reading": {"sleep": 0.02}})
    made = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "cache"), tables],
            env=toys.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    answers = [json.loads(one.communicate(timeout=60)[0]) for one in made]
    alone = toys.run(tmp_path / "alone", json.loads(tables), jobs=1)
    assert answers[0][0] == answers[1][0] == alone.outputs
    store = Store(tmp_path / "cache")
    seen = verify(store)
    assert not seen.damaged and seen.records == 82
    gc(store)
    assert not [*(store.root / "tmp").iterdir(), *(store.root / "leases").iterdir()]


def test_stats_and_rerun(tmp_path: Path) -> None:
    toys.run(tmp_path)
    found = stats(Store(tmp_path))
    assert found.stages == {"numbers": 4, "scaled": 4, "table": 1, "total": 1}
    assert found.kinds["Number"][0] == 4 and found.bytes > 0
    assert rerun(toys.plan(), Store(tmp_path), "scaled") == []


# remotes


def share(url: str, mode: str, reported: list[str] | None = None) -> Any:
    return connect(url, mode, (reported if reported is not None else []).append)


def through(url: str, tmp_path: Path) -> None:
    """Filled by one build, read by another, damaged, and gone."""
    made = toys.run(None, store=Store(tmp_path / "one", share(url, "read-write")))
    assert made.ran == 10
    reported: list[str] = []
    read = toys.run(
        None, store=Store(tmp_path / "two", share(url, "read", reported)), out_dir=tmp_path / "out"
    )
    assert (read.ran, read.hit, reported) == (0, 10, []) and read.outputs == made.outputs
    assert read.products["table"].stat().st_size == 32
    # intermediate objects stay where they are until somebody reads them
    assert {*Store(tmp_path / "two").digests()} == {made.outputs["table"], made.outputs["total"]}
    changed = toys.run(
        None, {"source": {"order": -1}}, store=Store(tmp_path / "two", share(url, "read", reported))
    )
    assert changed.ran == 2 and not reported


def test_a_shared_folder_as_remote(tmp_path: Path) -> None:
    through(f"file://{tmp_path / 'share'}", tmp_path)
    assert not [one for one in (tmp_path / "share").rglob("*") if one.name.startswith(".")]


def test_an_object_server_as_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        s3fs.S3FileSystem(endpoint_url=endpoint).mkdir("stored")
        through(f"s3://stored/cache?endpoint_url={endpoint}", tmp_path)
    finally:
        server.stop()


def test_an_unreachable_remote_is_one_warning_and_a_local_build(tmp_path: Path) -> None:
    reported: list[str] = []
    remote = share("s3://bucket/cache?endpoint_url=http://127.0.0.1:1&key=a&secret=b", "read-write", reported)
    begun = time.monotonic()
    result = toys.run(None, store=Store(tmp_path / "cache", remote))
    assert result.ran == 10 and len(reported) == 1 and "is not used by this build" in reported[0]
    assert time.monotonic() - begun < 30


def test_damage_in_a_remote_is_not_used(tmp_path: Path) -> None:
    share_dir = tmp_path / "share"
    made = toys.run(None, store=Store(tmp_path / "one", share(f"file://{share_dir}", "read-write")))
    for path in [*share_dir.rglob("*.tar")]:
        data = bytearray(path.read_bytes())
        data[600] ^= 4
        path.write_bytes(data)
    for path in [*share_dir.rglob("*.json")][:3]:
        path.write_bytes(path.read_bytes()[:-9])
    reported: list[str] = []
    store = Store(tmp_path / "two", share(f"file://{share_dir}", "read", reported))
    events: list[Event] = []
    read = toys.run(None, store=store, out_dir=tmp_path / "out", on_event=events.append)
    assert read.ok and read.outputs == made.outputs and read.products["table"].stat().st_size == 32
    (warning,) = [one for one in events if isinstance(one, Warned)]
    counts = re.search(r"damage in (\d+) objects? and 3 records", warning.message)
    assert counts is not None and 2 <= int(counts[1]) <= 10 and 'remote_mode = "read"' in warning.message
    assert not reported
    total = store.load(read.outputs["total"], toys.kind("Total"))
    assert total.value == 12


def test_a_mode_is_one_of_three(tmp_path: Path) -> None:
    assert connect("file:///x", "off") is None
    with pytest.raises(UsageError):
        connect("file:///x", "write")
