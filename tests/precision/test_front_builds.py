"""Builds that search a Pareto front of widths: candidates are rounded for, points measured, one is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import NpuflowError
from npuflow.cli._show_strategy import as_json, text
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, build, open_cache
from npuflow.ir.text import to_text
from npuflow.onnx.export import export_model
from npuflow.quantise.config import FLOATS
from npuflow.stages.precision import Precision
from npuflow.stages.quantize import Quantized
from npuflow.stages.rounded import Rounded
from npuflow.stages.tiling import Tiled
from tests.networks import recipes
from tests.precision.harnesses import feeds_of, mixed_net

RECIPE = recipes.RECIPE.replace("edge-4t", "bm1684x") + """\
[precision]
strategy = "greedy"
weights = [4, 8]
activations = [8]
minimise = "bytes"
sqnr_db = 60.0
points = 4
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("front")
    graph = mixed_net()
    (folder / "net.onnx").write_bytes(export_model(graph))
    np.savez(folder / "calib.npz", x=np.concatenate([f["x"] for f in feeds_of(graph, 40)]))
    (folder / "net.toml").write_text(RECIPE)
    return folder


def made(project: Path, *sets: str) -> tuple[Precision, Quantized, Rounded]:
    result = build(project / "net.toml", sets, cache=project / "cache", until="quantize", publish=False)
    store = open_cache(load(project / "net.toml", sets), Settings(cache=project / "cache"))
    rounded = result.outputs.get("rounded")               # nothing is rounded where all weights have 8 bits
    return (
        store.load(result.outputs["precision"], Precision),
        store.load(result.outputs["quantize"], Quantized),
        Rounded() if rounded is None else store.load(rounded, Rounded),
    )


def weight_bits(done: Quantized) -> list[int]:
    graph = done.graph
    ids = [n.inputs[1] for n in graph.nodes if len(n.inputs) > 1 and n.op.role(1) == "weight"]
    return [quant.bits for i in ids if (quant := graph.values[i].quant) is not None]


@pytest.mark.slow
def test_points_go_from_few_bytes_to_many_and_from_much_noise_to_little(project: Path) -> None:
    """Of one output: beside the map it counts at a few places, and the map's noise alone ends the front."""
    precision, _, _ = made(project, "model.outputs=['y']")
    assert 2 <= len(precision.points) <= 4
    sizes = [one.bytes for one in precision.points]
    levels = [min(o.sqnr for o in one.outputs) for one in precision.points]
    assert sizes == sorted(sizes) and sizes[0] == 0.5 and sizes[-1] == 1.0
    assert levels[-1] > levels[0] + 6


def test_a_point_is_taken_by_number(project: Path) -> None:
    fewest, done, rounded = made(project, "precision.point=0")
    assert set(weight_bits(done)) == {4} and {o.weight_bits for o in fewest.overrides} == {4}
    # the weights have the codes that rounding by moments gave them for 4 bits
    values = {name.removesuffix("@4"): one for name, one in rounded.weights.items() if name.endswith("@4")}
    graph = done.graph
    for node in graph.nodes:
        for value_id in node.inputs:
            if value_id in values:
                np.testing.assert_array_equal(graph.consts[value_id], values[value_id].codes)
    assert values


@pytest.mark.slow
def test_a_limit_is_kept(project: Path) -> None:
    precision, done, _ = made(project, "precision.max_bytes=0.8", "precision.minimise=cycles")
    assert {4, 8} == set(weight_bits(done)) and precision.points[-1].bytes <= 0.8
    assert not precision.holds


def test_the_default_search_leaves_weights_at_the_width_that_the_recipe_states(project: Path) -> None:
    """With activations at the target's widest, weights are all that a search could widen."""
    sets = ("precision={sqnr_db=60.0}", "quantize={weights={bits=4}, activations={bits=16}}")
    precision, done, _ = made(project, *sets)
    assert not any(one.weight_bits for one in precision.overrides)
    assert set(weight_bits(done)) == {4} and not precision.holds


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (("precision.max_bytes=0.4",), "max_bytes = 0.4"),
        (("precision.point=50", "precision.points=0"), "point = 50 of a Pareto front of"),
        (("precision.strategy=auto",), 'strategy = "auto" never gives weights 4 bits'),
        (("precision.strategy=auto", "precision.weights=[8]"), 'strategy = "auto" finds one mixture'),
        (("precision.activations=[8, 32]",), "32"),
        (('precision.floats=["bf16"]', "target='edge-4t'"), "the target does not compute in bf16"),
        (("precision.float_layers=['nothing']",), 'no layer is called "nothing"'),
    ],
)
def test_bad_wishes_are_one_clear_error(project: Path, sets: tuple[str, ...], text: str) -> None:
    with pytest.raises(NpuflowError) as caught:
        made(project, *sets)
    assert text in str(caught.value)


def test_a_strategy_is_dumped_edited_and_read_back(project: Path) -> None:
    sets = ("round.method='nearest'", "precision.point=1", "precision.activations=[8, 16]")

    def quantised(recipe: str, *more: str) -> Quantized:
        result = build(project / recipe, more, cache=project / "cache", until="quantize", publish=False)
        store = open_cache(load(project / recipe, more), Settings(cache=project / "cache"))
        return store.load(result.outputs["quantize"], Quantized)

    first = quantised("net.toml", *sets)
    assert len(set(weight_bits(first))) > 1
    dumped = text(project / "net.toml", sets, project / "cache")
    (project / "strategy.toml").write_text(dumped)
    plain = 'extends = ["net.toml", "strategy.toml"]\n[round]\nmethod = "nearest"\n'
    (project / "read.toml").write_text(plain)
    again = quantised("read.toml")
    assert to_text(again.graph) == to_text(first.graph)
    assert all(np.array_equal(again.graph.consts[d], array) for d, array in first.graph.consts.items())

    (project / "strategy.json").write_text(as_json(project / "net.toml", sets, project / "cache"))
    (project / "json.toml").write_text('extends = ["net.toml", "strategy.json"]\n')
    assert to_text(quantised("json.toml").graph) == to_text(first.graph)
    assert '[round]\nmethod = "nearest"' in dumped

    assert "weight_bits = 4" in dumped
    (project / "strategy.toml").write_text(dumped.replace("weight_bits = 4", "weight_bits = 8"))
    assert set(weight_bits(quantised("read.toml"))) == {8}


def test_exceptions_of_one_layer_that_activations_have_as_a_whole(project: Path) -> None:
    first = "quantize.overrides=[{layers=['conv'], symmetric=true, signed=true, weight_method='mse'}]"
    sets = ("precision.strategy='none'", "round.method='nearest'", first)
    done = build(project / "net.toml", sets, cache=project / "cache", until="quantize", publish=False)
    store = open_cache(load(project / "net.toml", sets), Settings(cache=project / "cache"))
    graph = store.load(done.outputs["quantize"], Quantized).graph
    convs = [n for n in graph.nodes if n.op.onnx == "Conv"]
    others = [n for n in graph.nodes if n.op.onnx in ("Gemm", "QuantizeLinear")]
    own = [graph.values[n.outputs[0]].quant for n in convs]
    assert own and all(q is not None and q.signed and not any(q.zero_point) for q in own)
    rest = [graph.values[n.outputs[0]].quant for n in others]
    assert any(q is not None and (any(q.zero_point) or not q.signed) for q in rest)
    without = ("target.numerics.signed_activations=false",)
    with pytest.raises(NpuflowError, match="no signed activations") as caught:
        build(project / "net.toml", (*sets, *without), cache=project / "cache")
    assert "quantize.overrides[0].signed" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "weights"), [("auto", [8]), ("ilp", [4, 8])])
def test_float_types_of_the_npu_are_chosen_written_down_and_built(
    project: Path, strategy: str, weights: list[int]
) -> None:
    sets = (
        f"precision.strategy='{strategy}'", "precision.points=0", f"precision.weights={weights}",
        "precision.floats=['bf16', 'fp16']", "precision.minimise='cycles'", "precision.sqnr_db=48",
        "precision.agreement=1.0", "target.memory.external_bandwidth=4096.0",
        "target.compute.array_rates=[{activations=16, weights=16, times=0.01}]",
    )
    precision, done, _ = made(project, *sets)
    types = {one.type for one in precision.overrides} - {None}
    held = {v.number for v in done.graph.values.values()} - {""}
    assert precision.holds and types and held, "8 bits miss the budget, and 16 bits are slow"
    assert held - {"float32"} == {FLOATS[name] for name in types}
    assert all(min(one.sqnr, one.low) >= 48 for one in precision.after)
    dumped = text(project / "net.toml", sets, project / "cache")
    assert any(f'type = "{name}"' in dumped for name in types)


def test_exceptions_of_one_layer_that_weights_have_as_a_whole(project: Path) -> None:
    sets = (
        "precision.strategy='none'", "round.method='nearest'", "target.numerics.weight_zero_point=true",
        "quantize.overrides=[{layers=['conv'], weight_symmetric=false, weight_narrow=true}]",
    )
    result = build(project / "net.toml", sets, cache=project / "cache", until="quantize", publish=False)
    store = open_cache(load(project / "net.toml", sets), Settings(cache=project / "cache"))
    graph = store.load(result.outputs["quantize"], Quantized).graph
    found = {}
    for node in graph.nodes:
        if len(node.inputs) > 1 and node.op.role(1) == "weight":
            quant = graph.values[node.inputs[1]].quant
            assert quant is not None
            found.setdefault(node.op.onnx, []).append((any(quant.zero_point), quant.narrow))
    assert any(zero for zero, _ in found["Conv"]) and all(narrow for _, narrow in found["Conv"])
    assert not any(zero or narrow for kind in found if kind != "Conv" for zero, narrow in found[kind])
    with pytest.raises(NpuflowError, match="zero points; the target has none"):
        without = [s.replace("zero_point=true", "zero_point=false") for s in sets]
        build(project / "net.toml", without, cache=project / "cache")


@pytest.mark.slow
def test_weights_are_rounded_in_turn_at_the_widths_that_the_search_chose(project: Path) -> None:
    """As in a build that states these widths; the search itself sees weights rounded at once."""
    sets = ("precision.point=1", "precision.points=3", "round={method='gptq', mode='sequential'}")
    chosen, done, searched = made(project, *sets)
    at_once, plain, _ = made(project, *sets[:2], "round.method='gptq'")
    assert chosen.points == at_once.points and {4, 8} == set(weight_bits(done))
    overrides = ", ".join(
        f"{{layers={list(one.layers)}, weight_bits={one.weight_bits}}}" for one in chosen.overrides
    )
    stated = ("precision.strategy='none'", "precision.weights=[]", "precision.points=0", sets[2])
    _, again, _ = made(project, *stated, f"quantize.overrides=[{overrides}]")
    weights = [n.inputs[1] for n in done.graph.nodes if len(n.inputs) > 1 and n.op.role(1) == "weight"]

    def codes(one: Quantized) -> list[bytes]:
        return [one.graph.consts[one.graph.values[v].const].tobytes() for v in weights]

    assert codes(done) == codes(again) and codes(done) != codes(plain)
    assert any(name.endswith("@4") for name in searched.weights)


def test_nothing_waits_for_a_search_that_is_not_asked_for(project: Path) -> None:
    sets = ("precision.weights=[]", "precision.points=0", "precision.strategy='none'")
    sets = (*sets, "round.mode='sequential'")
    result = build(project / "net.toml", sets, cache=project / "cache", until="quantize", publish=False)
    assert "turned" not in result.refs and "sequential" in result.refs


@pytest.mark.slow
def test_cycles_of_points_and_of_what_is_taken_are_those_of_their_plans(project: Path) -> None:
    sets = ("precision.minimise='cycles'", "precision.activations=[8, 16]", "precision.points=3")

    def planned(*more: str) -> float:
        result = build(project / "net.toml", more, cache=project / "cache", until="tiling", publish=False)
        store = open_cache(load(project / "net.toml", more), Settings(cache=project / "cache"))
        tiled = store.load(result.outputs["tiling"], Tiled)
        return float(tiled.plan.cycles + tiled.host_cycles)

    narrow = planned("precision.strategy='none'", "precision.points=0")
    taken, _, _ = made(project, *sets, "precision.point=2")
    assert taken.cycles == taken.points[2].cycles and taken.points[0].cycles < taken.cycles
    assert taken.cycles == pytest.approx(planned(*sets, "precision.point=2") / narrow, rel=1e-6)
    limit = (taken.points[0].cycles + taken.cycles) / 2
    kept, _, _ = made(project, *sets[:2], "precision.points=0", f"precision.max_cycles={limit}")
    assert kept.cycles <= limit
