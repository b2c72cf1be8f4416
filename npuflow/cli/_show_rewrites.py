"""Prints the rewrites of a float graph: rule, nodes taken, nodes put in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from npuflow.base.wording import counted


def text(path: Path, sets: Sequence[str] | None, cache: Path | None) -> str:
    """How often each rule applied, then every change in the order it was made."""
    from npuflow.cli._engine import plan, recipe, store
    from npuflow.cli._records import record_of
    from npuflow.stages.parse import Parsed

    loaded = recipe(path, sets)
    kept = store(loaded, cache)
    applied = Parsed.load(kept.open(record_of(plan(loaded), kept, "parse").output)).applied
    if not applied:
        return "\nno rewrites\n"
    counts = Counter(one.rule for one in applied)
    often = ", ".join(f"{rule} {count}" for rule, count in sorted(counts.items()))
    lines = ["", f"{counted(len(applied), 'rewrite')}: {often}"]
    width, digits = max(map(len, counts)), len(str(len(applied)))
    lines += [f"  {i:>{digits}}  {one.rule:<{width}}  {one.line()}" for i, one in enumerate(applied, 1)]
    return "\n".join(lines) + "\n"
