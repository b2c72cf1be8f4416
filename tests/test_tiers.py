"""What the slow suite takes of long tests, and that no test of a tier runs where it does not belong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.tiers import covering, tiered

ROOT = Path(__file__).resolve().parent.parent
CASES = """
import pytest
from tests.tiers import covering, spread, tiered
PAIRS = [(a, b) for a in "xyz" for b in range(2)]
@pytest.mark.parametrize(("a", "b"), tiered(PAIRS, covering("xyz", range(2))))
def test_pairs(a, b): pass
@pytest.mark.parametrize("first", tiered(range(4), 1))
@pytest.mark.parametrize("name", "ab")
def test_parts(name, first): pass
@pytest.mark.parametrize(("a", "b"), spread("uvw", range(2)))
def test_share(a, b): pass
def test_brief(): pass
"""


@pytest.mark.parametrize(
    ("rows", "columns", "each"), [(11, 15, 2), (15, 15, 1), (86, 15, 3), (2, 12, 6), (3, 2, 2)]
)
def test_every_row_and_column_is_taken_as_often_as_any_other(rows: int, columns: int, each: int) -> None:
    pairs = covering(range(rows), range(columns), each)
    assert len(set(pairs)) == len(pairs)
    assert Counter(row for row, _ in pairs) == dict.fromkeys(range(rows), each)
    counts = Counter(column for _, column in pairs)
    assert len(counts) == columns and max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("wrong", [lambda: covering("ab", "abcde", 2), lambda: tiered("ab", ["c"])])
def test_a_share_that_misses_cases_is_no_share(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssertionError, match=r"no row|no cases"):
        wrong()


ALWAYS = {"test_brief", "test_share[u-0]", "test_share[v-1]", "test_share[w-0]"}
SLOW = {
    "test_pairs[x-0]", "test_pairs[y-1]", "test_pairs[z-0]", "test_parts[a-0]", "test_parts[b-0]",
    "test_share[u-1]", "test_share[v-0]", "test_share[w-1]",
}
REST = {
    "test_pairs[x-1]", "test_pairs[y-0]", "test_pairs[z-1]",
    *(f"test_parts[{name}-{first}]" for name in "ab" for first in range(1, 4)),
}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [((), ALWAYS), (("-m", "slow"), SLOW), (("-m", "campaign"), REST)],
    ids=["by default", "slow", "campaign"],
)
def test_what_a_tier_runs(tmp_path: Path, words: tuple[str, ...], wanted: set[str]) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    collect = ["-c", "pyproject.toml", "-p", "no:cacheprovider", "--collect-only", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *collect, *words, str(tmp_path / "test_cases.py")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    found = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert len(found) == len(wanted) and set(found) == wanted
