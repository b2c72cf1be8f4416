"""Builds of the toy compiler for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npuflow.base.registry import Registry
from npuflow.base.tables import Locator
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.run import Result, build
from npuflow.flow.store import Store
from npuflow.flow.wire import wire

STAGES = Registry.unlisted("stages", "toybox.stages")


def plan(tables: dict[str, Any] | None = None, **more: Any) -> Plan:
    return wire(STAGES, Recipe(None, "toy", tables or {}, Locator()), **more)


def run(cache: Path, tables: dict[str, Any] | None = None, until: str | None = None, **more: Any) -> Result:
    override = more.pop("override", None)
    store = more.pop("store", None) or Store(cache)
    return build(plan(tables, until=until, override=override), store, **more)
