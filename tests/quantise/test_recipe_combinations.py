"""Every combination of the [quantize] table on a real network: it runs, in codes of its
type, or is refused in words."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import RecipeError, TargetError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.place.partition import npu_share
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.quantise.wishes import check_scheme
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import Interpreter, host_session
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.tiers import often, tiered

ROOT = Path(__file__).resolve().parent.parent.parent
TARGETS = ("edge-4t", "edge-pow2", "server-32t")
Case = tuple[str, Quantize]


@cache
def network() -> tuple[Graph, dict[str, tuple[float, float]], Array, Array]:
    """The example network after its rewrites, ranges of its values, images and the float model's answers."""
    read = FRONTENDS["onnx"]().read(
        (ROOT / "examples/fashion/fashion.onnx").read_bytes(), Bindings({"image": (1, 1, 28, 28)})
    )
    graph = rewrite(read.graph).graph
    images = np.load(ROOT / "examples/fashion/calib.npz")["image"][:24].reshape(-1, 1, 1, 28, 28)
    images = ((images.astype(np.float32) - 72.94) / 90.02).astype(np.float32)
    names = [v for n in graph.nodes for v in n.outputs]
    session = host_session(export_model(graph, names))
    runs = [dict(zip(names, session.run(names, {"image": x}), strict=True)) for x in images]
    ranges = {n: (min(float(r[n].min()) for r in runs), max(float(r[n].max()) for r in runs)) for n in names}
    ranges["image"] = float(images.min()), float(images.max())
    return graph, ranges, images, np.concatenate([r[graph.outputs[0]] for r in runs])


@cache
def target(name: str) -> Target:
    tables = tomllib.loads((ROOT / f"npuflow/targets/{name}.toml").read_text())
    numbers: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in tables["numerics"].items()
    }
    return Target(numerics=Numerics(**numbers))


def combinations() -> Iterator[Case]:
    weights = product(
        (2, 4, 5, 6, 7, 8, 12, 16), ("channel", "tensor"), (True, False), (True, False), (True, False)
    )
    activations = product((2, 4, 5, 6, 7, 8, 12, 16), (True, False), (None, True, False), (True, False))
    schemes = [(Weights(*w), Activations(*a)) for w, a in product(weights, activations)]  # type: ignore[arg-type]
    for name, (w, a) in product(TARGETS, schemes):
        yield name, Quantize(w, a)


def outcome(name: str, config: Quantize, simulate: bool) -> str:
    """How it went, after everything that must hold did."""
    graph, ranges, images, truth = network()
    chip = target(name)
    placement = place(graph, chip)
    try:
        done = quantize_graph(graph, placement.on_npu, ranges, config, chip.numerics)
    except (RecipeError, TargetError) as error:
        for fault in error.faults():
            assert fault.message and fault.hint and (fault.where.key or fault.where.value), (
                f"{config}: {error}"
            )
        return "refused"
    for note in done.notes:                       # a layer on the host has its numbers reported
        assert any(c.isdigit() for c in note.reason), f"{config}: {note}"
    interpreter = Interpreter(done.graph, chip.numerics)
    made = []
    for image in images[:2]:
        values = interpreter.run({"image": image}, keep=lambda _: True)
        for value_id, array in values.items():
            quant = done.graph.values[value_id].quant
            if quant is not None:
                assert (
                    array.dtype.name == quant.dtype and quant.lo <= array.min() <= array.max() <= quant.hi
                ), value_id
        made.append(values[done.graph.outputs[0]])
    if simulate:
        plan = plan_network(done.graph, Machine(chip.compute, chip.memory, chip.dma), chip.numerics)
        found = ProgramRunner(generate(done.graph, plan, chip)).run({"image": images[0]})
        np.testing.assert_array_equal(found[done.graph.outputs[0]], made[0])
    if config.weights.bits >= 8 and config.activations.bits >= 8 and not chip.numerics.power_of_two:
        noise = float(((np.concatenate(made) - truth[:2]) ** 2).sum())
        least = 25 if config.activations.bits >= 12 else 9       # eight bits without correction: 12 to 18 dB
        assert 10 * np.log10(float((truth[:2] ** 2).sum()) / noise) > least, config
    return "whole" if npu_share(done.graph) == 1.0 else "part"


def fits(name: str, config: Quantize) -> bool:
    """Whether the target could have the scheme at all: most combinations ask for what some target lacks."""
    try:
        check_scheme(config, target(name).numerics)
    except RecipeError:
        return False
    return True


def campaign(count: int, simulate: int, seed: int) -> Counter[str]:
    """A quarter of the cases from all combinations, the rest from those that their target could have."""
    draw, every, found = random.Random(seed), list(combinations()), Counter[str]()
    able = [case for case in draw.sample(every, min(40 * count, len(every))) if fits(*case)]
    chosen = draw.sample(able, count - count // 4) + draw.sample(every, count // 4)
    for i, (name, config) in enumerate(chosen):
        found[outcome(name, config, i < simulate)] += 1
    return found


@pytest.mark.parametrize(("count", "simulate"), often([(8, 1), (16, 3)], 2))
def test_a_sample_of_all_combinations(count: int, simulate: int) -> None:
    found = campaign(count, simulate, 1)
    assert found["whole"] > 5 * count / 16 and found["refused"] > count / 16, found


@pytest.mark.parametrize("seed", tiered(range(2, 12), 1))
def test_many_combinations(seed: int) -> None:
    found = campaign(200, 20, seed)
    assert found["whole"] > 80 and found["refused"] > 30, found


def test_a_scheme_that_no_layer_can_have_is_one_error_with_every_fault() -> None:
    """Not a network that moves to the host layer by layer."""
    graph, ranges, _, _ = network()
    config = Quantize(Weights(bits=16, symmetric=False), Activations(signed=False))
    with pytest.raises(RecipeError) as error:
        quantize_graph(graph, lambda _: True, ranges, config, target("edge-pow2").numerics)
    keys = [fault.where.key for fault in error.value.faults()]
    assert keys == ["quantize.weights.bits", "quantize.weights.symmetric", "quantize.activations.signed"]
