"""A build with nothing to do: what it imports, says and notices, from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

CLI = Path(__file__).parents[1] / "cli"
HEAVY = ("numpy", "dask", "distributed", "zarr", "onnx", "onnxruntime")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    for name in ("one", "two"):
        path = tmp_path / f"texts/{name}.txt"
        path.write_text(f"a b {name}\n")
        os.utime(path, (time.time() - 60,) * 2)
    (tmp_path / "words.toml").write_text('[texts]\nsource = "texts/*.txt"\n')
    return tmp_path


def build(project: Path, *options: str) -> tuple[str, set[str]]:
    """Standard output, and the modules that were imported."""
    env = {
        **os.environ, "PYTHONPATH": f"{CLI}{os.pathsep}{CLI.parents[1]}", "NPUFLOW_STAGES": "wordcount",
        "NPUFLOW_CACHE": str(project / "cache"), "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-X", "importtime", "-m", "npuflow", "build", "words.toml", *options]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [row for row in done.stderr.splitlines() if row.startswith("import time:")]
    return done.stdout, {row.rpartition("|")[2].strip() for row in rows}


def test_the_second_build_imports_next_to_nothing(project: Path) -> None:
    build(project)
    text, modules = build(project)
    assert "nothing to do" in text
    assert not modules.intersection(HEAVY)
    assert not modules.intersection(
        {"typer", "rich", "npuflow.flow.wire", "npuflow.flow.store", "npuflow.base.tables"}
    )


@pytest.mark.slow
def test_json_lines_are_those_of_a_build_of_hits(project: Path) -> None:
    build(project, "--json")
    quick, modules = build(project, "--json")
    assert "npuflow.flow.run" not in modules
    (project / "cache/memo").rename(project / "elsewhere")
    full, modules = build(project, "--json")
    assert "npuflow.flow.run" in modules

    def lines(text: str) -> list[dict[str, object]]:
        found = [json.loads(line) for line in text.splitlines()]
        for line in found:
            line["seconds"] = line.get("event") == "step" and line["seconds"]
        return sorted(found, key=lambda line: json.dumps(line, sort_keys=True))

    assert lines(quick) == lines(full)


@pytest.mark.parametrize("options", [
    ("--until", "page", "--out", "elsewhere"),
    pytest.param(("--until", "total", "--out", "elsewhere"), marks=pytest.mark.slow),
    pytest.param(
        ("--until", "total", "--out", "elsewhere", "--cache", "other", "--set", "count.least=2"),
        marks=pytest.mark.slow,
    ),
])
def test_a_build_up_to_a_stage_is_remembered(project: Path, options: tuple[str, ...]) -> None:
    """Such a build writes no lock, so that none may be asked for, whatever another build has left of one."""
    build(project, *options)
    text, modules = build(project, *options)
    assert "nothing to do" in text and "npuflow.flow.wire" not in modules
    build(project, "--out", "elsewhere")                               # writes a lock there
    (project / "texts/one.txt").write_text("c d e f\n")
    assert "nothing to do" not in build(project, *options)[0]
    text, modules = build(project, *options)
    assert "nothing to do" in text and "npuflow.flow.wire" not in modules


@pytest.mark.slow
def test_an_edit_or_a_lost_product_is_noticed(project: Path) -> None:
    build(project)
    (project / "texts/one.txt").write_text("c d e f\n")
    assert "nothing to do" not in build(project)[0]
    assert "nothing to do" in build(project)[0]
    product = project / "out/words/page.txt"
    whole = product.read_bytes()
    for spoil in (product.unlink, lambda: product.write_text("edited")):
        spoil()
        build(project)
        assert product.read_bytes() == whole
