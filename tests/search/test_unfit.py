"""What does not fit is explained: numbers, constraints of which none is needless, levers
that work when they are pulled."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from npuflow.base.errors import FitError, RecipeError, TargetError
from npuflow.hw.target import Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Quantize
from npuflow.search.pinned import Pins
from npuflow.search.plan import plan_network
from npuflow.search.unfit import PlanRequest, explained
from npuflow.stages.tiling import shipped_targets
from npuflow.testing.op import quantised, samples
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_networks
from tests.networks.harness import SMALL, local, machine
from tests.networks.small import Builder, mixed
from tests.tiers import often

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {k: v for k, v in shipped_targets().items() if k in ("edge-4t", "cv18xx")}


def asked(graph: Graph, target: Target, level: int = 3, pins: Pins | None = None) -> PlanRequest:
    return PlanRequest(graph, machine(target), target.numerics, level, pins or Pins())


def refused(wanted: PlanRequest, shipped: dict[str, Target] | None = None) -> TargetError:
    with pytest.raises(TargetError) as caught:
        plan_network(*wanted.arguments)
    return explained(wanted, caught.value, shipped or {})


def plans(wanted: PlanRequest) -> bool:
    return wanted.plan() is not None


def constraints(error: TargetError) -> list[str]:
    return str(error.because).split("conflicting constraints: ")[1].splitlines()[0].split("; ")


def integers(b: Builder, y: str, target: Target) -> Graph:
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph


def test_a_row_that_is_never_split() -> None:
    """Softmax needs its whole row: could it be split, or were there more memory, it would fit;
    finer addresses do not help."""
    b, target = Builder(), local(SMALL, 4096)
    graph = integers(b, b.add(OPS["softmax"](1), b.input("x", (2, 6000))), target)
    wanted = asked(graph, target)
    error = refused(wanted)
    need, have, gap = map(int, re.findall(r"\d+", error.message))
    assert have == 4096 and gap == need - have > 0
    split, memory = constraints(error)
    assert "cannot be split (size 6000)" in split and memory == "local memory has 4096 bytes"
    least = int(re.findall(r"target.memory.local_bytes >= (\d+): fits, ", error.hint)[0])
    assert plans(wanted.with_memory(least)) and least == need and not plans(wanted.with_memory(need - 1))


def test_tables_of_wide_codes_fit_with_narrow_ones() -> None:
    wide, one = quantised(samples("tanh")[0], SMALL.numerics, Quantize(activations=Activations(bits=16)))
    narrow, _ = quantised(samples("tanh")[0], SMALL.numerics, Quantize())
    target = local(SMALL, 1024)
    error = refused(asked(wide, target))
    assert "bits = 8" in error.hint and "activations have 16 bits" in constraints(error)
    assert plans(asked(narrow, target)) and one is not None
    error = refused(asked(narrow, local(SMALL, 128)))          # they do not help here, and nobody says so
    assert "bits = 8" not in error.hint and "16 bits" not in error.because


def test_addresses_may_be_what_forbids_it() -> None:
    graph, _ = mixed(SMALL.numerics)
    coarse = replace(SMALL, memory=replace(SMALL.memory, local_bytes=2048, local_align=1024))
    error = refused(asked(graph, coarse))
    assert any("multiples of 1024" in c for c in constraints(error))
    fine = replace(coarse, memory=replace(coarse.memory, local_align=1))
    assert plans(asked(graph, fine))


def test_another_target_is_named_only_if_it_has_room() -> None:
    graph, _ = mixed(SMALL.numerics)
    error = refused(asked(graph, local(SMALL, 128)), SHIPPED)
    (names,) = re.findall(r"target = (.*): every layer", error.hint)
    for name in names.split(" or "):
        other = SHIPPED[name]
        assert plans(PlanRequest(graph, machine(other), SMALL.numerics, 3))
    tight = {"edge-4t": replace(SHIPPED["edge-4t"], memory=Memory(local_bytes=128, local_align=64))}
    assert "target =" not in refused(asked(graph, local(SMALL, 128)), tight).hint


@pytest.mark.parametrize("seeds", often([range(6), range(6, 12), range(12, 60)], 3))
def test_suggestions_for_random_networks_work(seeds: range) -> None:
    """Of every refusal: no constraint is needless, and pulling a lever makes the plan."""
    seen = 0
    for seed in seeds:
        rng = random.Random(seed)
        memory = Memory(local_bytes=rng.choice((192, 256, 384)), local_align=16, burst=16)
        target = replace(random_networks.target(rng), memory=memory)
        try:
            graph, _ = random_networks.network(rng, target.numerics, 5)
            plan_network(graph, machine(target), target.numerics, 3)
        except TargetError as fault:
            if not isinstance(fault, FitError):
                continue
            wanted = asked(graph, target)
            error = explained(wanted, fault, {})
            for size in re.findall(r"target.memory.local_bytes >= (\d+)", error.hint):
                assert plans(wanted.with_memory(int(size))), seed
            if "level = 5" in error.hint:
                assert plans(replace(wanted, level=5)), seed
            need, have, _ = map(int, re.findall(r"\d+", error.message))
            assert need > have and not plans(wanted.with_memory(need - 16)), seed
            seen += 1
    assert seen >= len(seeds) // 6, seen


def test_pins_that_cannot_be() -> None:
    """Of two pinned groups the one that does not fit is reported apart from the one that may stay."""
    b, target = Builder(), local(SMALL, 512)
    x, names = b.input("x", (1, 8, 1, 1)), []
    for size in (8, 8, 600, 8):
        x = b.conv(x, size, 1)
        names.append(b.nodes[-1].name)
    graph = integers(b, x, target)
    fits, not_fits = tuple(names[:2]), tuple(names[2:])
    assert plans(asked(graph, target, pins=Pins(groups=(fits,))))
    wanted = asked(graph, target, pins=Pins(groups=(fits, not_fits)))
    error = refused(wanted)
    assert (
        constraints(error)[0] == f"[tiling] groups [{', '.join(not_fits)}]" and len(constraints(error)) == 2
    )
    assert f"without [tiling] groups [{', '.join(not_fits)}]: fits, " in error.hint
    (size,) = map(int, re.findall(r"target.memory.local_bytes >= (\d+)", error.hint))
    assert plans(wanted.with_memory(size))


def test_a_tensor_that_cannot_stay() -> None:
    b, target = Builder(), local(SMALL, 1024)
    x = b.input("x", (1, 8, 24, 24))
    x = b.conv(x, 8, 1)
    stays = b.nodes[-1].outputs[0]
    graph = integers(b, b.conv(x, 8, 1), target)
    error = refused(asked(graph, target, pins=Pins(keep=(stays,))))
    assert f'[tiling] keep "{stays}"' in constraints(error)[0]
    (size,) = map(int, re.findall(r"target.memory.local_bytes >= (\d+): fits", error.hint))
    assert plans(asked(graph, local(target, size), pins=Pins(keep=(stays,))))
    assert "without [tiling] keep" in error.hint


@pytest.mark.slow
def test_a_real_network_says_what_to_write(tmp_path: Path) -> None:
    """The fashion example on a target with a hundredth of its memory; the override that is
    reported, word for word, builds."""
    from npuflow import build

    sets = [
        "target.extends=edge-4t",
        "target.memory.local_bytes=1024",
        "quantize.activations.bits=16",
        "data.count=4",
    ]
    more = {"until": "tiling", "cache": tmp_path / "cache", "out": tmp_path / "out"}
    with pytest.raises((RecipeError, TargetError)) as caught:
        build(ROOT / "recipes" / "fashion.toml", sets, **more)
    reported = str(caught.value)
    assert "hardswish" in reported and "bits = 8, input_bits = 8" in reported
    done = build(ROOT / "recipes" / "fashion.toml", [
        *sets, 'quantize.overrides=[{layers=["hardswish"], bits=8, input_bits=8}]',
    ], **more)
    assert done.ok
