"""Every study says when it was made, and a script writes the page that it has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import study  # noqa: E402

PAGES = sorted(study.STUDIES.glob("[0-9]*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_study_has_a_title_and_the_commit_that_it_was_made_at(page: Path) -> None:
    title, blank, made, *_ = page.read_text().splitlines()
    assert title.startswith("# ") and not blank
    found = re.fullmatch(r"Made at commit [0-9a-f]{8,} on \d{4}-\d\d-\d\d(?: by `(\S+)`)?\.", made)
    assert found, made
    assert found[1] is None or (ROOT / found[1]).exists()


def test_numbers_are_given_once() -> None:
    numbers = [page.name[:4] for page in PAGES]
    assert len(numbers) == len(set(numbers)) > 50


def test_a_script_replaces_its_own_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "STUDIES", tmp_path)
    (tmp_path / "0007-two-words.md").write_text("# Old\n")
    assert study.page("benchmarks/two_words.py").name == "0007-two-words.md"
    assert study.page("benchmarks/words.py").name == "0008-words.md"
    study.write("benchmarks/two_words.py", "# New\n\nText.\n")
    title, _, made, _, text = (tmp_path / "0007-two-words.md").read_text().splitlines()
    assert (title, text) == ("# New", "Text.") and made.endswith("by `benchmarks/two_words.py`.")
    with pytest.raises(ValueError, match="has no title"):
        study.write("benchmarks/two_words.py", "Text.\n")


def test_a_script_leaves_what_was_written_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "STUDIES", tmp_path)
    page = tmp_path / "0007-words.md"
    page.write_text(f"# Title\n\nMade long ago.\n\nBy hand.\n\nMore.\n\n{study.BELOW}\n| old |\n")
    for figures in ("| new |", "| newer |"):
        study.write("benchmarks/words.py", f"# Another\n\n{figures}\n")
        title, made, *own, line, below = page.read_text().split("\n\n")
        assert (title, own) == ("# Title", ["By hand.", "More."])
        assert (line, below) == (study.BELOW[:-1], f"{figures}\n")
        assert made.endswith("by `benchmarks/words.py`.")
