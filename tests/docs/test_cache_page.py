"""The page on the cache names every array and file that a stage stores."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from npuflow.flow.artifact import entries_of
from npuflow.stages._entries import GraphEntry
from npuflow.stages.component_evaluation import ComponentEvaluation
from npuflow.stages.component_outputs import ComponentOutputs
from tests.stages.test_artifacts import DERIVED

ROOT = Path(__file__).resolve().parents[2]
WRITES = {"bytes", "array", "arrays", "blocks", "stream", "file"}
ENDINGS = {GraphEntry: ".txt"}             # its text is the entry that a reader looks for


def written() -> Iterator[tuple[str, str]]:
    """(file, entry) of what stages write by themselves, beside JSON and text."""
    for path in sorted((ROOT / "npuflow" / "stages").glob("[a-z]*.py")):
        tree = ast.parse(path.read_text())
        named = {
            one.targets[0].id: one.value.value
            for one in tree.body
            if isinstance(one, ast.Assign)
            and isinstance(one.targets[0], ast.Name)
            and isinstance(one.value, ast.Constant)
        }
        saves = (
            one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == "save"
        )
        for call in (one for save in saves for one in ast.walk(save) if isinstance(one, ast.Call)):
            if not (isinstance(call.func, ast.Attribute) and call.func.attr in WRITES and call.args):
                continue
            first = call.args[0]
            if isinstance(first, ast.Call):                # `self.file()`: see `of_classes`
                continue
            name = named[first.id] if isinstance(first, ast.Name) else first.value  # type: ignore[attr-defined]
            yield path.stem, str(name)


def of_classes() -> Iterator[tuple[str, str]]:
    """(file, entry) of artifacts whose class says the name of their only file."""
    for kind in (ComponentOutputs, ComponentEvaluation):
        yield kind.__module__.rpartition(".")[2], kind.file()


def derived() -> Iterator[tuple[str, str]]:
    """(file, entry) of arrays and files that fields of artifacts are stored as."""
    for kind in DERIVED.values():
        for entry in entries_of(kind):
            form = next(iter(entry.parts.values())).form
            if form is not None and form.__name__ != "Nested":
                yield kind.__module__.rpartition(".")[2], f"{entry.name}{ENDINGS.get(form, '')}"


def test_every_entry_is_on_the_page() -> None:
    rows = [line for line in (ROOT / "docs/reference/cache.md").read_text().splitlines() if line[:1] == "|"]
    found = [*written(), *of_classes(), *derived()]
    assert len(found) > 10
    for stage, name in found:
        reported = [
            row for row in rows if f"`{stage}" in row.split("|")[1] and f"`{name}`" in row.split("|")[2]
        ]
        assert reported, f"docs/reference/cache.md has no row for {name} of stage {stage}"
