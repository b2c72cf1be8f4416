"""The glossary: terms with their meaning, each once; classes that the page names are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.sources import FILES, parsed, walk

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "glossary.md"


def rows(text: str) -> Iterator[tuple[str, str]]:
    """Term and meaning of every row; what a term is called in the code is no column: it is called so."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] not in ("term", "---"):
            assert len(cells) == 2 and all(cells), line
            yield cells[0], cells[1]


def test_terms_are_defined_once() -> None:
    terms = [term for row, _ in rows(PAGE.read_text()) for term in row.split(", ")]
    assert len(terms) == len(set(terms)) > 50


def test_classes_that_the_page_names_are_there() -> None:
    head = PAGE.read_text().partition("## ")[0]
    classes = {n.name for path in FILES for n in walk(parsed(path)) if isinstance(n, ast.ClassDef)}
    named = set(re.findall(r"`([A-Z]\w+)`", head))
    assert named and named <= classes, named - classes
