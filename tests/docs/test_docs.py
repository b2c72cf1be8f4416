"""The documentation is true: its commands run and print what it says, its links lead
somewhere, its pages are current."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from npuflow.cli._recorded import COMMITS

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import generate  # noqa: E402

BUILT = {ROOT / "docs" / name: make for name, make in generate.BUILT.items()}
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - set(BUILT))
COMMANDS = sorted(
    (p for p in PAGES if "```console" in p.read_text()), key=lambda p: "tutorials" not in p.parts
)
QUICK = ("script.md",)                    # whose commands build nothing to the end: every run has them


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```console\n(.*?)^```", page.read_text(), re.S | re.M)


def steps(block: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    parts = re.split(r"^\$ ", block, flags=re.M)[1:]
    return [(command, expected) for command, _, expected in (part.partition("\n") for part in parts)]


def matches(expected: str, printed: str) -> bool:
    """Whether the text is as the page says; `...` stands for anything or nothing, and blanks for blanks."""
    first, *others = [" ".join(piece.split()) for piece in expected.split("...")]
    text = " ".join(printed.split())
    if not others:
        return first == text
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in others[:-1]:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return text.endswith(others[-1]) and len(text) - len(others[-1]) >= at


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that looks like a checkout to someone who reads the documentation."""
    folder = tmp_path
    for name in ("recipes", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("out"))
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    script = bin_folder / "npuflow"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m npuflow "$@"\n')
    script.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all pages, as a reader has it; the tutorial comes first and finds it empty."""
    return tmp_path_factory.mktemp("docs") / "cache"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=() if p.name in QUICK else pytest.mark.slow) for p in COMMANDS],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_commands_print_what_the_page_says(page: Path, place: Path, cache: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("NPUFLOW") and k not in COMMITS}
    env |= {
        "PATH": f"{place / 'bin'}{os.pathsep}{env['PATH']}", "PYTHONPATH": str(ROOT), "NO_COLOR": "1",
        "NPUFLOW_CACHE": str(cache),
    }
    for command, expected in (step for block in blocks(page) for step in steps(block)):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=place,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )
        code = re.search(r"^\[exit (\d+)\]\n?", expected, re.M)
        assert done.returncode == (int(code[1]) if code else 0), f"$ {command}\n{done.stdout}"
        wanted = expected.replace(code[0], "") if code else expected
        assert matches(wanted, done.stdout), f"$ {command}\n--- page\n{wanted}--- printed\n{done.stdout}"


def test_the_runner_can_fail() -> None:
    assert matches("a\n...\nb ... d\n", "a\nx\ny\nb c d\n")
    assert matches("...\nb\n", "b\n")
    assert not matches("a\n...\nb\n", "a\nx\n")
    assert not matches("a b\n", "a c\n")
    assert not matches("a ... a", "a")
    assert steps("$ one\nout\n$ two\n") == [("one", "out\n"), ("two", "")]


def links(text: str) -> list[str]:
    """Other pages and files that a page points to."""
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    return [target for target in found if not target.startswith(("http:", "https:"))]


def lead_somewhere(page: Path, text: str) -> None:
    for target in links(text):
        path = (page.parent / target).resolve()
        assert path in BUILT or path.exists(), f"{page.relative_to(ROOT)} -> {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lead_somewhere(page, page.read_text())


@pytest.mark.parametrize("page", BUILT, ids=lambda p: str(p.relative_to(ROOT)))
def test_built_pages_have_a_title_rows_and_links(page: Path) -> None:
    """`python docs/generate.py` writes them; the tree does not hold them."""
    text = BUILT[page]()
    assert text.startswith("# ") and text.count("\n|") + text.count("\n## ") > 5
    lead_somewhere(page, text)


def test_generated_pages_of_the_tree_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    """`python docs/generate.py` writes them anew."""
    assert generate.main(check=True) == 0, capsys.readouterr().out


def test_every_page_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in seen or page.suffix != ".md" or page in BUILT:
            continue
        seen.add(page)
        todo += [page.parent / link for link in links(page.read_text())]
    changes = ROOT / "docs/changes"                        # what the changelog gathers
    pages = [page for page in PAGES if page.parent != changes and page != ROOT / "docs/README.md"]
    missing = [str(page.relative_to(ROOT)) for page in pages if page not in seen]
    assert not missing, missing
