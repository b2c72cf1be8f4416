"""Corrections as steps of a build: wired, cached, exact on the simulator, their
figures kept with the products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.onnx.export import export_model
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.stages.simulate import Simulation
from npuflow.tune.improve import NETWORK, Trial
from tests.correct.test_equalize import inverted
from tests.networks import recipes
from tests.stages.builds import made, products
from tests.tiers import often

RECIPE = recipes.RECIPE + """\
[calibrate]
method = "minmax"
[quantize]
weights = { bits = 6, per = "tensor" }
[round]
method = "nearest"
[equalize]
[correct]
held_out = 6
"""


def folder(path: Path, text: str = RECIPE) -> Path:
    net = inverted(3)
    (path / "net.onnx").write_bytes(export_model(net.graph("logits")))
    np.savez(path / "calib.npz", x=np.concatenate([f["x"] for f in net.feeds(24, mean=0.3)]))
    (path / "net.toml").write_text(text)
    return path / "net.toml"


def network(trials: tuple[Trial, ...], correction: str) -> Trial:
    return next(t for t in trials if t.correction == correction and t.layer == NETWORK)


def test_both_tables_are_steps_whose_figures_are_kept(tmp_path: Path) -> None:
    recipe = folder(tmp_path)
    result = made(recipe, until="simulate")
    equal, corrected, simulation = products(recipe, result, "equalize", "correct", "simulate")
    assert (
        isinstance(equal, Parsed) and isinstance(corrected, Quantized) and isinstance(simulation, Simulation)
    )
    scale, bias = network(equal.trials, "equalize"), network(corrected.trials, "bias")
    assert scale.kept and scale.after is not None and scale.before is not None and scale.after < scale.before
    assert bias.before is not None and bias.after is not None and bias.kept == (bias.after < bias.before)
    assert {t.layer for t in corrected.trials} >= {"/stem", "/d1", "/logits", NETWORK}
    # Clips per channel go through code generation and the simulator without a code's difference.
    assert any("his" in dict(n.params or ()) for n in corrected.graph.nodes)
    assert simulation.checks and not any(c.different for c in simulation.checks)
    again = made(recipe, until="simulate")
    assert again.ran == 0 and again.outputs == result.outputs


def test_other_thresholds_leave_other_tables_steps_alone(tmp_path: Path) -> None:
    recipe = folder(tmp_path, RECIPE.replace("[equalize]\n", ""))
    first = made(recipe, until="correct")
    # weights have one scale a tensor: it is on without its table
    assert "equalize" in first.outputs
    off = made(recipe, "correct.bias='off'", until="correct")
    assert off.status["correct"] and off.status["quantize"] == {None: "hit"}
    (plain, same) = products(recipe, off, "quantize", "correct")
    assert isinstance(plain, Quantized) and isinstance(same, Quantized) and plain.graph == same.graph
    assert off.outputs["quantize"] == off.outputs["correct"]              # nothing below would be built again


@pytest.mark.parametrize("choice", often(["on", "off"], 2))
def test_the_recipe_may_decide_instead_of_the_judge(tmp_path: Path, choice: str) -> None:
    recipe = folder(tmp_path)
    keys = ("equalize.scale", "equalize.absorb", "equalize.smooth", "correct.bias")
    sets = [f"{key}='{choice}'" for key in keys]
    equal, corrected = products(recipe, made(recipe, *sets, until="correct"), "equalize", "correct")
    assert isinstance(equal, Parsed) and isinstance(corrected, Quantized)
    trials = (*equal.trials, *corrected.trials)
    assert bool(trials) is (choice == "on")
    assert all(t.kept or t.reason or not t.change for t in trials)
