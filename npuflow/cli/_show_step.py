"""A step of a recipe and a stored artifact, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import UsageError
from npuflow.cli._engine import plan, recipe, store
from npuflow.cli._files import writing
from npuflow.cli._progress import duration, facts
from npuflow.cli._records import FoundStep, found, record_of, split

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan
    from npuflow.flow.store import Store
    from npuflow.flow.store_manifest import Manifest
    from npuflow.flow.store_record import Record

MANY = 20


def step_text(what: str, path: Path, sets: Sequence[str] | None, cache: Path | None, *, log: bool) -> str:
    """What a step depended on and gave; with `log`, only what it said."""
    loaded = recipe(path, sets)
    wired = plan(loaded)
    kept = store(loaded, cache)
    stage, item = split(wired, what)
    got = found(wired, kept, stage)
    if got is None or item is not None or None in got.keys or not got.records:
        record = record_of(wired, kept, what)
        return _logged(record) if log else "\n".join(_step(record, wired, kept)) + "\n"
    return _logs(got) if log else "\n".join(_fan(stage, got)) + "\n"


def artifact_text(digest: str, path: Path | None, cache: Path | None) -> str:
    """What an artifact holds."""
    kept = store(recipe(path) if path is not None else None, cache)
    return "\n".join(_artifact(kept.manifest(full(digest, kept)), kept)) + "\n"


def export(what: str, path: Path | None, sets: Sequence[str] | None, cache: Path | None, folder: Path) -> str:
    """Copy a step's or a digest's artifact into a folder, for reading, editing and `--override`."""
    import shutil

    loaded = recipe(path, sets) if path is not None else None
    kept = store(loaded, cache)
    if what.startswith("x3:"):
        digest = full(what, kept)
    elif loaded is not None:
        digest = record_of(plan(loaded), kept, what).output
    else:
        raise UsageError(
            "the command needs a recipe",
            hint=f"npuflow show {what} RECIPE --export {folder}",
            code="NF-USAGE-028",
        )
    if folder.exists():
        raise UsageError(
            f'"{folder}" is there already', hint="name a folder that does not exist", code="NF-USAGE-029",
        )
    manifest = kept.manifest(digest)
    reader = kept.open(digest)
    for name in manifest.files:
        reader.checked(name)
    with writing(folder):
        shutil.copytree(kept.object_path(digest), folder)
    return f"{manifest.kind} {digest} -> {folder}\n"


def full(digest: str, kept: Store) -> str:
    """A digest from its first letters."""
    matches = [d for d in kept.digests() if d.startswith(digest)]
    if len(matches) != 1:
        count = "no artifact" if not matches else f"{len(matches)} artifacts"
        verb = "begin" if matches else "begins"
        raise UsageError(
            f'{count} in {kept.root} {verb} with "{digest}"',
            hint="more letters, or another --cache", code="NF-USAGE-030",
        )
    return matches[0]


def _logged(record: Record) -> str:
    if not record.log:
        return f"{record.stage} logged nothing\n"
    return record.log if record.log.endswith("\n") else record.log + "\n"


def _logs(got: FoundStep) -> str:
    seen: set[str] = set()
    text = ""
    for item, record in got.records.items():
        if record.log and record.log not in seen:
            seen.add(record.log)
            text += f"== {item}\n{_logged(record)}"
    return text or "no item logged anything\n"


def _step(record: Record, wired: Plan, kept: Store) -> Iterator[str]:
    name = record.stage if record.item is None else f"{record.stage}/{record.item}"
    yield f"step      {name}"
    yield f"key       {record.key}"
    yield f"took      {duration(record.seconds)}" + (
        f"   log of {record.log.count(chr(10))} lines (--log)" if record.log else ""
    )
    if record.summary:
        yield f"result    {facts(record.summary)}"
    told = dict(record.preimage)
    if record.stage in wired and "config" in told:
        told["config"] = wired[record.stage].in_recipe(told["config"])
    yield from _preimage(told)
    yield ""
    if record.items is None:
        yield from _artifact(kept.manifest(record.output), kept)
    else:
        yield f"collection of {len(record.items)}"
        yield from _listed([(name, digest) for name, (digest, _) in record.items.items()])


def _preimage(preimage: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a key, one line for each fact."""
    for part in ("code", "config", "inputs", "files", "plugins", "libraries", "item"):
        value = preimage.get(part)
        if not value:
            continue
        if isinstance(value, Mapping):
            label = part
            for name, one in sorted(value.items()):
                yield f"{label:<9} {name} = {_short(one)}"
                label = ""
        else:
            yield f"{part:<9} {value}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:197] + "..."


def _fan(stage: str, got: FoundStep) -> Iterator[str]:
    spent = sum(record.seconds for record in got.records.values())
    yield f"step      {stage}, {len(got.records)} of {len(got.keys)} items built, {duration(spent)} in all"
    yield from _listed([(str(item), record.output) for item, record in got.records.items()])


def _listed(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max((len(name) for name, _ in pairs[:MANY]), default=0)
    yield from (f"  {name:<{width}}  {digest}" for name, digest in pairs[:MANY])
    if len(pairs) > MANY:
        yield f"  ... and {len(pairs) - MANY} more"


def _artifact(manifest: Manifest, kept: Store) -> Iterator[str]:
    yield f"artifact  {manifest.kind} {manifest.digest}"
    yield f"folder    {kept.object_path(manifest.digest)}"
    for registry, names in manifest.uses.items():
        yield f"uses      {registry}: {', '.join(names)}"
    for product, file in manifest.products.items():
        yield f"product   {product} = {file}"
    for name, entry in sorted(manifest.entries.items()):
        yield f"  {name:<20} {entry['kind']:<7} {_entry(entry, manifest)}"


def _entry(entry: Mapping[str, Any], manifest: Manifest) -> str:
    if "members" not in entry:
        return f"{manifest.files[entry['file']][0]} bytes"
    members = entry["members"]
    shown = [f"{name or 'array'} {m['dtype']}{list(m['shape'])}" for name, m in sorted(members.items())[:4]]
    return ", ".join(shown) + (f", ... {len(members)} arrays" if len(members) > 4 else "")
