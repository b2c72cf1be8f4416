"""The glossary names code that exists: each definition under the file or folder that
the page gives for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "glossary.md"
PACKAGE = ROOT / "npuflow"


def rows(text: str) -> Iterator[tuple[str, str]]:
    """Term and third column of every row."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] not in ("term", "---"):
            assert len(cells) == 3, line
            yield cells[0], cells[2]


def missing(text: str) -> Iterator[str]:
    """What a third column names and the package lacks: "`Name`, `Other` in `place`; `file.py`"."""
    for entry in text.split(";"):
        names, _, place = entry.rpartition(" in ")
        for path in re.findall(r"`([^`]+)`", place):
            if not (PACKAGE / path).exists():
                yield path
            yield from (
                f"{name} in {path}" for name in re.findall(r"`([^`]+)`", names) if name not in defined(path)
            )


@cache
def defined(path: str) -> frozenset[str]:
    """Classes, functions and attributes that the files under a path define."""
    place, found = PACKAGE / path, set[str]()
    for file in [place] if place.is_file() else place.rglob("*.py"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return frozenset(found)


@pytest.mark.parametrize(("term", "code"), list(rows(PAGE.read_text())), ids=lambda text: text[:40])
def test_the_code_has_what_the_glossary_names(term: str, code: str) -> None:
    assert "`" in code, f"{term}: no code is named"
    assert not list(missing(code)), term


def test_terms_are_defined_once() -> None:
    terms = [term for row, _ in rows(PAGE.read_text()) for term in row.split(", ")]
    assert len(terms) == len(set(terms)) > 50


def test_the_check_can_fail() -> None:
    assert list(missing("`Graph` in `ir`; `place/islands.py`")) == []
    assert list(missing("`Graf` in `ir`")) == ["Graf in ir"]
    assert list(missing("`engine/nowhere.py`")) == ["engine/nowhere.py"]
