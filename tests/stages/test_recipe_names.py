"""What comes of a recipe is called in locks and steps as a recipe calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuflow import load_recipe
from npuflow.base.tables import canonical, table_of
from npuflow.cli import main
from npuflow.cli._engine import stages
from npuflow.flow.lock import fields_of
from npuflow.flow.recipe_build import Settings, plan_recipe
from tests.networks.onnx_text import model


def test_every_table_of_a_step_is_one_that_a_recipe_takes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stages call the search's level `effort`, the chip's arithmetic `numerics`."""
    (tmp_path / "net.onnx").write_bytes(model("float[1,6] x => float[1,6] y", "y = Relu(x)"))
    recipe = tmp_path / "net.toml"
    recipe.write_text('target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "random"\n')
    plan = plan_recipe(load_recipe(recipe), stages(), Settings(cache=tmp_path / "cache"))
    for step in plan:
        held = step.in_recipe({name: canonical(config) for name, config in step.configs.items()})
        assert {*held} == {table_of(type(config)) for config in step.configs.values()}
    told = plan["tiling"].in_recipe(plan["tiling"].fixed["config"])
    assert told["tiling"]["level"] == 3 and "allocation" in told["tiling"] and "effort" not in told
    fields = fields_of(plan["tiling"], plan["tiling"].fixed)
    assert fields["config.tiling.level"] == 3 and "config.effort.level" not in fields
    assert main(["build", str(recipe), "--cache", str(tmp_path / "cache"), "--until", "checked"]) == 0
    capfd.readouterr()
    assert main(["show", "checked", str(recipe), "--cache", str(tmp_path / "cache")]) == 0
    assert "target.compute = {" in capfd.readouterr().out
