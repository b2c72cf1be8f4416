"""What builds of checkpoints do by default: codes stay, and nothing is searched that cannot help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.cli import main
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES
from tests.tiers import often

pytestmark = pytest.mark.usefixtures("place")


def figures(
    capfd: pytest.CaptureFixture[str], kind: str, *sets: str, until: str
) -> dict[str, dict[str, Any]]:
    """Of the steps of a build for edge-8t, from the recipe that `npuflow new` writes."""
    write(FAMILIES / "llama", Path("net.gguf"), kind)
    np.savez("calib.npz", tokens=np.random.default_rng(0).integers(3, 80, (8, 8, 1, 1)))
    own = ("new", "net.gguf", "--target", "edge-8t", "--dim", "context=16", "-o", "net.toml", "--force")
    assert main(list(own)) == 0
    words = [w for one in ("data.source=calib.npz", "sequences.samples=24", *sets) for w in ("--set", one)]
    capfd.readouterr()
    assert main(["build", "net.toml", "--until", until, "--json", *words]) == 0
    events = map(json.loads, capfd.readouterr().out.splitlines())
    return {one["stage"]: one["figures"] for one in events if one["event"] == "step"}


@pytest.mark.parametrize(("kind", "widen"), often([("Q4_1", False), ("F16", True)], 2))
def test_weights_with_codes_of_the_file_are_not_widened(
    kind: str, widen: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """A budget that no network holds: activations are as wide as can be, and stated codes are exact."""
    found = figures(capfd, kind, "precision.state_db=99", "correct.bias=off", until="sensitivity")
    assert found["baseline"]["sqnr_db"] < 99 and found["baseline"]["widen"] is widen
    assert bool(found["sensitivity"]) is widen


def test_every_matrix_keeps_its_codes(capfd: pytest.CaptureFixture[str]) -> None:
    """The output layer, too: the scale of the norm in front of it is not folded into it."""
    found = figures(capfd, "Q4_1", until="parse")
    assert found["parse"]["stated_codes"] == 2 * 7 + 1
    said = capfd.readouterr()
    assert main(["show", "parse", "net.toml", "--log"]) == 0, said
    assert "the model states the codes of output.weight, which would change" in capfd.readouterr().out


@pytest.mark.slow
def test_a_recipe_may_leave_the_codes_of_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    """Its matrices are floats then, which get codes in groups of the recipe's own."""
    own = ("parse.stated=false", "quantize.weights.bits=4", "quantize.weights.group=16")
    sets = (*own, "target.numerics.weight_groups=[16]", "correct.bias=off", "precision.strategy=none")
    found = figures(capfd, "Q4_1", *sets, "round.method=nearest", until="quantize")
    assert "stated_codes" not in found["parse"] and found["quantize"]["refused"] == 0
