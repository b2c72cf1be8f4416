"""The page of Protocols lists those that the code has, each with the folder that has it."""

from __future__ import annotations

import ast
import re

from tests.sources import FILES, PACKAGE, ROOT, parsed, walk

PAGE = ROOT / "docs" / "explanation" / "protocols.md"
ROW = re.compile(r"^\| (`[^|]+`) \| `(\w+)` \|", re.MULTILINE)


def listed(text: str) -> set[tuple[str, str]]:
    """Folder and name of every Protocol in the tables of a page."""
    return {(folder, name) for names, folder in ROW.findall(text) for name in re.findall(r"`(\w+)`", names)}


def defined() -> set[tuple[str, str]]:
    return {
        (path.relative_to(PACKAGE).parts[0], node.name)
        for path in FILES
        for node in walk(parsed(path))
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).split("[")[0].removeprefix("typing.") == "Protocol" for base in node.bases)
    }


def test_every_protocol_has_its_reason_on_the_page() -> None:
    named, there = listed(PAGE.read_text()), defined()
    assert there - named == set(), "Protocols without a reason: import the class, or say who has this form"
    assert named - there == set(), "Protocols that are gone"


def test_rows_of_several_names_are_read() -> None:
    assert listed("| `A`, `B` | `ir` | why |\n| C | `ir` | no |") == {("ir", "A"), ("ir", "B")}
