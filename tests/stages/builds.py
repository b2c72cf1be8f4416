"""A recipe built with a cache beside it, and what its stages gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.run_state import Result
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES


def made(recipe: Path, *sets: str, until: str = "quantize") -> Result:
    return build(recipe, sets, until=until, cache=recipe.parent / "cache")


def products(recipe: Path, result: Result, *stages: str) -> list[Any]:
    settings = Settings(cache=recipe.parent / "cache")
    store = open_cache(load_recipe(recipe), settings)
    return [store.load(result.outputs[name], signature(STAGES[name]).output) for name in stages]
