"""Where the cache is; light enough for the fast way out of a build."""

from __future__ import annotations

import os
from pathlib import Path

TAG = "CACHEDIR.TAG"
SIZE = "NPUFLOW_CACHE_SIZE"


def cache_folder(flag: str | Path | None, recipe: Path | None, folder: Path) -> Path:
    """The cache folder: flag, environment, recipe, a `cache/` with a tag at or above
    the recipe, the user's own."""
    if flag is not None:
        return Path(flag).expanduser().absolute()
    environment = os.environ.get("NPUFLOW_CACHE")
    if environment:
        return Path(environment).expanduser().absolute()
    if recipe is not None:
        return recipe
    start = folder.absolute()
    for above in (start, *start.parents):
        if (above / "cache" / TAG).is_file():
            return above / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "npuflow"


def cache_limit(recipe: str | None) -> int | None:
    """The bytes that the cache may hold: the environment's word, else the recipe's; None: no limit."""
    from npuflow.flow.memory import size

    text = os.environ.get(SIZE)
    try:
        found = text or recipe
        return size(found) if found else None
    except ValueError as fault:
        from npuflow.base.errors import UsageError

        raise UsageError(
            f"{SIZE} is no size: {fault}", hint=f"{SIZE}=20GB", code="NF-USAGE-180",
        ) from fault
