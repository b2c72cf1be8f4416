"""Sentences of the documentation that promise behaviour, and the tests that prove them.

A sentence promises where the comment `<!-- promise: ID -->` stands directly behind it. A test proves it
where it is marked `@pytest.mark.promise("ID")`. `docs/generate.py` writes `docs/promises.md` from both.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COMMENT = re.compile(r"\s*<!-- promise: ([a-z0-9]+(?:-[a-z0-9]+)*) -->")


class Promise(NamedTuple):
    """A sentence that promises behaviour."""

    id: str
    sentence: str
    page: str
    """The page's path from the root of the checkout."""


class Proof(NamedTuple):
    """A test that proves a promise."""

    id: str
    test: str
    """As pytest calls it: `tests/acceptance/test_x.py::test_y`."""
    slow: bool


def pages() -> list[Path]:
    """The pages in which sentences may promise."""
    return [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]


def promises(page: Path) -> Iterator[Promise]:
    """The sentences of a page that bear an id, in order."""
    name = str(page.relative_to(ROOT))
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", page.read_text()):
        begin = 0
        for comment in COMMENT.finditer(paragraph):
            before = COMMENT.sub(" ", paragraph[begin : comment.start()])
            # a sentence ends with a stop, before a blank and a capital letter or a mark of formatting
            sentence = re.split(r"(?<=[.!?:*])\s+(?=[A-Z`*\"])", " ".join(before.split()))[-1]
            yield Promise(comment[1], sentence.removeprefix("- "), name)
            begin = comment.end()


def proofs() -> Iterator[Proof]:
    """The marked tests, read from the files' syntax: nothing is imported."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "mark.promise(" not in text:
            continue
        tree = ast.parse(text)
        whole = any(
            isinstance(node, ast.Assign) and re.match(r"pytestmark = .*mark\.slow", ast.unparse(node))
            for node in tree.body
        )
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            slow = whole or "pytest.mark.slow" in marks
            for mark in marks:
                if found := re.fullmatch(r"pytest\.mark\.promise\('([^']*)'\)", mark):
                    yield Proof(found[1], f"{path.relative_to(ROOT)}::{node.name}", slow)


def faults(made: list[Promise], proved: list[Proof]) -> list[str]:
    """What does not fit: an id that no test proves, a test of no sentence, an id of two sentences."""
    tested, said = {proof.id for proof in proved}, [promise.id for promise in made]
    wrong = [f"{one.page}: no test is marked promise({one.id!r})" for one in made if one.id not in tested]
    wrong += [f"{one.test}: no sentence bears the id {one.id!r}" for one in proved if one.id not in said]
    return wrong + [f"{one}: two sentences bear this id" for one, n in sorted(Counter(said).items()) if n > 1]


def page() -> str:
    """The table of promises, with their tests."""
    tests = defaultdict(list)
    for proof in proofs():
        tests[proof.id].append(f"`{proof.test.removeprefix('tests/')}`" + (" (slow)" if proof.slow else ""))
    text = "| id | sentence | page | tests |\n| --- | --- | --- | --- |\n"
    for one in (promise for path in pages() for promise in promises(path)):
        sentence = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one.sentence).replace("|", "\\|")
        name = one.page.removeprefix("docs/")
        link = f"[{Path(name).stem}]({'../README.md' if name == 'README.md' else name})"
        text += f"| {one.id} | {sentence} | {link} | {'<br>'.join(tests[one.id]) or 'none'} |\n"
    return text
