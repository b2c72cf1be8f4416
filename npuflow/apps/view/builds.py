"""What the cache holds of builds: the last one of every place, its stages, what each read and said."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from npuflow.flow.store import Store
from npuflow.flow.store_lease import read_root
from npuflow.flow.store_manifest import Damaged
from npuflow.flow.store_record import Record

BUILD = re.compile(r"[0-9a-f]{8,64}")
DIGEST = re.compile(r"\w+:[0-9a-f]{16,}")
REPORT = ("report", "report.html")  # the stage, and the entry of its artifact
UNSAID = ("verdict_ok", "verdict_hint")  # what the command line makes of a verdict's sentence
MOST_KEPT = 4  # builds whose records stay in memory
_KEPT: dict[tuple[str, int], list[Record]] = {}
FIGURES = ("verdict", "evaluate", "simulate", "tiling", "quantize")


def builds(store: Store) -> list[dict[str, Any]]:
    """The last builds of all places, the newest first, with what failed; no record is read."""
    found = []
    for path in (store.root / "roots").glob("*.json"):
        with suppress(Damaged, OSError):
            body = read_root(path)
            place = Path(body["place"])
            row = {"id": path.stem, "name": place.name, "place": str(place), "steps": len(body["keys"])}
            found.append({**row, "at": path.stat().st_mtime, "errors": body.get("errors", [])})
    return sorted(found, key=lambda row: -row["at"])


def build(store: Store, name: str) -> dict[str, Any] | None:
    """One build: its stages in an order in which each comes after what it reads, and what failed."""
    held, errors = records(store, name), failures(store, name)
    if not held and not errors:
        return None
    made = {digest: stage_of(r.stage) for r in held for digest in (r.output, *r.objects)}
    names = {*made.values()}
    rows: dict[str, dict[str, Any]] = {}
    for one in held:
        stage = stage_of(one.stage)
        row = rows.setdefault(
            stage, {"stage": stage, "steps": 0, "seconds": 0.0, "summary": {}, "needs": set(), "key": ""}
        )
        row["steps"] += 1
        row["seconds"] += one.seconds
        row["needs"] |= set(_read(one, made, names)) - {stage}
        if one.stage == stage and one.item is None:
            row["summary"] = {name: value for name, value in one.summary.items() if name not in UNSAID}
            row["key"] = one.key
    ordered = _ordered(rows)
    stages = [{**row, "needs": sorted(row["needs"])} for row in ordered]
    shown = {stage: rows[stage]["summary"] for stage in FIGURES if stage in rows and rows[stage]["summary"]}
    if "verdict" in shown:  # the sentence says what the figures are
        shown["verdict"] = {"": shown["verdict"].get("verdict", "")}
    return {
        "id": name,
        "stages": stages,
        "figures": shown,
        "report": _report(store, name) is not None,
        "errors": errors,
    }


def log(store: Store, name: str, stage: str) -> str | None:
    """What the steps of a stage said, items under their names."""
    parts = [
        (f"{one.item}:\n" if one.item else "") + one.log
        for one in records(store, name)
        if stage_of(one.stage) == stage and one.log.strip()
    ]
    return "\n".join(parts) if parts else None


def failures(store: Store, name: str) -> list[dict[str, Any]]:
    """Why a build failed, as the command line says it: message, place, reason and what to try."""
    with suppress(Damaged, OSError):
        if BUILD.fullmatch(name):
            return list(read_root(store.root / "roots" / f"{name}.json").get("errors", []))
    return []


def report(store: Store, name: str) -> str | None:
    """The report page of a build."""
    found = _report(store, name)
    return None if found is None else store.open(found.output).text(REPORT[1])


def _report(store: Store, name: str) -> Record | None:
    """The record of a build's report, where the cache still has the report whole."""
    made = (one for one in records(store, name) if one.stage == REPORT[0])
    return next((one for one in made if store.intact(one.output, remote=False)), None)


def stage_of(step: str) -> str:
    """The stage that a step belongs to: parts and merges are named after it."""
    return step.partition(".")[0]


def records(store: Store, name: str) -> list[Record]:
    """The records of a build. Those of the last few builds are kept until these are built again."""
    if not BUILD.fullmatch(name):
        return []
    path = store.root / "roots" / f"{name}.json"
    with suppress(Damaged, OSError):
        at = (str(path), path.stat().st_mtime_ns)
        if at not in _KEPT:
            keys = read_root(path)["keys"]
            found = (store.record(key, touch=False, remote=False) for key in keys)
            _KEPT[at] = [one for one in found if one is not None]
            while len(_KEPT) > MOST_KEPT:
                _KEPT.pop(next(iter(_KEPT)), None)
        return _KEPT.get(at, [])
    return []


def _read(record: Record, made: Mapping[str, str], names: Collection[str]) -> Iterator[str]:
    """The stages whose products a step read: by digest, of collections by the parameter's name."""
    yield from (made[d] for d in _digests(record.preimage.get("item")) if d in made)
    for name, value in (record.preimage.get("inputs") or {}).items():
        known = [made[d] for d in _digests(value) if d in made]
        yield from known or ([name] if value is not None and name in names else [])


def _digests(value: Any) -> Iterator[str]:
    """Every digest in a pre-image's value."""
    if isinstance(value, str):
        yield from (m.group() for m in DIGEST.finditer(value))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _digests(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _digests(one)


def _ordered(rows: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    left, done, found = dict(sorted(rows.items())), set(), []
    while left:
        ready = [name for name, row in left.items() if not (row["needs"] & left.keys())] or list(left)
        for name in ready:
            found.append(left.pop(name))
            done.add(name)
    return found
