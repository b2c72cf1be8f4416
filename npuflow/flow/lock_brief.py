"""A lock without items, and with one digest in place of long lists: what a record of a build keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuflow.base.digest import digest
from npuflow.flow.lock import Lock, LockedStep

KEPT = {"files": 0, "libraries": 24, "plugins": 24}
"""Kinds of fields that name something of each of many, and how many are kept as they are."""


def brief(lock: Lock) -> Lock:
    """The same with the digests of a step's files behind the name `files.all`, likewise of libraries and
    plug-ins where they are many; of its items behind one item, and of code behind its module. Two builds that
    differ do so in brief, too."""
    found = Lock(code=_modules(lock.code))
    found.reach = {name: frozenset(map(_module, reach)) for name, reach in lock.reach.items()}
    for name, step in lock.steps.items():
        items = None if step.items is None else {"all": (_digest(step, 0), _digest(step, 1))}
        found.steps[name] = LockedStep(step.key, step.output, _fields(step.fields), items)
    return found


def _digest(step: LockedStep, which: int) -> str:
    """Of all keys of a step's items, or of all their products."""
    return digest({item: both[which] for item, both in (step.items or {}).items()})


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    kept = dict(fields)
    for kind, most in KEPT.items():
        mine = {name: value for name, value in fields.items() if name.partition(".")[0] == kind}
        if len(mine) > most:
            kept = {name: value for name, value in kept.items() if name not in mine}
            kept[f"{kind}.all"] = digest(mine)
    return kept


def _modules(code: Mapping[str, str]) -> dict[str, str]:
    """Module or file -> one digest of its definitions."""
    found: dict[str, dict[str, str]] = {}
    for name, value in code.items():
        found.setdefault(_module(name), {})[name] = value
    return {module: digest(inner) for module, inner in found.items()}


def _module(name: str) -> str:
    return name.partition(":")[0]
