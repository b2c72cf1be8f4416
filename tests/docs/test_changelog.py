"""CHANGELOG: one list for each kind of change, whole and short entries, none twice (a
merge may repeat or tear them)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

TEXT = (Path(__file__).resolve().parent.parent.parent / "CHANGELOG.md").read_text()
LINES = 3                                 # of an entry
ALIKE = 0.7                               # of the words of two entries


def entries(text: str) -> list[str]:
    return re.findall(r"^- .*\n(?:  .*\n)*", text, re.M)


def faults(text: str) -> Iterator[str]:
    for release in re.split(r"^## ", text, flags=re.M)[1:]:
        kinds = Counter(re.findall(r"^### (.*)$", release, re.M))
        yield from (
            f"heading {kind}"
            for kind, n in kinds.items()
            if n > 1 or kind not in ("Added", "Changed", "Fixed")
        )
    for entry in entries(text):
        if entry.count("\n") > LINES:
            yield f"long: {entry}"
        if not re.search(r"[.)]\n$", entry):
            yield f"torn: {entry}"
    words = [(entry, set(re.findall(r"[\w.]+", entry))) for entry in entries(text)]
    for (one, a), (other, b) in combinations(words, 2):
        if len(a & b) > ALIKE * len(a | b):
            yield f"twice: {one}{other}"


def test_entries_are_whole_short_and_stand_once() -> None:
    assert not list(faults(TEXT))
    assert len(entries(TEXT)) > 100


def test_the_check_can_fail() -> None:
    good = "## Unreleased\n\n### Added\n\n- A verb `sweep`.\n"
    assert not list(faults(good))
    assert [f[:4] for f in faults(f"{good}- A verb `sweep`.\n")] == ["twic"]
    assert [f[:4] for f in faults(f"{good}- The verb show, which\n- Targets of several cores.\n")] == ["torn"]
    assert [f[:7] for f in faults(f"{good}\n### Added\n\n- Targets of several cores.\n")] == ["heading"]
