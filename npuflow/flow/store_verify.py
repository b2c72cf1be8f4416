"""Looks after a store: how much it holds, whether every byte of it is what was written."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuflow.flow.keys import key_of
from npuflow.flow.store import Store
from npuflow.flow.store_lease import live, now, read_root
from npuflow.flow.store_manifest import MANIFEST, Damaged, Manifest, file_digest


@dataclass
class Stats:
    """What a store holds."""

    root: str
    id: str
    records: int = 0
    objects: int = 0
    bytes: int = 0
    quarantined: int = 0
    builds: int = 0
    """Builds that run at this moment."""
    stages: dict[str, int] = field(default_factory=dict)
    """Records of each stage."""
    kinds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number and bytes of the objects of each kind."""


@dataclass
class Verified:
    """What a verification saw. Everything in `damaged` has been set aside and will be built again."""

    records: int = 0
    objects: int = 0
    bytes: int = 0
    damaged: list[Damaged] = field(default_factory=list)
    orphans: int = 0
    """Records whose object is gone."""


def stats(store: Store) -> Stats:
    """Count records and objects, by stage and kind."""
    found = Stats(str(store.root), store.id)
    stages: Counter[str] = Counter()
    for key in store.record_keys():
        record = store.record(key, touch=False)
        if record is not None:
            found.records += 1
            stages[record.stage] += 1
    number: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for digest in store.digests():
        try:
            manifest = store.manifest(digest)
        except Damaged:
            continue
        found.objects += 1
        number[manifest.kind] += 1
        size[manifest.kind] += manifest.size
    found.bytes = sum(size.values())
    found.stages = dict(sorted(stages.items()))
    found.kinds = {kind: (number[kind], size[kind]) for kind in sorted(number)}
    found.quarantined = sum(1 for _ in (store.root / "quarantine").iterdir())
    found.builds = len(live(store.root, now(store.root)))
    return found


def verify(store: Store) -> Verified:
    """Read every file of every object, and every record; set aside what is not as it was written."""
    seen = Verified()
    for digest in list(store.digests()):
        folder = store.object_path(digest)
        try:
            manifest = check_object(folder, digest)
        except Damaged as damage:
            seen.damaged.append(damage)
            store.quarantine(digest, damage.reason)
            continue
        seen.objects += 1
        seen.bytes += manifest.size
    whole = set(store.digests())
    for key in list(store.record_keys()):
        path = store.record_path(key)
        record = store.record(key, touch=False)
        if record is None:
            seen.damaged.append(
                Damaged(f"record {key}", str(path), "its checksum or its name does not match")
            )
            continue
        seen.records += 1
        if key_of(record.preimage) != key:
            reason = "its pre-image does not give its key"
            seen.damaged.append(Damaged(f"record {key}", str(path), reason))
            store.quarantine(key, reason)
        elif not all(digest in whole for digest in record.objects):
            seen.orphans += 1
    for path in sorted((store.root / "roots").glob("*.json")):
        try:
            read_root(path)
        except Damaged as damage:
            seen.damaged.append(damage)
            store.set_aside(path, damage.reason)
    return seen


def check_object(folder: Path, digest: str) -> Manifest:
    """Compare every file of an object with its manifest; nothing may be missing, altered or added."""
    what = f"object {digest}"
    try:
        manifest = Manifest.decode((folder / MANIFEST).read_bytes(), digest, str(folder / MANIFEST))
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise Damaged(what, str(folder), f"its manifest cannot be read: {fault}") from fault
    for name, wanted in manifest.files.items():
        try:
            found = file_digest(folder / name)
        except OSError as fault:
            raise Damaged(what, str(folder / name), f"{name} cannot be read: {fault.strerror}") from fault
        if found != wanted:
            raise Damaged(what, str(folder / name), f"the bytes of {name} do not match the manifest")
    for base, _, names in os.walk(folder):
        for name in names:
            inside = Path(base, name).relative_to(folder).as_posix()
            if inside != MANIFEST and inside not in manifest.files:
                raise Damaged(what, str(folder / inside), f"{inside} is not listed in the manifest")
    return manifest


def rerun(plan: Any, store: Store, stage: str, **options: Any) -> list[str]:
    """Run a stage again although its products are there; the warnings of what came out differently."""
    from npuflow.flow.events import Warned
    from npuflow.flow.run import build

    reported: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, Warned) and "not deterministic" in event.message:
            reported.append(event.message)

    build(plan, store, force=[stage], on_event=listen, **options).check()
    return reported
