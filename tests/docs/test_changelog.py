"""Changes: short and whole entries that stand once, in the changelog and in the files of docs/changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "CHANGELOG.md").read_text()
CHANGES = ROOT / "docs" / "changes"
KINDS = ("Added", "Changed", "Fixed", "Removed")
MOST = 60                                 # lines of a release
LINES = 3                                 # of an entry
ALIKE = 0.7                               # of the words of two entries


def entries(text: str) -> list[str]:
    return re.findall(r"^- .*\n(?:  .*\n)*", text, re.M)


def faults(text: str) -> Iterator[str]:
    for release in re.split(r"^## ", text, flags=re.M)[1:]:
        if release.count("\n") > MOST:
            yield f"a long release: {release.splitlines()[0]}"
        kinds = Counter(re.findall(r"^### (.*)$", release, re.M))
        yield from (f"heading {kind}" for kind, n in kinds.items() if n > 1 or kind not in KINDS)
    for entry in entries(text):
        if entry.count("\n") > LINES:
            yield f"long: {entry}"
        if not re.search(r"[.)]\n$", entry):
            yield f"torn: {entry}"
    words = [(entry, set(re.findall(r"[\w.]+", entry))) for entry in entries(text)]
    for (one, a), (other, b) in combinations(words, 2):
        if len(a & b) > ALIKE * len(a | b):
            yield f"twice: {one}{other}"


def released(files: dict[str, str]) -> str:
    """The files of changes as a release would list them; a name that no release gathers is a fault."""
    rows: dict[str, list[str]] = {}
    for name, text in sorted(files.items()):
        kind, _, suffix = name.partition(".")[2].partition(".")
        assert suffix == "md" and kind.capitalize() in KINDS, f"{name}: no kind of change"
        rows.setdefault(kind.capitalize(), []).append("- " + text.strip().replace("\n", "\n  ") + "\n")
    parts = (f"### {kind}\n\n{''.join(found)}" for kind, found in rows.items())
    return "## Unreleased\n\n" + "\n".join(parts)


def changes() -> dict[str, str]:
    return {path.name: path.read_text() for path in CHANGES.iterdir() if path.name not in IGNORED}


IGNORED = ("README.md", "template.md.jinja")


def test_entries_are_whole_short_and_stand_once() -> None:
    assert not list(faults(TEXT))
    assert len(entries(TEXT)) > 10 and "<!-- changes -->" in TEXT
    assert not list(faults(released(changes())))


def test_the_check_can_fail() -> None:
    good = "## Unreleased\n\n### Added\n\n- A verb `sweep`.\n"
    assert not list(faults(good))
    assert [f[:4] for f in faults(f"{good}- A verb `sweep`.\n")] == ["twic"]
    assert [f[:4] for f in faults(f"{good}- The verb show, which\n- Targets of several cores.\n")] == ["torn"]
    assert [f[:7] for f in faults(f"{good}\n### Added\n\n- Targets of several cores.\n")] == ["heading"]
    assert [f[:6] for f in faults(good + "\n" * MOST)] == ["a long"]
    two = released({"sweep.added.md": "A verb `sweep`.\n", "gap.fixed.md": "The gap of\nthe bound.\n"})
    assert not list(faults(two)) and "- The gap of\n  the bound.\n" in two
