"""Extrema of channels, where a recipe asks for them: found inside the float network,
exact, one sample at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.stages.channels import ChannelRanges
from npuflow.statistics.channels import ChannelsTable, axis_of, extrema, merged, watched
from tests.stages.test_sharded_builds import network as saved

KIND = TensorType((1, 6, 5, 5))


def network() -> Graph:
    """A sum with a fused clip, whose bounds are constants of the exported model."""
    clipped = OPS["add"](clip=(-1.5, 2.5))
    nodes = (
        Node(OPS["tanh"](), ("x",), ("soft",), ("tanh",)),
        Node(clipped, ("x", "soft"), ("y",), ("sum",)),
    )
    return Graph(("x",), ("y",), nodes, {v: Value(v, KIND) for v in ("x", "soft", "y")})


def test_extrema_are_those_of_the_arrays() -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(0, 1 + k, KIND.shape).astype(np.float32)} for k in range(4)]
    names = watched(network(), lambda _: True, ChannelsTable())
    assert set(names) == {"x", "soft", "y"}
    parts = list(extrema(network(), names, feeds))
    x = np.concatenate([f["x"] for f in feeds])
    made = {"x": x, "soft": np.tanh(x), "y": np.clip(x + np.tanh(x), -1.5, 2.5)}
    for name, array in made.items():
        want = np.stack([array.min((0, 2, 3)), array.max((0, 2, 3))])
        np.testing.assert_allclose(merged(parts)[name], want, rtol=1e-6)
        np.testing.assert_array_equal(merged(parts)[name], merged(parts[::-1])[name])
    assert watched(network(), lambda _: True, ChannelsTable(tensors=("y*",))) == ["y"]


SHAPES = [((1, 6, 5, 5), 1), ((1, 9), 1), ((1, 12, 64), 2), ((7,), None), ((1, 1, 4, 4), None)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_where_channels_are(shape: tuple[int, ...], axis: int | None) -> None:
    assert axis_of(TensorType(shape)) == axis


@pytest.mark.slow
def test_a_build_with_the_table_keeps_them_per_sample(tmp_path: Path) -> None:
    saved(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(0, 1, (20, 1, 12, 12)).astype(np.float32))
    text = (
        'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "x.npy"\ncount = 12\nchoose = '
        '"first"\n[channels]\n'
    )
    (tmp_path / "net.toml").write_text(text)
    result = build(tmp_path / "net.toml", until="channels", cache=tmp_path / "cache")
    store = open_cache(load_recipe(tmp_path / "net.toml"), Settings(cache=tmp_path / "cache"))
    found = store.load(result.outputs["channels"], ChannelRanges).content
    assert sorted(a.shape for a in found.values()) == [(2, 3), (2, 4)]
    more = build(tmp_path / "net.toml", ["data.count=15"], until="channels", cache=tmp_path / "cache")
    assert sum(how == "ran" for how in more.status["channels.items"].values()) == 3
