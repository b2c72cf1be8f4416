"""Tile sizes that the recipe fixes: what runs is what it says, or is refused with what there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuflow.base.errors import FitError, RecipeError, TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.search.pinned import Pins
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.unfit import PlanRequest, explained
from tests.networks.harness import SMALL, check_exact, local, machine
from tests.networks.small import mixed
from tests.tiers import often

ROOMY = local(SMALL, 1 << 16)
GRAPH, FEED = mixed(ROOMY.numerics)
(LAYER,) = [n.name for n in GRAPH.nodes if 12 in GRAPH.type(n.outputs[0]).shape[1:2] and "Conv" in n.name]
SHAPE = next(GRAPH.type(n.outputs[0]).shape for n in GRAPH.nodes if n.name == LAYER)


def planned(pins: Pins, target: Target = ROOMY, graph: Graph = GRAPH, level: int = 3) -> TilingPlan:
    return plan_network(graph, machine(target), target.numerics, level, pins)


@pytest.mark.parametrize(("level", "cores"), often([(0, 1), (3, 1), (3, 2)], 2))
def test_a_pinned_tile_is_the_one_that_runs(level: int, cores: int) -> None:
    """Of sizes that divide nothing; the layer is a group of its own, the bounds are those of any
    plan, the integers are right."""
    target = replace(ROOMY, compute=replace(ROOMY.compute, cores=cores))
    plan = planned(Pins(tiles=((LAYER, (("co", 5), ("oh", 3))),)), target, level=level)
    (group,) = [g for g in plan.groups if any(GRAPH.nodes[n].name == LAYER for n in g.nodes)]
    assert len(group.parts) == 1 and group.parts[0].choice is not None
    sizes = dict(group.parts[0].choice.sizes)
    assert (sizes["co"], sizes["oh"]) == (5, 3)
    free = planned(Pins(), target, level=level)
    assert plan.bounds == free.bounds and plan.cycles >= free.cycles
    program = check_exact(GRAPH, FEED, target, plan)
    node = next(i for i, n in enumerate(program.meta["nodes"]) if LAYER in (n["name"], *n["origin"]))
    tiles = -(-SHAPE[1] // 5) * -(-SHAPE[2] // 3) * -(-SHAPE[3] // sizes["ow"])
    assert sum(c.opcode == "CONV" and c.node == node for core in program.decoded for c in core) % tiles == 0


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"d9": 4}, 'no axis "d9"'),
        ({"co": 13}, "a tile of 13 on an axis co of 12"),
        ({"co": 0}, "a tile of 0"),
    ],
)
def test_wrong_sizes_are_told_the_axes(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(TargetError, match=words) as caught:
        planned(Pins(tiles=((LAYER, tuple(sizes.items())),)))
    assert f"co = 12, oh = {SHAPE[2]}" in caught.value.because and "(summed over)" in caught.value.because


def test_what_has_no_tile_is_refused() -> None:
    with pytest.raises(TargetError, match="nobody"):
        planned(Pins(tiles=(("nobody", (("d1", 4),)),)))
    (mover,) = [n.name for n in GRAPH.nodes if "Transpose" in n.name]
    with pytest.raises(TargetError, match="only moves data"):
        planned(Pins(tiles=((mover, (("d1", 4),)),)))
    after = next(GRAPH.nodes[i + 1].name for i, n in enumerate(GRAPH.nodes) if n.name == LAYER)
    with pytest.raises(TargetError, match="both the tile"):
        planned(Pins(groups=((LAYER, after),), tiles=((LAYER, (("co", 4),)),)))


def test_every_fault_of_the_pins_is_told_at_its_key() -> None:
    """Misspelt layers and tensors, one for the other, empty and overlapping groups,
    what the host has: all at once."""
    convs = [n.name for n in GRAPH.nodes if n.name.startswith("Conv")][:2]
    made = next(n.outputs[0] for n in GRAPH.nodes if n.name == convs[0])
    pins = Pins(
        keep=(f"{convs[0]}_output_0", convs[0], GRAPH.inputs[0], GRAPH.outputs[0], "nobody"),
        groups=((f"{convs[0]}x", made), (), (convs[0],)),
        tiles=(("nothing", (("co", 1),)), (LAYER, (("co", 99),))),
    )
    with pytest.raises(RecipeError) as caught:
        planned(pins)
    reported = {f.where.key: (f.message, f.because, f.hint) for f in caught.value.faults()}
    assert set(reported) == {
        *(f"tiling.keep[{i}]" for i in range(5)),
        "tiling.groups[0][0]",
        "tiling.groups[0][1]",
        "tiling.groups[1]",
        "tiling.tiles.nothing",
        f"tiling.tiles.{LAYER}",
    }
    assert (
        reported["tiling.groups[0][0]"][2] == f'"{convs[0]}"'
        and reported["tiling.groups[0][1]"][2] == f'"{convs[0]}"'
    )
    assert "fused" in reported["tiling.keep[0]"][1] and reported["tiling.keep[1]"][2] == f'"{made}"'
    assert "input" in reported["tiling.keep[2]"][1] and "output" in reported["tiling.keep[3]"][1]


def test_groups_that_share_a_layer_are_refused_as_such() -> None:
    a, b, c, d = [n.name for n in GRAPH.nodes if n.is_integer][:4]
    b, c = c, d                            # the second is point-wise: it is in the first's part
    with pytest.raises(TargetError, match="share") as caught:
        planned(Pins(groups=((a, b), (b, c))))
    assert b in str(caught.value) and caught.value.where.key == "tiling.groups[1]"
    assert planned(Pins(groups=((a, b), (b, a)))).cycles == planned(Pins(groups=((a, b),))).cycles


def test_a_group_with_a_data_mover_is_refused_at_once() -> None:
    at = next(i for i, n in enumerate(GRAPH.nodes) if n.name == LAYER)
    mover = GRAPH.nodes[at - 1].name
    with pytest.raises(TargetError, match="cannot form one fusion group") as caught:
        planned(Pins(groups=((mover, LAYER),)))
    assert caught.value.because == f"{mover}: data-layout operators cannot be fused" and not isinstance(
        caught.value, FitError
    )


@pytest.mark.slow
def test_a_tile_that_does_not_fit_is_explained() -> None:
    pins, tight = (
        Pins(tiles=((LAYER, tuple(zip(("n", "co", "oh", "ow"), SHAPE, strict=True))),)),
        local(SMALL, 4096),
    )
    with pytest.raises(TargetError, match="the target has 4096") as caught:
        planned(pins, tight)
    reported = explained(PlanRequest(GRAPH, machine(tight), tight.numerics, 3, pins), caught.value, {})
    assert f"[tiling.tiles] {LAYER} (n = 1, co = 12" in reported.because
    assert "without [tiling.tiles]" in reported.hint and "memory.local_bytes >= " in reported.hint
