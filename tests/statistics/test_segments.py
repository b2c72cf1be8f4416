"""Statistics by segments of the network: an edit near the output leaves the trunk's
valid, and memory may be bounded."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import build
from npuflow.flow.run import Result
from npuflow.flow.store import Store
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import RULES
from npuflow.statistics import walk
from npuflow.statistics.observe import Observer, needed_values
from npuflow.statistics.segments import segments
from npuflow.statistics.tuned import SEGMENT_LEAST as LEAST
from tests.tiers import often

LAYERS = 40
RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "x.npy"
"""


def network(path: Path, last: float = 1.0, first: float = 1.0) -> None:
    """Forty convolutions with sums around pairs of them; the weights of the first
    and the last may be scaled."""
    rng = np.random.default_rng(0)
    nodes, held, top, ways = [], [], "x", 3
    for i in range(LAYERS):
        weight = rng.normal(0, 0.05, (64, ways, 3, 3)).astype(np.float32) * (
            last if i == LAYERS - 1 else first if i == 0 else 1
        )
        held.append(numpy_helper.from_array(weight.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [top, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1], name=f"conv{i}"))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        top, ways = f"r{i}", 64
        if i % 2 == 0 and i:
            nodes.append(
                helper.make_node(
                    "Add", [f"r{i}", f"r{i - 2}" if i == 2 else f"s{i - 2}"], [f"s{i}"], name=f"sum{i}"
                )
            )
            top = f"s{i}"
    nodes.append(helper.make_node("GlobalAveragePool", [top], ["y"]))
    info = helper.make_tensor_value_info
    ends = [info("x", TensorProto.FLOAT, [1, 3, 20, 20])], [info("y", TensorProto.FLOAT, [1, 64, 1, 1])]
    graph = helper.make_graph(nodes, "g", *ends, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def read(path: Path) -> tuple[Graph, tuple[str, ...]]:
    """The graph of a model and what is counted in it."""
    recipe = path.parent / "just-a-target.toml"
    recipe.write_text('target = "edge-4t"\n')
    reader = FRONTENDS["onnx"]()
    graph = rewrite(reader.read(reader.gather(path), Bindings()).graph, list(RULES.names())).graph
    target, faults = load(recipe, []).read(Target)
    assert target is not None and not faults
    return graph, needed_values(graph, place(graph, target).on_npu)


def inputs(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(0, 1, (count, 3, 20, 20)).astype(np.float32)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    network(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", inputs(12))
    (tmp_path / "net.toml").write_text(RECIPE)
    return tmp_path


def built(project: Path, *sets: str, cache: str = "cache", until: str = "statistics", **more: Any) -> Result:
    out = project / f"out-{cache}"
    return build(project / "net.toml", sets, cache=project / cache, out=out, until=until, **more).check()


FIT = 7                                   # of 12 samples, those that ranges come from


def by_segment(result: Result) -> dict[str, Counter[str]]:
    """Segment -> how many of its samples were found, and how many were run."""
    found: dict[str, Counter[str]] = {}
    for item, status in result.status["statistics.items"].items():
        found.setdefault(str(item).partition(":")[0], Counter())[status] += 1
    return found


def observations(
    parts: Any, room: int | None = None, asked: list[str] | None = None
) -> dict[tuple[str, str], bytes]:
    """(sample, tensor) -> all that was observed, as bytes."""
    feeds = {f"s{i}": (lambda x=x: {"x": x[None]}) for i, x in enumerate(inputs(5))}
    found = {}
    for _, sample, one in walk.observed(parts, asked or list(parts), feeds, room):
        for i, name in enumerate(one.names):
            part = slice(one.offsets[i], one.offsets[i + 1])
            fields = (one.lo[i], one.hi[i], one.tails[i], one.counts[i], one.groups[part], one.cells[part])
            found[sample, name] = b"".join(np.ascontiguousarray(f).tobytes() for f in fields)
    return found


def test_segments_tile_the_counted_values(project: Path) -> None:
    graph, names = read(project / "net.onnx")
    parts = segments(graph, names)
    assert len(parts) >= 3
    reported = [name for one in parts.values() for name in one.names]
    assert sorted(reported) == sorted(names) and len(set(reported)) == len(reported)
    assert all(len(one.names) >= LEAST for one in list(parts.values())[:-1])
    for name, one in parts.items():
        earlier = {v for k in one.above for v in parts[k].made}
        assert set(one.fed) <= earlier | set(graph.inputs) and name not in one.above


def test_segments_show_what_the_whole_network_does_to_the_bit(project: Path) -> None:
    graph, names = read(project / "net.onnx")
    parts = segments(graph, names)
    cut = observations(parts)
    whole = Observer(export_model(graph, [n for n in names if n not in graph.inputs]), graph.inputs, names)
    for i, x in enumerate(inputs(5)):
        one = whole.observe({"x": x[None]})
        for k, name in enumerate(names):
            part = slice(one.offsets[k], one.offsets[k + 1])
            fields = (one.lo[k], one.hi[k], one.tails[k], one.counts[k], one.groups[part], one.cells[part])
            assert cut[f"s{i}", name] == b"".join(np.ascontiguousarray(f).tobytes() for f in fields), name


def test_memory_bounds_change_groups_and_no_bit(project: Path) -> None:
    graph, names = read(project / "net.onnx")
    parts = segments(graph, names)
    single = max(walk.footprint([one]) for one in parts.values())
    whole = walk.footprint(list(parts.values()))
    assert single < whole
    counts = {room: len(walk.groups(parts, room)) for room in (1, single, whole, None)}
    assert counts[1] == len(parts) > counts[whole] == counts[None] == 1
    plain = observations(parts)
    for room in (1, single, (single + whole) // 2):
        assert observations(parts, room) == plain
        for group in walk.groups(parts, room):
            assert len(group) == 1 or walk.footprint([parts[one] for one in group]) <= room


def test_later_segments_alone_see_what_they_see_with_all(project: Path) -> None:
    graph, names = read(project / "net.onnx")
    parts = segments(graph, names)
    plain, last = observations(parts), list(parts)[-1]
    for room in (None, 1):
        alone = observations(parts, room, [last])
        assert set(name for _, name in alone) == set(parts[last].names)  # noqa: C401
        assert alone == {key: value for key, value in plain.items() if key in alone}


def test_an_edit_of_the_last_layer_leaves_the_trunk(project: Path) -> None:
    first = built(project)
    parts = list(by_segment(first))
    assert len(parts) >= 3 and all(found["ran"] == FIT for found in by_segment(first).values())
    network(project / "net.onnx", last=1.5)
    again = built(project)
    found = by_segment(again)
    assert all(found[part] == {"hit": FIT} for part in parts[:-1]) and found[parts[-1]] == {"ran": FIT}
    hits = {
        str(item).partition(":")[0]
        for item, status in again.status["statistics.merge1"].items()
        if status == "hit"
    }
    assert hits == set(parts[:-1])
    clean = built(project, cache="clean")
    assert clean.outputs["statistics"] == again.outputs["statistics"] != first.outputs["statistics"]


@pytest.mark.slow
def test_an_edit_of_the_first_layer_leaves_nothing(project: Path) -> None:
    built(project)
    network(project / "net.onnx", first=0.5)
    assert all(found == {"ran": FIT} for found in by_segment(built(project)).values())


@pytest.mark.slow
def test_a_cut_output_leaves_the_trunk(project: Path) -> None:
    parts = list(by_segment(built(project)))
    cut = built(project, 'model.outputs=["s36"]')
    found = by_segment(cut)
    assert all(found[part] == {"hit": FIT} for part in list(found)[:-1]) and len(found) == len(parts)
    clean = built(project, 'model.outputs=["s36"]', cache="clean")
    assert clean.outputs["statistics"] == cut.outputs["statistics"]


def planned(project: Path, *options: str) -> dict[str, Counter[str]]:
    """Stage -> how many of its steps a plan says of each status."""
    from npuflow.cli._app import application

    line = [
        "plan",
        str(project / "net.toml"),
        "--cache",
        str(project / "cache"),
        "--until",
        "statistics",
        "--json",
        *options,
    ]
    found: dict[str, Counter[str]] = {}
    for text in CliRunner().invoke(application("plan"), line).output.splitlines():
        step = json.loads(text)
        if step["event"] == "step":
            found.setdefault(step["stage"], Counter())[step["status"]] += 1
    return found


def test_plan_says_exactly_what_an_edit_leaves(project: Path) -> None:
    """After an edit of the model, which no build has seen, a plan counts what will be observed
    again, and a build does that."""
    parts = list(by_segment(built(project)))
    network(project / "net.onnx", last=1.5)
    before = sorted(path for path in (project / "cache" / "objects").rglob("*"))
    found = planned(project)
    assert sorted(path for path in (project / "cache" / "objects").rglob("*")) == before
    assert found["parse"] == found["segments"] == {"run": 1} and found["samples"] == {"hit": 12}
    assert found["statistics.items"] == {"hit": FIT * (len(parts) - 1), "run": FIT}
    again = Counter(built(project).status["statistics.items"].values())
    assert again == {"hit": found["statistics.items"]["hit"], "ran": found["statistics.items"]["run"]}
    assert {status for counts in planned(project).values() for status in counts} == {"hit"}


def test_plan_of_an_edit_that_changes_no_graph_has_nothing_to_observe(project: Path) -> None:
    built(project)
    model = onnx.load(project / "net.onnx")
    model.doc_string = "as before"
    onnx.save(model, project / "net.onnx")
    found = planned(project)
    assert found["model"] == {"run": 1}
    assert {
        status
        for name in ("parse", "placement", "segments", "statistics.items", "statistics")
        for status in found[name]
    } == {"hit"}


def test_plan_of_a_model_that_cannot_be_read_waits_for_it(project: Path) -> None:
    found = planned(project, "--set", 'model.outputs=["nowhere"]')
    assert found["model"] == {"run": 1}
    assert found["parse"] == found["segments"] == found["statistics"] == {"maybe": 1}


def test_max_memory_is_in_no_key(project: Path) -> None:
    bounded = built(project, 'statistics.max_memory="1MB"')
    plain = built(project, cache="plain")
    assert plain.outputs["statistics"] == bounded.outputs["statistics"]
    assert not {s for items in built(project).status.values() for s in items.values()} - {"hit"}


@pytest.mark.parametrize("room", often(["", "1MB"], 2))
def test_a_sample_that_cannot_be_read_is_left_out_of_every_segment(project: Path, room: str) -> None:
    broken = inputs(12)
    broken[4, 0, 0, 0] = np.nan
    np.save(project / "x.npy", broken)
    result = built(project, f'statistics.max_memory="{room}"')
    about = Store(project / "cache").open(result.refs["statistics"].digest).json("about")
    assert len(about["samples"]) == FIT
    assert [name for name, _ in about["broken"]] == ["x.npy#04"]
