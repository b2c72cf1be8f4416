"""What contradicts itself in a recipe is told before anything is measured, at the key that is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuflow import build
from npuflow.base.errors import NpuflowError
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, plan_recipe
from npuflow.flow.stage import STAGES

RECIPE = """
target = "{target}"
[model]
path = "net.onnx"
{model}
[data]
source = "d.npy"
{more}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    value = onnx.helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        onnx.helper.make_node("Relu", ["m"], ["y"], "relu"),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, ["T", 4])], [value("y", 1, ["T", 4])], [weight])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    onnx.save(made, tmp_path / "net.onnx")
    np.save(tmp_path / "d.npy", np.random.default_rng(0).normal(size=(8, 2, 4)).astype(np.float32))
    return tmp_path


def faults(
    folder: Path, more: str = "", *sets: str, model: str = "dims = { T = 2 }", target: str = "edge-4t"
) -> list[tuple[str, str]]:
    """Key and message of every fault that a build finds before it measures anything."""
    path = folder / "r.toml"
    path.write_text(RECIPE.format(model=model, more=more, target=target))
    try:
        build(path, sets, cache=folder / "cache", out=folder / "out", until="pixels")
    except NpuflowError as error:
        found = error.faults()
        assert all(one.hint and one.code and one.where.line for one in found)
        return [(str(one.where.key), one.message) for one in found]
    return []


def test_bounds_that_hold_no_number(folder: Path) -> None:
    assert faults(folder, "[calibrate]\nbounds = [3.0, -3.0]") == [
        ("calibrate.bounds", "the range [3.0, -3.0] holds no numbers")
    ]
    assert not faults(folder, "[calibrate]\nbounds = [-3.0, 3.0]")


def test_ends_that_no_float32_number_reaches(folder: Path) -> None:
    """Each was a warning of numpy, and a layer on the host without a word. Bounds may be open."""
    for ends in ("[0.0, 1e39]", "[-1e300, 1.0]"):
        for key, table in (
            ("calibrate.bounds", f"[calibrate]\nbounds = {ends}"),
            ("calibrate.layers[0].range", f'[[calibrate.layers]]\nlayers = ["relu"]\nrange = {ends}'),
        ):
            ((where, said),) = faults(folder, table)
            assert where == key and "has an end that no float32 number reaches" in said
    assert not faults(folder, "[calibrate]\nbounds = [-inf, 1.0]")
    ((where, _),) = faults(folder, '[[calibrate.layers]]\nlayers = ["relu"]\nrange = [0.0, inf]')
    assert where == "calibrate.layers[0].range"


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[quantize.activations]\nsymmetric = true\nsigned = false", "quantize.activations.signed"),
        (
            '[[quantize.overrides]]\nlayers = ["relu"]\nsymmetric = true\nsigned = false',
            "quantize.overrides[0].signed",
        ),
        (
            """[quantize.activations]
            symmetric = true
            [[quantize.overrides]]
            layers = ["relu"]
            signed = false""",
            "quantize.overrides[0].signed",
        ),
    ],
)
def test_codes_without_a_sign_and_without_a_zero_point(folder: Path, more: str, key: str) -> None:
    assert faults(folder, more) == [
        (key, "unsigned activations without zero points hold no negative number")
    ]


def test_unsigned_codes_with_a_zero_point_are_no_contradiction(folder: Path) -> None:
    assert not faults(folder, "[quantize.activations]\nsigned = false")
    assert not faults(folder, "[quantize.activations]\nsymmetric = true")


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ("float = true\nbits = 16", "bits"),
        ('float = true\ntype = "int"', "type"),
        ("float = true\nweight_bits = 8", "weight_bits"),
        ('type = "bf16"\nbits = 8', "bits"),
    ],
)
def test_floats_beside_what_is_said_of_integers(folder: Path, keys: str, key: str) -> None:
    found = faults(folder, f'[[quantize.overrides]]\nlayers = ["relu"]\n{keys}', target="edge-8t")
    assert [k for k, _ in found] == [f"quantize.overrides[0].{key}"] and "contradicts" in found[0][1]


def test_two_sizes_of_one_dimension(folder: Path) -> None:
    assert faults(folder, model="dims = { T = 2 }\ninputs = { x = [3, 4] }") == [
        ("model.dims.T", 'the dimension "T" has two sizes: 2 and 3')
    ]
    assert not faults(folder, model="dims = { T = 2 }\ninputs = { x = [2, 4] }")


def test_options_of_a_method_that_is_not_chosen(folder: Path) -> None:
    more = '[calibrate]\nmethod = "kl"\n[calibrate.percentile]\npercentile = 99.0'
    assert faults(folder, more) == [
        ("calibrate.percentile", 'the options of "percentile" have no effect')
    ]
    assert faults(folder, more.replace('method = "kl"', "")) == faults(folder, more)
    assert not faults(folder, more.replace('"kl"', '"percentile"'))


def test_options_stay_where_another_place_chooses(folder: Path) -> None:
    """A sweep, `--set` and a recipe that extends another one may choose for themselves."""
    more = '[calibrate]\nmethod = "percentile"\n[calibrate.percentile]\npercentile = 99.0'
    assert not faults(folder, more, "calibrate.method=kl")
    assert not faults(folder, more)
    child = folder / "child.toml"
    child.write_text('extends = ["r.toml"]\n[calibrate]\nmethod = "kl"\n')
    plan_recipe(load(child), STAGES, Settings())


def test_a_search_without_widths(folder: Path) -> None:
    assert faults(folder, '[precision]\nstrategy = "ilp"\nweights = []') == [
        ("precision.weights", 'strategy = "ilp" has no widths of weights to choose from')
    ]
    assert not faults(folder, '[precision]\nstrategy = "ilp"')
    assert not faults(folder, '[precision]\nstrategy = "none"\nweights = []')


def test_widths_that_the_default_search_never_gives(folder: Path) -> None:
    """It widens from the recipe's width to the target's most: others would be passed over in silence."""
    most = "as [quantize] says, and 16, the target's most"
    assert faults(folder, "[precision]\nweights = [4, 8]") == [
        ("precision.weights", f'strategy = "auto" never gives weights 4 bits: only 8, {most}')
    ]
    stated = "[quantize.weights]\nbits = 4\n[precision]\nweights = [2, 4, 8]"
    assert faults(folder, stated, target="edge-8t") == [
        ("precision.weights", f'strategy = "auto" never gives weights 2 or 8 bits: only 4, {most}')
    ]
    for fine in ("weights = [8, 16]", "weights = [8]\nactivations = [8, 16]", "weights = []",
                 'weights = [4, 8]\nstrategy = "none"', 'weights = [4, 8]\nstrategy = "greedy"'):
        assert not faults(folder, f"[precision]\n{fine}")


def test_widths_of_a_search_that_the_target_lacks(folder: Path) -> None:
    found = faults(folder, '[precision]\nstrategy = "ilp"\nweights = [8, 16]', target="zhouyi-z2")
    assert found == [("precision.weights", "16 bits; the target computes with 8")]


def test_a_limit_of_bytes_where_every_weight_takes_one(folder: Path) -> None:
    more = '[precision]\nstrategy = "ilp"\nweights = [4, 8]\nmax_bytes = 0.6'
    assert faults(folder, more) == [(
        "precision.max_bytes",
        "max_bytes = 0.6; the target stores a byte per weight, however few its bits",
    )]
    assert not faults(folder, more, target="edge-8t")
    assert not faults(folder, more.replace("0.6", "1.5"))


def test_layers_that_pruning_and_rounding_name(folder: Path) -> None:
    more = (
        '[[round.layers]]\nlayers = ["nobody"]\nmethod = "nearest"\n'
        '[prune]\nlayers = ["none"]\n[prune.channels]\nskip = ["nothing"]'
    )
    assert [key for key, _ in faults(folder, more)] == [
        "round.layers[0].layers", "prune.layers", "prune.channels.skip",
    ]
