"""The room on the disk that the build of a checkpoint takes, said before it starts."""

from __future__ import annotations

import shutil
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import NpuflowError
from npuflow.base.tables_files import resolve
from npuflow.cli._progress import warn_text

if TYPE_CHECKING:
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.store import Store

BITS = 2                                  # of a weight in a file, at least
BYTES = 44                                # of a weight: what a build of two entries keeps (study 72)
WORTH = 1 << 30                           # bytes below which nobody needs to know


def room_of(model: Path) -> int:
    """Bytes that a build of a checkpoint from nothing keeps in the cache, roughly; 0 for other models."""
    from npuflow.checkpoints import is_checkpoint, opened

    if not is_checkpoint(model):
        return 0
    return BYTES * sum(prod(tensor.shape) for tensor in opened(model).tensors.values())


def stated(model: Path) -> str:
    """What `npuflow new` says of it."""
    room = room_of(model)
    return f"; a build keeps about {gigabytes(room)} in the cache" if room >= WORTH else ""


def warn_where_short(recipe: Recipe, store: Store) -> None:
    """Say so where a build may fill the disk: it would end after minutes."""
    from npuflow.checkpoints import files, is_checkpoint

    path = (recipe.table("model") or {}).get("path")
    model = resolve(path, recipe.at.child("model", "path").base) if isinstance(path, str) else None
    if model is None or not is_checkpoint(model):
        return
    free = shutil.disk_usage(store.root).free
    with suppress(NpuflowError, OSError):     # whatever is wrong with it is the first step's to say
        weights = 8 // BITS * sum(file.stat().st_size for file in files(model))
        if BYTES * weights < max(free, WORTH):  # to open it takes a second
            return
        room = room_of(model)
        _warn(room, free, store)


def _warn(room: int, free: int, store: Store) -> None:
    if room < WORTH:
        return
    held = sum(store.manifest(digest).size for digest in store.digests()) if free < room else 0
    if free < room - held:
        warn_text(
            f"this build keeps about {gigabytes(room)} in {store.root}, where {gigabytes(free)} are free: "
            "`npuflow cache gc` makes room, --cache DIR names another disk"
        )


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
