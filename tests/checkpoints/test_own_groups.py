"""A checkpoint's weights in npuflow's own groups beside floats: their codes come from moments, with scales
that float16 has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.ir.types import GroupedType
from npuflow.quantise.rounded import real_weight
from npuflow.stages.moments import LayerMoments
from npuflow.stages.quantize import Quantized
from npuflow.stages.rounded import Rounded, RoundedLayer
from npuflow.testing.stage import built
from tests.checkpoints.gguf_files import write
from tests.checkpoints.running import FAMILIES
from tests.tiers import often

RECIPE = """target = "bm1684x"
[model]
path = "net.gguf"
dims = { chunk = 16, context = 32 }
outputs = ["logits:all"]
[data]
source = "calib.npz"
[parse]
stated = false
[quantize]
mode = "bf16"
weights = { bits = 4, group = 32, symmetric = false }
[[quantize.overrides]]
layers = ["layers.1.down"]
weight_bits = 8
"""


def recipe(folder: Path) -> Path:
    write(FAMILIES / "llama", folder / "net.gguf", "Q4_1")
    np.savez(folder / "calib.npz", tokens=np.random.default_rng(0).integers(3, 80, (24, 2, 1, 16)))
    (folder / "net.toml").write_text(RECIPE)
    return folder / "net.toml"


@pytest.mark.slow
@pytest.mark.parametrize("offset", often(["minimum", "zero"], 2))
def test_codes_are_those_that_moments_gave(offset: str, tmp_path: Path) -> None:
    """A layer of 8 bits is rounded to the nearest, and matrices of 32 rows have no groups of 32. No range is
    chosen."""
    wanted = f"quantize.weights.offset={offset}"
    done = built(recipe(tmp_path), tmp_path / "cache", "quantize", ("round.method=gptq", wanted))
    assert "thresholds" in done.plan.off and "statistics" not in done.plan.off
    (made,) = done.products("quantize").values()
    items = done.products("rounded").values()
    (rounded,) = (one for one in items if isinstance(one, Rounded))
    layers = [one for one in items if isinstance(one, RoundedLayer)]
    assert isinstance(made, Quantized) and len(layers) == len(rounded.weights) == 4
    for name, one in rounded.weights.items():
        assert one.quant.bits == (8 if name == "blk.1.ffn_down.weight" else 4)
        if offset == "zero":
            assert len(one.quant.zero_point) == len(one.quant.scale)
            assert np.array_equal(np.float16(one.quant.scale), np.array(one.quant.scale))
        value = made.graph.values[f"{name}:q"]
        assert isinstance(value.quant, GroupedType) and value.quant.loaded == "bfloat16"
        codes = made.graph.const(value.id)
        assert codes is not None and np.array_equal(codes, one.codes)
        groups = value.quant.groups(codes.shape)
        assert groups.exact and groups.offset == offset
        assert np.allclose(groups.numbers(codes), real_weight(one), rtol=1e-6, atol=0)
    kinds = {v.quant.bits for v in made.graph.values.values() if isinstance(v.quant, GroupedType)}
    assert kinds == {4, 8}
    nearest = built(tmp_path / "net.toml", tmp_path / "cache", "quantize", ("round.method=nearest",))
    assert "statistics" in nearest.plan.off


def test_every_layer_comes_closer_than_by_nearest(tmp_path: Path) -> None:
    """On the columns it was rounded by, and the default is kept where others agree."""
    done = built(recipe(tmp_path), tmp_path / "cache", "rounded")
    layers = [one for one in done.products("rounded").values() if isinstance(one, RoundedLayer)]
    moments = [one for one in done.products("moments").values() if isinstance(one, LayerMoments)]
    assert len(layers) == len(moments) == 4
    for one in layers:
        assert one.done.used == (one.layer.name != "layers.1.down")
        assert one.done.now < one.done.was or not one.done.used


@pytest.mark.slow
def test_minima_find_the_codes_of_a_file_again(tmp_path: Path) -> None:
    """Its floats are 16 numbers a group, from the least to the greatest, as Q4_1 makes them."""
    made = {}
    for name, more in (("own", ("quantize.weights.offset=minimum",)), ("file", ("parse.stated=true",))):
        done = built(recipe(tmp_path), tmp_path / "cache", "quantize", more)
        (one,) = done.products("quantize").values()
        assert isinstance(one, Quantized)
        made[name] = one.graph
    same = total = 0
    for name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight", "blk.1.attn_output.weight"):
        own, file = (graph.const(f"{name}:q") for graph in (made["own"], made["file"]))
        assert own is not None and file is not None and own.shape == file.shape
        same, total = same + int((own == file).sum()), total + own.size
    assert same > 0.99 * total
