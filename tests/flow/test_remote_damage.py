"""Damage in a remote cache counts as absence: built again, written over, and told in one warning."""

from __future__ import annotations

import gc
import random
import re
from pathlib import Path
from typing import Any

import pytest
import toys
from corruption_campaign import altered

from npuflow.flow import store_remote
from npuflow.flow.events import Event, Warned
from npuflow.flow.store import Store
from npuflow.flow.store_remote import connect
from tests.tiers import spread

TABLES = {"source": {"count": 9}}
WAYS = ("flip", "truncate", "empty", "edit", "grow")


class Shared:
    """A remote cache in a folder that one build has filled, and builds with empty local caches in front."""

    def __init__(self, base: Path) -> None:
        self.base, self.folder, self.scheduler, self.number = base, base / "share", "threads", 0
        self.first, self.warned, _ = self.build()

    def build(self, mode: str = "read-write", cache: str = "") -> tuple[Any, list[str], bytes]:
        self.number += 1
        events: list[Event] = []
        store = Store(self.base / (cache or f"cache{self.number}"), connect(f"file://{self.folder}", mode))
        out = self.base / f"out{self.number}"
        found = toys.run(
            None, TABLES, store=store, out_dir=out, on_event=events.append, scheduler=self.scheduler, jobs=2
        )
        warned = [event.message for event in events if isinstance(event, Warned)]
        return found, warned, (out / "table.bin").read_bytes()

    def damage(self, seed: int, way: str, what: str = "tar", share: int = 3) -> int:
        rnd = random.Random(seed)
        files = sorted(self.folder.rglob(f"*.{what}"))
        chosen = rnd.sample(files, max(1, len(files) // share))
        for path in chosen:
            path.write_bytes(altered(rnd, path.read_bytes(), way))
        return len(chosen)


@pytest.mark.parametrize(("way", "what"), spread(WAYS, ["tar", "json"]))
def test_a_third_damaged_is_built_again_and_replaced(tmp_path: Path, way: str, what: str) -> None:
    shared = Shared(tmp_path)
    product = (tmp_path / "out1" / "table.bin").read_bytes()
    for seed in range(10 if way == "flip" else 3):
        shared.damage(seed, way, what)
        found, warned, bytes_now = shared.build()
        assert found.ok and found.outputs == shared.first.outputs and bytes_now == product, (seed, warned)
        assert len(warned) <= 1, warned
        assert all("the remote cache file://" in text and "damage in" in text for text in warned)
        assert not warned or "replaced there: all" in warned[0]
        again, warned, bytes_now = shared.build()
        assert (again.ran, warned, bytes_now) == (0, [], product), seed


def test_all_of_it_damaged_is_as_none_of_it(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    number = shared.damage(1, "flip", "json", share=1) + shared.damage(1, "truncate", share=1)
    found, (warning,), _ = shared.build()
    assert found.ran == shared.first.ran and found.outputs == shared.first.outputs
    assert "20 records" in warning and number > 30
    again, warned, _ = shared.build()
    assert again.ran == 0 and not warned


@pytest.mark.slow
def test_workers_in_other_processes_know_what_one_of_them_found(tmp_path: Path) -> None:
    """What a worker found damaged, the driver took for there: the build ended after the third time."""
    shared = Shared(tmp_path)
    shared.damage(1, "truncate", share=1)
    shared.damage(1, "flip", "json")
    shared.scheduler = "processes:2"
    found, warned, _ = shared.build()
    assert found.ok and found.outputs == shared.first.outputs and len(warned) == 1
    shared.scheduler = "threads"
    again, warned, _ = shared.build()
    assert again.ran == 0 and not warned


def test_a_remote_that_is_only_read_keeps_its_damage_and_stops_nothing(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    shared.damage(3, "flip", share=1)
    before = {path: path.read_bytes() for path in shared.folder.rglob("*.tar")}
    found, (warning,), _ = shared.build("read")
    assert found.outputs == shared.first.outputs and 'remote_mode = "read"' in warning
    assert {path: path.read_bytes() for path in shared.folder.rglob("*.tar")} == before


def test_an_interrupted_repair_is_finished_by_the_next_build(tmp_path: Path) -> None:
    """The local cache has the records of damaged remote objects, and nothing else."""
    shared = Shared(tmp_path)
    shared.build(cache="kept")
    for path in (tmp_path / "kept" / "objects").glob("*/*/*"):
        path.unlink() if path.is_file() else None
    shared.damage(4, "flip", share=1)
    found, warned, _ = shared.build(cache="kept")
    assert found.ok and found.outputs == shared.first.outputs and len(warned) <= 2
    again, warned, _ = shared.build()
    assert again.ran == 0 and not warned


def test_an_object_that_goes_after_it_was_seen_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may remove from a shared cache what this build has just found there."""
    shared = Shared(tmp_path)
    fetch, gone = store_remote.Remote.fetch, list[str]()

    def late(self: Any, store: Any, digest: str) -> bool:
        for path in shared.folder.rglob("*.tar"):
            gone.append(path.name)
            path.unlink()
        return fetch(self, store, digest)

    monkeypatch.setattr(store_remote.Remote, "fetch", late)
    found, warned, _ = shared.build()
    assert gone and found.ok and found.outputs == shared.first.outputs and not warned


def test_half_an_upload_to_an_object_server_is_none() -> None:
    """Closing a half-written file uploads it."""
    from fsspec.spec import AbstractBufferedFile

    uploaded: list[bytes] = []

    class Upload(AbstractBufferedFile):
        def _initiate_upload(self) -> None: ...

        def _upload_chunk(self, final: bool = False) -> bool:
            if final:
                uploaded.append(self.buffer.getvalue())
            return True

    class Server:
        protocol = "server"

        def invalidate_cache(self, path: str) -> None: ...

        def _parent(self, path: str) -> str:
            return path

        def open(self, path: str, mode: str) -> Upload:
            return Upload(self, path, mode)

    def breaks(out: Any) -> None:
        out.write(b"half")
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        store_remote._send(Server(), "/half.tar", breaks)
    gc.collect()
    assert not uploaded
    store_remote._send(Server(), "/whole.tar", lambda out: out.write(b"whole"))
    assert uploaded == [b"whole"]


def test_a_damaged_local_cache_is_one_warning_with_the_count(tmp_path: Path) -> None:
    first = toys.run(tmp_path / "cache", TABLES)
    rnd = random.Random(5)
    for path in sorted((tmp_path / "cache" / "objects").glob("*/*/number.json")):
        data = bytearray(path.read_bytes())
        data[rnd.randrange(len(data) - 1)] ^= 3
        path.write_bytes(data)
    Store(tmp_path / "cache").record_path(first.keys["numbers"]["n1"]).write_bytes(b"")
    events: list[Event] = []
    found = toys.run(tmp_path / "cache", {**TABLES, "scale": {"by": 3}}, on_event=events.append)
    back = toys.run(tmp_path / "cache", TABLES)
    assert found.ok and back.outputs == first.outputs
    (warning,) = [event for event in events if isinstance(event, Warned)]
    found_damaged = re.search(r"damage in (\d+) objects and 1 record: set aside in", warning.message)
    assert found_damaged is not None and int(found_damaged[1]) >= 9 and "cache verify" in warning.hint
