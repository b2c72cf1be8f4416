"""Builds for targets with an [energy] table: changed keys, reported figures, searches for least energy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow.base.errors import NpuflowError
from npuflow.hw.energy import Energy
from npuflow.hw.target import Target
from npuflow.report.profile import profile
from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.energy import EnergyUse
from npuflow.testing.target import load
from tests.networks.recipes import RECIPE
from tests.stages.builds import made, products

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,20,20] x) => (float[1,16,20,20] y) {
    a = Conv<pads=[1,1,1,1]>(x, k) b = Relu(a) y = Conv<pads=[1,1,1,1]>(b, l) }"""
SHIPPED = Path(__file__).resolve().parents[2] / "npuflow/targets/edge-4t.toml"
LEAST = 'tiling.minimise="energy"'


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of two layers, and a target file that is the shipped one without its table."""
    folder, rng = tmp_path_factory.mktemp("energy"), np.random.default_rng(0)
    proto = parser.parse_model(TEXT)
    for name, shape in (("k", (16, 8, 3, 3)), ("l", (16, 16, 3, 3))):
        weight = rng.normal(size=shape).astype(np.float32) / 12
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save_model(proto, str(folder / "net.onnx"))
    np.savez(folder / "calib.npz", x=np.kron(rng.normal(size=(8, 8, 5, 5)), np.ones((1, 1, 4, 4))))
    text = SHIPPED.read_text()
    (folder / "plain.toml").write_text(text[: text.index("[energy]")])
    (folder / "recipe.toml").write_text(RECIPE + '[precision]\nstrategy = "none"\n')
    return folder / "recipe.toml"


def less(recipe: Path) -> str:
    """The target without the table."""
    return f'target="{recipe.parent / "plain.toml"}"'


def table(path: Path) -> Energy:
    target: Target = load(path)
    assert target.energy is not None
    return target.energy


def test_the_stage_reports_what_the_profile_counts(recipe: Path) -> None:
    found, program = products(recipe, made(recipe, until="energy"), "energy", "codegen")
    assert isinstance(found, EnergyUse) and isinstance(program, CompiledProgram)
    total = profile(program.program, table(SHIPPED)).totals()
    assert found.total == pytest.approx(total["energy_uj"]) and found.total > 0
    assert sum(found.parts.values()) == pytest.approx(found.total)
    assert sum(found.nodes.values()) == pytest.approx(found.total)
    assert found.summary() == {"uj": pytest.approx(found.total, rel=1e-3)} and "generic" in found.source


def test_a_table_moves_no_key_before_the_sum(recipe: Path) -> None:
    """The same stages with the same keys make the same program, with a table and without."""
    priced, plain = made(recipe, until="codegen"), made(recipe, less(recipe), until="codegen")
    assert plain.keys == priced.keys and plain.outputs == priced.outputs


def test_without_a_table_the_stage_is_off(recipe: Path) -> None:
    with pytest.raises(NpuflowError, match=r"no table \[target\.energy\]"):
        made(recipe, less(recipe), until="energy")


def test_the_least_energy_is_no_more_than_that_of_the_fewest_cycles(recipe: Path) -> None:
    (usual,) = products(recipe, made(recipe, until="energy"), "energy")
    (least,) = products(recipe, made(recipe, LEAST, until="energy"), "energy")
    assert least.total <= usual.total


def test_to_minimise_energy_needs_a_table(recipe: Path) -> None:
    for asked in (LEAST, 'precision.minimise="energy"'):
        with pytest.raises(NpuflowError) as raised:
            made(recipe, less(recipe), asked, until="tiling")
        assert "[energy] says of no multiply-accumulate" in str(raised.value)
