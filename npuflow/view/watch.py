"""What happens in a cache: records that appear were computed, records that are touched were hits."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Any

from npuflow.base.digest import ALGORITHM
from npuflow.flow.store import Store
from npuflow.flow.store_lease import live, now
from npuflow.view.builds import stage_of


class BuildWatch:
    """Looks at the times of all records; each `look` reports what is new since the last one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._stages: dict[str, str] = {}  # key -> its stage
        self._records = self._times("records")
        self._roots = self._times("roots")
        self._running = -1

    def look(self) -> dict[str, Any]:
        """Nothing where nothing is new; else how many builds are "running", by stage what "ran" and what was
        a "hit", and whether there are new "builds"."""
        found: dict[str, Any] = {}
        records, roots = self._times("records"), self._times("roots")
        stages: dict[str, Counter[str]] = {}
        for key, time in records.items():
            before = self._records.get(key)
            if before != time:
                stage = self._stage(key)
                if stage:
                    stages.setdefault(stage, Counter())["ran" if before is None else "hit"] += 1
        if stages:
            found["stages"] = stages
        if roots != self._roots:
            found["builds"] = True
        running = len(live(self.store.root, now(self.store.root)))
        if running != self._running or found:
            found["running"] = running
        self._records, self._roots, self._running = records, roots, running
        return found

    def _stage(self, key: str) -> str:
        if key not in self._stages:
            record = self.store.record(key, touch=False, remote=False)
            if record is None:
                return ""
            self._stages[key] = stage_of(record.stage)
        return self._stages[key]

    def _times(self, folder: str) -> dict[str, int]:
        """Name or key -> when a file of the folder, or of its folders, was last changed or touched."""
        found: dict[str, int] = {}
        with suppress(OSError), os.scandir(self.store.root / folder) as outer:
            for entry in outer:
                if entry.is_dir():
                    with suppress(OSError), os.scandir(entry.path) as inner:
                        for one in inner:
                            key = f"{ALGORITHM}:{entry.name}{one.name.removesuffix('.json')}"
                            found[key] = one.stat().st_mtime_ns
                else:
                    found[entry.name] = entry.stat().st_mtime_ns
        return found
