"""GridSample, RoiAlign and DeformConv at computed places: onnxruntime's results, on the NPU."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from npuflow.onnx.run import run
from npuflow.quantise.config import Activations, Quantize
from npuflow.run.interpret import interpret
from tests.networks.onnx_text import TARGET, model, normal, on_npu, ops, refused, rewritten
from tests.tiers import often, spread

GRID = "float[2,3,5,6] x, float[2,4,3,2] g => float[2,3,4,3] y"
WIDE = Quantize(activations=Activations(bits=16))
PADDINGS, MODES = ["zeros", "border", "reflection"], ["half_pixel", "output_half_pixel"]


def whole(data: bytes, feeds: dict[str, np.ndarray] | None = None, rtol: float = 1e-4) -> None:
    done = rewritten(data, feeds=feeds, rtol=rtol, atol=1e-4)
    assert not [o for o in ops(done) if o.startswith("host:")]
    on_npu(done, WIDE)


@pytest.mark.parametrize("aligned", often([0, 1], 2))
@pytest.mark.parametrize(("padding", "mode"), spread(PADDINGS, ["linear", "nearest"]))
def test_a_grid_that_is_computed(mode: str, padding: str, aligned: int) -> None:
    attributes = f'mode="{mode}", padding_mode="{padding}", align_corners={aligned}'
    data = model(GRID, f"y = GridSample<{attributes}>(x, g)", opset=20)
    whole(data, {"x": normal(1, 2, 3, 5, 6), "g": normal(2, 2, 4, 3, 2)})


def test_a_grid_of_an_affine_map() -> None:
    size = {"size": np.array([1, 2, 4, 4], np.int64)}
    body = "g = AffineGrid(t, size) y = GridSample(x, g)"
    whole(model("float[1,2,5,5] x, float[1,2,3] t => float[1,2,4,4] y", body, size, opset=20))


@pytest.mark.parametrize("aligned", often([1, 0], 2))
@pytest.mark.parametrize(("padding", "constant"), spread(PADDINGS, [True, False]))
def test_cubic_weights_far_outside_too(constant: bool, padding: str, aligned: int) -> None:
    """The taps that leave the image are padded one by one, as onnxruntime does."""
    grid = normal(2, 2, 4, 3, 2, scale=1.5)
    signature = "float[2,3,5,6] x => float[2,3,4,3] y" if constant else GRID
    body = f'y = GridSample<mode="cubic", padding_mode="{padding}", align_corners={aligned}>(x, g)'
    data = model(signature, body, {"g": grid} if constant else None, opset=20)
    feeds = {"x": normal(1, 2, 3, 5, 6), "g": grid}
    whole(data, {"x": feeds["x"]} if constant else feeds, rtol=1e-3)


def test_a_computed_cubic_grid_keeps_its_accuracy_in_integers() -> None:
    body = 'y = GridSample<mode="cubic", padding_mode="border">(x, g)'
    data = model("float[1,2,8,8] x, float[1,6,6,2] g => float[1,2,6,6] y", body, opset=20)
    given = {"x": normal(1, 1, 2, 8, 8), "g": normal(2, 1, 6, 6, 2, scale=0.7)}
    graph = on_npu(rewritten(data, feeds=given, atol=1e-4), WIDE, given)
    (found,), (wanted,) = interpret(graph, given, TARGET.numerics).values(), run(data, given)
    assert np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max()


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_a_computed_grid_of_a_volume(mode: str) -> None:
    signature = "float[1,2,3,4,5] x, float[1,2,3,2,3] g => float[1,2,2,3,2] y"
    data = model(signature, f'y = GridSample<mode="{mode}">(x, g)', opset=20)
    whole(data, {"x": normal(1, 1, 2, 3, 4, 5), "g": normal(2, 1, 2, 3, 2, 3)})


BOXES = np.array([[0.5, 1.0, 7.0, 6.5], [-4.0, 2.0, 3.0, 30.0], [3.0, 3.0, 3.2, 3.1]], np.float32)


@pytest.mark.parametrize(("mode", "count"), spread(MODES, [1, 2]))
def test_boxes(mode: str, count: int) -> None:
    batch = {"batch": np.array([0, count - 1, 0], np.int64)}
    attributes = (
        f'coordinate_transformation_mode="{mode}", output_height=3, output_width=2, sampling_ratio=2, '
        "spatial_scale=0.5"
    )
    data = model(
        f"float[{count},2,6,5] x, float[3,4] r => float[3,2,3,2] y",
        f"y = RoiAlign<{attributes}>(x, r, batch)",
        batch,
        opset=16,
    )
    done = rewritten(data, feeds={"x": normal(1, count, 2, 6, 5), "r": BOXES * 1.5})
    assert not [o for o in ops(done) if o.startswith("host:") and o != "host:cast"]
    on_npu(done, WIDE)


def boxes(signature: str, attributes: str, weights: dict[str, np.ndarray]) -> bytes:
    weights = {"batch": np.zeros(3, np.int64), **weights}
    body = f"y = RoiAlign<output_height=3, output_width=2, {attributes}>(x, r, batch)"
    return model(f"float[1,2,7,5] x{signature} => float[3,2,3,2] y", body, weights, opset=16)


@pytest.mark.parametrize(
    ("mode", "pooled", "ratio"), often(product(MODES, ["avg", "max"], [0, 2]), 3)
)
def test_constant_boxes_with_samples_by_their_size(mode: str, pooled: str, ratio: int) -> None:
    attributes = f'coordinate_transformation_mode="{mode}", mode="{pooled}", sampling_ratio={ratio}'
    whole(boxes("", attributes, {"r": BOXES}), {"x": normal(1, 1, 2, 7, 5) - 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_computed_boxes_with_samples_by_their_size(mode: str) -> None:
    """Within the image, of one sample, of several, and without extent."""
    within = np.array([[0.5, 1.0, 4.9, 6.5], [3.0, 3.0, 3.2, 3.1], [2.0, 1.0, 2.0, 5.0]], np.float32)
    data = boxes(", float[3,4] r", f'coordinate_transformation_mode="{mode}"', {})
    whole(data, {"x": normal(1, 1, 2, 7, 5), "r": within})


def test_the_maximum_over_samples_of_computed_boxes() -> None:
    data = boxes(", float[3,4] r", 'mode="max", sampling_ratio=2', {})
    whole(data, {"x": normal(1, 1, 2, 7, 5) - 1.0, "r": BOXES})


def test_a_maximum_over_a_number_of_samples_that_is_computed_stays_with_the_reason() -> None:
    data = boxes(", float[3,4] r", 'mode="max"', {})
    done = rewritten(data, feeds={"x": normal(1, 1, 2, 7, 5), "r": BOXES})
    assert "depends on boxes that are computed" in refused(done, "spell_roialign")


@pytest.mark.parametrize(("groups", "mask"), spread([1, 2], [False, True]))
def test_convolutions_with_moved_taps(groups: int, mask: bool) -> None:
    weights = {"w": normal(3, 6, 4 // groups, 3, 2), "b": normal(4, 6)}
    attributes = (
        f"kernel_shape=[3,2], pads=[1,0,1,1], strides=[2,1], dilations=[1,2], group={groups}, "
        f"offset_group={groups}"
    )
    taps, place = 6 * groups, "3,4"
    signature = f"float[1,4,5,5] x, float[1,{2 * taps},{place}] o"
    if mask:
        signature += f", float[1,{taps},{place}] m"
    body = f"y = DeformConv<{attributes}>(x, w, o, b{', m' if mask else ''})"
    whole(model(f"{signature} => float[1,6,{place}] y", body, weights, opset=19))


def test_a_deformable_convolution_of_a_large_image_stays_with_the_reason() -> None:
    body = "y = DeformConv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, o)"
    signature = "float[1,1,64,64] x, float[1,18,64,64] o => float[1,1,64,64] y"
    data = model(signature, body, {"w": normal(1, 1, 1, 3, 3)}, opset=19)
    assert "more than 4194304" in refused(rewritten(data), "spell_deformconv")
