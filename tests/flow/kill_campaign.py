"""Kills a build at one moment after another, and sees what the next build makes of it.
Prints one JSON line a kill."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed  # noqa: F401  (imported before the forks, once for all of them)
import toys
import zarr  # noqa: F401

from npuflow.flow import executor
from npuflow.flow.store import Store
from npuflow.flow.store_gc import gc
from npuflow.flow.store_verify import verify

CHANGES = {"open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.utime"}
TABLES: dict[str, Any] = {"source": {"count": 6}}


def moment(event: str, args: tuple[Any, ...], cache: str) -> str | None:
    """What kind of moment an operation on the cache is, or None."""
    if event not in CHANGES or (
        event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR))
    ):
        return None
    paths = [os.fsdecode(one) for one in args[:2] if isinstance(one, str | bytes | os.PathLike)]
    inside = [os.path.relpath(path, cache) for path in paths if path.startswith(cache)]
    if not inside:
        return None
    return f"{event.removeprefix('os.')} {inside[-1].split('/')[0]}"


def child(work: Callable[[], Any], answer: Path) -> int:
    """Run in a forked process; 0 when it lived."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            answer.write_text(json.dumps(work()))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def build(cache: Path, out: Path, tables: dict[str, Any]) -> dict[str, Any]:
    executor.BRIEF = 0.0  # with two jobs, dask takes over at once
    result = toys.run(cache, tables, jobs=random.Random(str(cache)).choice([1, 2]), out_dir=out).check()
    return {"outputs": result.outputs, "ran": result.ran, "hit": result.hit}


def watched(cache: Path, out: Path, kill_at: int | None) -> dict[str, Any]:
    """A build whose changes to the cache are counted; before the one numbered `kill_at` the process dies."""
    seen: list[str] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        kind = moment(event, args, str(cache))
        if kind is None:
            return
        if len(seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(kind)

    sys.addaudithook(hook)
    build(cache, out, TABLES)
    return {"moments": seen}


def prepare(folder: Path) -> tuple[Path, Path]:
    """An earlier build of a smaller recipe, with one object truncated, so that the
    next build also sets aside."""
    cache, out = folder / "cache", folder / "out"
    first = toys.run(cache, {"source": {"count": 3}}, jobs=1)
    store = Store(cache)
    record = store.record(first.keys["numbers"]["n1"])
    if record is None:
        raise RuntimeError("the first build left no record")
    (store.object_path(record.output) / "number.json").write_text("")
    return cache, out


def after(cache: Path, out: Path) -> dict[str, Any]:
    """What the next build finds: everything recorded is used, and a collection leaves nothing stray."""
    store = Store(cache)
    before = {
        key for key in store.record_keys() if (one := store.record(key, touch=False)) and store.usable(one)
    }
    result = build(cache, out, TABLES)
    again = build(cache, out, TABLES)
    collected = gc(store, 0.0)
    left = sorted(
        str(path.relative_to(cache))
        for kind in ("tmp", "leases", "quarantine")
        for path in (cache / kind).iterdir()
    )
    seen = verify(store)
    product = (out / "table.bin").read_bytes().hex()
    return {
        **result,
        "finished": len(before),
        "again": again["ran"],
        "left": left,
        "product": product,
        "damaged": [str(one) for one in seen.damaged],
        "orphans": seen.orphans,
        "kept": collected.kept_records,
        "strays": [one.name for one in out.iterdir() if one.name.startswith(".")],
    }


def main(seed: int, count: int, base: Path) -> None:
    rnd = random.Random(seed)
    answer = base / "answer.json"

    def fresh(name: str) -> tuple[Path, Path]:
        shutil.copytree(base / "start", base / name)
        return base / name / "cache", base / name / "out"

    if child(lambda: [str(one) for one in prepare(base / "start")], answer):
        raise SystemExit("the first build failed")
    cache, out = fresh("calm")
    child(lambda: watched(cache, out, None), answer)
    moments: list[str] = json.loads(answer.read_text())["moments"]
    child(lambda: after(cache, out), answer)
    calm = json.loads(answer.read_text())
    by_kind: dict[str, list[int]] = {}
    for index, kind in enumerate(moments):
        by_kind.setdefault(kind, []).append(index)
    kinds = sorted(by_kind)
    print(json.dumps({"seed": seed, "moments": len(moments), "kinds": kinds, "calm": calm}), flush=True)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        at = rnd.choice(by_kind[kind])
        cache, out = fresh(f"kill{number}")
        status = child(lambda cache=cache, out=out, at=at: watched(cache, out, at), answer)
        failed = child(lambda cache=cache, out=out: after(cache, out), answer)
        found = json.loads(answer.read_text()) if not failed else {}
        print(json.dumps({"kind": kind, "at": at, "killed": status == signal.SIGKILL, **found}), flush=True)
        shutil.rmtree(base / f"kill{number}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
