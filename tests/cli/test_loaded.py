"""A build from the cache, as tables and in a notebook."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import npuflow
from npuflow.base.errors import UsageError
from npuflow.ir.text import to_text
from npuflow.quantise.graph import build
from tests.cli.test_rebuild import FASHION


@pytest.fixture(scope="module")
def loaded(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> npuflow.Build:
    folder = tmp_path_factory.mktemp("loaded")
    shutil.copytree(compiled / "cache", folder / "cache")
    (folder / "net.toml").write_text(FASHION)
    npuflow.build(folder / "net.toml", cache=folder / "cache", out=folder, until="fidelity").check()
    # places may be paths or text
    npuflow.build(f"{folder}/net.toml", cache=f"{folder}/cache", out=str(folder), until="codegen").check()
    return npuflow.load_build(f"{folder}/net.toml", cache=f"{folder}/cache")


def test_tables_have_a_row_for_every_tensor_and_layer(loaded: npuflow.Build) -> None:
    tensors = [row["tensor"] for row in loaded.statistics]
    assert tensors and all(row["low"] <= row["mean"] <= row["high"] for row in loaded.statistics)
    ranges = {row["tensor"]: row for row in loaded.thresholds}
    assert set(ranges) == set(tensors) and all(r["low"] <= r["high"] and r["method"] for r in ranges.values())
    integer = [node.name for node in loaded.graph.nodes]
    layers = [row["layer"] for row in loaded.plan]
    assert layers and set(layers) <= set(integer) and len(set(layers)) == len(layers)
    assert sum(row["macs"] for row in loaded.profile) == loaded.clock.totals()["macs"] > 0
    assert {row["tensor"] for row in loaded.quality} <= {v.removesuffix(":q") for v in loaded.graph.values}


def test_the_candidate_is_what_was_quantised(loaded: npuflow.Build) -> None:
    """Training starts from it."""
    made = build(loaded.candidate).graph
    assert to_text(made) == to_text(loaded.artifact("quantize").graph)


def test_what_is_not_built_is_an_error_only_when_asked_for(loaded: npuflow.Build, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='"report" has not been built'):
        _ = loaded.report
    with pytest.raises(UsageError, match='there is no stage "tilling"'):
        loaded.artifact("tilling")
    assert "has not been built" in loaded._repr_html_()
    samples = loaded.artifact("samples/" + str(loaded.artifact("statistics").content.samples[0]))
    assert not samples.content.broken


def test_a_console_shows_a_line_of_each(loaded: npuflow.Build) -> None:
    """Not the constants, commands and keys that they hold."""
    result = npuflow.build(loaded.recipe, cache=loaded.store.root, publish=False, until="codegen")
    for thing, said in (
        (loaded, "<Build net in "),
        (loaded.graph, f"<Graph of {len(loaded.graph.nodes)} nodes: "),
        (loaded.program, f"{sum(map(len, loaded.program.commands)):,} commands"),
        (result, " hit, 0 failed, 0 skipped"),
    ):
        assert said in repr(thing) and len(repr(thing)) < 400 and "\n" not in repr(thing)


def test_notebooks_show_graph_program_profile_and_tables(loaded: npuflow.Build) -> None:
    nodes, shown = loaded.graph.nodes, loaded.graph._repr_html_()
    assert all(node.name in shown for node in nodes) and f"{len(nodes)} nodes" in shown
    commands = sum(map(len, loaded.program.commands))
    assert f"<td>commands</td><td>{commands:,}</td>" in loaded.program._repr_html_()
    assert loaded.profile[0]["name"] in loaded.clock._repr_html_()
    assert all("<table>" in rows._repr_html_() for rows in (loaded.statistics, loaded.plan))
