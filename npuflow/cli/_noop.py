"""The fast path of a build with nothing to do, which imports no parser, stages, recipe or store."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

VALUED = {"--set", "--until", "--cache", "--out", "--override", "--remote", "--jobs", "-j", "--scheduler"}
FLAGS = {"--json", "--quiet", "-q", "--keep-going", "-k", "--strict"}
MARK = "\0seconds\0"
"""Stands in the remembered text for the time that this build took."""


def nothing_to_do(args: Sequence[str]) -> bool:
    """Whether a memo proves that these recipes are built; says so if it does."""
    begun = time.perf_counter()
    folder = memo_folder(args)
    if folder is None:
        return False
    from npuflow.flow.memo import Memo

    memo = Memo(folder, args)
    if not memo.holds():
        return False
    seconds = time.perf_counter() - begun
    shown = f"{seconds:.6f}" if "--json" in args else f"{seconds * 1000:.0f} ms"
    sys.stdout.write(str(memo.payload).replace(MARK, shown))
    sys.stdout.flush()
    return True


def memo_folder(args: Sequence[str]) -> Path | None:
    """The cache folder of a build command, or None if only the full way can tell."""
    recipes: list[str] = []
    cache: str | None = None
    rest = iter(args)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in FLAGS:
            continue
        if name in VALUED:
            given = value if equals else next(rest, None)
            if given is None:
                return None
            if name == "--cache":
                cache = given
        elif word.startswith("-"):
            return None
        else:
            recipes.append(word)
    if not recipes:
        return None
    from npuflow.flow.recipe_cache import cache_folder

    if cache is not None or os.environ.get("NPUFLOW_CACHE"):
        return cache_folder(Path(cache) if cache is not None else None, None, Path())
    places = {_stated(Path(recipe), args) for recipe in recipes}
    # recipes with caches of their own have no memo in common
    return places.pop() if len(places) == 1 else None


def _stated(recipe: Path, args: Sequence[str]) -> Path | None:
    """The cache that a recipe states or falls back to; the file is only parsed if it
    may say something about it."""
    from npuflow.flow.recipe_cache import cache_folder

    try:
        text = recipe.read_bytes()
    except OSError:
        return None
    if b"cache" not in text and b"extends" not in text and not any("build" in word for word in args):
        return cache_folder(None, None, recipe.absolute().parent)
    from npuflow.base.errors import NpuflowError
    from npuflow.cli._engine import settings
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import cache_place

    sets = [args[i + 1] for i, word in enumerate(args[:-1]) if word == "--set"]
    sets += [word.partition("=")[2] for word in args if word.startswith("--set=")]
    try:
        return cache_place(load(recipe, sets), settings())
    except NpuflowError:
        return None  # the full way says what is wrong
