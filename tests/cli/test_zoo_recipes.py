"""The recipes of `recipes/zoo`, without the packages that bring their weights: what each must state."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npuflow.flow.recipe import load

FOLDER = Path(__file__).parents[2] / "recipes" / "zoo"
RECIPES = sorted(FOLDER.glob("[!_]*.toml"))
SOURCE = re.compile(r"python:(?:zoo/)?(zoo_\w+\.py):(\w+)")


def functions(tables: Any) -> Iterator[tuple[str, str]]:
    """File and name of each function of the folder that a recipe names."""
    if isinstance(tables, dict):
        for value in tables.values():
            yield from functions(value)
    elif isinstance(tables, str) and (found := SOURCE.fullmatch(tables)):
        yield found.group(1), found.group(2)


def defined(path: Path) -> set[str]:
    return {line.name for line in ast.parse(path.read_text()).body if isinstance(line, ast.FunctionDef)}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_names_package_version_licence_data_and_score(path: Path) -> None:
    tables = load(path, lenient=True).tables
    model = str(tables["model"]["path"])
    if model.startswith("pkg:"):
        assert re.fullmatch(r"pkg:[\w.-]+==[\w.]+:\S+", model)
        assert re.match(r"# .*(MIT|Apache-2\.0|BSD-3-Clause|Zlib).*\)\.\n", path.read_text())
        assert tables["data"]["source"] != tables["evaluate"]["source"]
    assert tables["evaluate"]["metric"] and len(tables["sweep"]["target"]) == 6
    for file, name in functions(tables):
        assert name in defined(FOLDER / file)


def test_every_calibration_and_evaluation_of_the_folder_is_used() -> None:
    named = {one for path in FOLDER.parent.rglob("*.toml") for one in SOURCE.findall(path.read_text())}
    made = {(path.name, name) for path in FOLDER.glob("zoo_*.py") for name in defined(path)}
    assert {one for one in made if re.match("calibration|evaluation", one[1])} <= named


def test_the_page_about_the_zoo_counts_its_recipes() -> None:
    page = (FOLDER.parents[1] / "docs" / "how-to" / "zoo.md").read_text()
    packaged = sum('"pkg:' in path.read_text() for path in RECIPES)
    tens, ones = divmod(packaged, 10)
    words = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    said = {3: "Thirty", 4: "Forty", 5: "Fifty", 6: "Sixty"}[tens] + (f"-{words[ones]}" if ones else "")
    assert f"{said} recipes of networks with published weights" in page
