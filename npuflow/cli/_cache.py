"""The cache verbs at work."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from npuflow.base.errors import StoreError, UsageError
from npuflow.cli._engine import recipe, store
from npuflow.cli._events import emit
from npuflow.cli._progress import warn_text
from npuflow.flow.store import Store


def size(count: int) -> str:
    """Bytes as people say them."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _open(path: Path | None, cache: Path | None, remote: str | None = None) -> Store:
    """An existing cache: looking after one must not make one."""
    from npuflow.flow.recipe_build import Settings, cache_place, open_cache

    loaded = recipe(path) if path is not None else None
    chosen = Settings(cache=cache, remote=remote)
    root = cache_place(loaded, chosen)
    if not (root / "store.json").is_file():
        raise StoreError(
            f"there is no cache at {root}",
            hint="--cache DIR, or --recipe RECIPE for the one it uses", code="NF-STORE-003",
        )
    found = open_cache(loaded, chosen)
    found.warn = warn_text
    return found


def show_stats(path: Path | None, cache: Path | None, *, as_json: bool) -> None:
    from npuflow.flow.store_verify import stats

    found = stats(_open(path, cache))
    if as_json:
        emit({"event": "cache", **asdict(found)})
        return
    out = [f"{found.root}", f"  {found.objects} objects, {size(found.bytes)}", f"  {found.records} records"]
    out += [f"  {found.builds} builds running"] if found.builds else []
    out += [f"  {found.quarantined} set aside as damaged"] if found.quarantined else []
    kinds = sorted(found.kinds.items(), key=lambda pair: -pair[1][1])
    width = max((len(name) for name, _ in kinds), default=0)
    out += [f"    {name:<{width}}  {number:>7}  {size(held):>9}" for name, (number, held) in kinds]
    sys.stdout.write("\n".join(out) + "\n")


def verify_all(path: Path | None, cache: Path | None, *, as_json: bool) -> int:
    from npuflow.flow.store_verify import verify

    found = verify(_open(path, cache))
    if as_json:
        damaged = [{"what": one.what, "reason": one.reason} for one in found.damaged]
        emit({"event": "checked", "records": found.records, "objects": found.objects, "bytes": found.bytes,
              "orphans": found.orphans, "damaged": damaged})
        return 1 if damaged else 0
    text = f"{found.records} records and {found.objects} objects ({size(found.bytes)}) read"
    if found.orphans:
        text += f"; {found.orphans} records without their object"
    if not found.damaged:
        sys.stdout.write(f"{text}; nothing is damaged\n")
        return 0
    for one in found.damaged:
        sys.stdout.write(f"damaged: {one.what}: {one.reason}\n")
    sys.stdout.write(f"{text}; {len(found.damaged)} damaged, set aside; the next build rebuilds them\n")
    return 1


def verify_stage(
    stage: str, path: Path | None, sets: Sequence[str], cache: Path | None, *, as_json: bool
) -> int:
    from npuflow.cli._build import prepare
    from npuflow.flow.recipe_build import Settings
    from npuflow.flow.store_verify import rerun

    if path is None:
        raise UsageError(
            "--rerun needs the recipe whose stage it is",
            hint=f"--recipe RECIPE --rerun {stage}", code="NF-USAGE-002",
        )
    loaded, plan = prepare(path, sets, Settings(cache=cache, force=(stage,), until=stage))
    found = rerun(plan, store(loaded, cache), stage)
    if as_json:
        emit({"event": "rerun", "stage": stage, "differences": list(found)})
        return 1 if found else 0
    for text in found:
        sys.stdout.write(text + "\n")
    sys.stdout.write(f"{stage}: {'not deterministic' if found else 'the same products again'}\n")
    return 1 if found else 0


def limit(
    place: tuple[Path | None, Path | None, str | None], most: str | None, grace: float | None, *, dry: bool,
    as_json: bool,
) -> int:
    """Make a cache as small as asked. `place`: recipe, cache, remote. 1 if running builds keep it larger."""
    from npuflow.flow.memory import size as parsed
    from npuflow.flow.store_limit import shrink
    from npuflow.flow.store_limit_remote import GRACE as REMOTE_GRACE
    from npuflow.flow.store_limit_remote import shrink_remote
    from npuflow.flow.store_remote import Remote

    path, cache, remote = place
    if most is None:
        raise UsageError(
            "--remote needs the size that the remote cache may have", hint="--max-size 500GB",
            code="NF-USAGE-181",
        )
    try:
        wanted = parsed(most)
    except ValueError as fault:
        raise UsageError(f"--max-size: {fault}", hint="--max-size 20GB", code="NF-USAGE-182") from fault
    if remote is not None:
        young = REMOTE_GRACE if grace is None else grace
        found = shrink_remote(Remote(remote, "read-write"), wanted, young, dry=dry)
    else:
        found = shrink(_open(path, cache), wanted, grace or 0.0, dry=dry)
    if as_json:
        emit({"event": "removed", "dry": dry, **asdict(found), "over": found.over})
        return int(found.over)
    more = f", {found.quarantined} damaged" if found.quarantined else ""
    sys.stdout.write(
        f"{'would go' if dry else 'removed'}: {found.records} records, {found.objects} objects{more} "
        f"({size(found.bytes)}); left: {size(found.left)}\n"
    )
    if found.over:
        sys.stdout.write("more than that is in use: running builds, or uses within --grace, keep it\n")
    return int(found.over)


def collect(
    path: Path | None, cache: Path | None, grace: float | None, *, dry: bool, as_json: bool
) -> int:
    from npuflow.flow.store_gc import GRACE, gc

    found = gc(_open(path, cache), GRACE if grace is None else grace, dry=dry)
    if as_json:
        emit({"event": "removed", "dry": dry, **asdict(found)})
        return int(bool(found.stopped))
    if found.stopped:
        sys.stdout.write(f"nothing removed: {found.stopped}\n")
        return 1
    word = "would go" if dry else "removed"
    freed = "" if dry else f" ({size(found.bytes)})"
    sys.stdout.write(
        f"{word}: {found.records} records, {found.objects} objects, {found.debris} leftovers{freed}; "
        f"kept: {found.kept_records} records, {found.kept_objects} objects\n"
    )
    return 0


EVERY = 5.0         # seconds between two lines of a long upload


def send(
    path: Path | None, cache: Path | None, remote: str | None, *, last: bool, dry: bool, as_json: bool
) -> None:
    from npuflow.flow.recipe_build import Settings, output_folder
    from npuflow.flow.store_push import Pushed, last_build, push

    if last and path is None:
        raise UsageError(
            "--last-build needs the recipe whose build it is",
            hint="--recipe RECIPE --last-build", code="NF-USAGE-003",
        )
    held = _open(path, cache, remote)
    keys = (
        last_build(held, output_folder(recipe(path), Settings()).absolute())
        if last and path is not None
        else None
    )
    due = time.monotonic() + EVERY

    def tell(done: Pushed) -> None:
        nonlocal due
        if time.monotonic() > due:
            due = time.monotonic() + EVERY
            sys.stderr.write(f"{done.records} records, {done.objects} objects, {size(done.bytes)} so far\n")

    done = push(held, keys, dry=dry, tell=tell)
    if as_json:
        emit({"event": "pushed", "dry": dry, **asdict(done)})
        return
    lost = (
        f"; {done.left_out} records left out, because this cache lacks their objects" if done.left_out else ""
    )
    sys.stdout.write(
        f"{'would send' if dry else 'sent'}: {done.records} records, {done.objects} objects, "
        f"{size(done.bytes)}; "
        f"there already: {done.records_there} records{lost}\n"
    )
