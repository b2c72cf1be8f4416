"""The cache verbs at work."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from npuflow.base.errors import StoreError, UsageError
from npuflow.cli._engine import recipe, store
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


def _open(path: Path | None, cache: Path | None) -> Store:
    """An existing cache: looking after one must not make one."""
    from npuflow.flow.recipe_build import Settings, cache_place

    loaded = recipe(path) if path is not None else None
    root = cache_place(loaded, Settings(cache=cache))
    if not (root / "store.json").is_file():
        raise StoreError(f"there is no cache at {root}", hint="--cache DIR, or --recipe RECIPE for the one it uses")
    found = store(loaded, cache)
    found.warn = warn_text
    return found


def show_stats(path: Path | None, cache: Path | None, *, as_json: bool) -> None:
    from npuflow.flow.store_verify import stats

    found = stats(_open(path, cache))
    if as_json:
        sys.stdout.write(json.dumps(asdict(found)) + "\n")
        return
    out = [f"{found.root}", f"  {found.objects} objects, {size(found.bytes)}", f"  {found.records} records"]
    out += [f"  {found.builds} builds running"] if found.builds else []
    out += [f"  {found.quarantined} set aside as damaged"] if found.quarantined else []
    kinds = sorted(found.kinds.items(), key=lambda pair: -pair[1][1])
    width = max((len(name) for name, _ in kinds), default=0)
    out += [f"    {name:<{width}}  {number:>7}  {size(held):>9}" for name, (number, held) in kinds]
    sys.stdout.write("\n".join(out) + "\n")


def verify_all(path: Path | None, cache: Path | None) -> int:
    from npuflow.flow.store_verify import verify

    found = verify(_open(path, cache))
    text = f"{found.records} records and {found.objects} objects ({size(found.bytes)}) read"
    if found.orphans:
        text += f"; {found.orphans} records without their object"
    if not found.damaged:
        sys.stdout.write(f"{text}; nothing is damaged\n")
        return 0
    for one in found.damaged:
        sys.stdout.write(f"damaged: {one.what}: {one.reason}\n")
    sys.stdout.write(f"{text}; {len(found.damaged)} damaged, set aside; the next build makes them again\n")
    return 1


def verify_stage(stage: str, path: Path | None, sets: Sequence[str], cache: Path | None) -> int:
    from npuflow.cli._build import prepare
    from npuflow.flow.recipe_build import Settings
    from npuflow.flow.store_verify import rerun

    if path is None:
        raise UsageError("--rerun needs the recipe whose stage it is", hint=f"--recipe RECIPE --rerun {stage}")
    loaded, plan = prepare(path, sets, Settings(cache=cache, force=(stage,), until=stage))
    found = rerun(plan, store(loaded, cache), stage)
    for text in found:
        sys.stdout.write(text + "\n")
    sys.stdout.write(f"{stage}: {'not deterministic' if found else 'the same products again'}\n")
    return 1 if found else 0


def collect(path: Path | None, cache: Path | None, grace: float, *, dry: bool) -> int:
    from npuflow.flow.store_gc import gc

    found = gc(_open(path, cache), grace, dry=dry)
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
