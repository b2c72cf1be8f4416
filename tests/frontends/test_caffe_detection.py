"""Layers of Caffe's detectors, judged by the dnn of an OpenCV below 5 where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import Reading
from tests.frontends.caffe_models import Blobs, judged, layer, outputs, read

RNG = np.random.default_rng(0)
CLASSES = 4
HEAD = 'name: "net"\ninput: "data"\ninput_shape { dim: 1 dim: 3 dim: 48 dim: 64 }\n'
PRIORS = {
    "a": "min_size: 12 max_size: 20 aspect_ratio: 2 flip: true clip: false variance: 0.1 variance: 0.1 "
    "variance: 0.2 variance: 0.2 offset: 0.5 step: 8",
    "b": "min_size: 30 aspect_ratio: 2 aspect_ratio: 3 flip: false clip: true variance: 0.1",
}
COUNTS = {"a": 4, "b": 3}


def convolution(bottom: str, top: str, channels: int, stride: int = 1) -> str:
    options = f"convolution_param {{ num_output: {channels} kernel_size: 3 pad: 1 stride: {stride} }}"
    return layer("Convolution", bottom, top, options)


def detector(
    post: str = "", normalize: str = "across_spatial: false channel_shared: false"
) -> tuple[str, Blobs]:
    """Two scales, each with locations, scores and prior boxes."""
    text, held = "", {}

    def weights(name: str, rows: int, columns: int, gain: float) -> None:
        made = RNG.standard_normal((rows, columns, 3, 3)) * gain
        held[name] = [
            made.astype(np.float32),
            RNG.standard_normal(rows).astype(np.float32) * np.float32(gain),
        ]

    text += convolution("data", "f", 6, 8) + layer("Normalize", "f", "a", f"norm_param {{ {normalize} }}")
    held["a"] = [RNG.uniform(1, 3, 1 if "channel_shared: true" in normalize else 6).astype(np.float32)]
    text += convolution("a", "b", 6, 2)
    weights("f", 6, 3, 0.3)
    weights("b", 6, 6, 0.3)
    for scale, count in COUNTS.items():
        for kind, size in (("loc", 4), ("conf", CLASSES)):
            name = f"{scale}_{kind}"
            text += convolution(scale, name, count * size)
            weights(name, count * size, 6, 0.25 if kind == "loc" else 0.6)
            text += layer(
                "Permute", name, f"{name}_p", "permute_param { order: 0 order: 2 order: 3 order: 1 }"
            )
            text += layer("Flatten", f"{name}_p", f"{name}_f", "flatten_param { axis: 1 }")
        text += layer("PriorBox", f"{scale} data", f"{scale}_prior", f"prior_box_param {{ {PRIORS[scale]} }}")
    for kind in ("loc", "conf"):
        text += layer("Concat", f"a_{kind}_f b_{kind}_f", kind, "concat_param { axis: 1 }")
    text += layer("Concat", "a_prior b_prior", "prior", "concat_param { axis: 2 }")
    text += layer("Reshape", "conf", "rows", f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {CLASSES} }} }}")
    text += layer("Softmax", "rows", "soft", "softmax_param { axis: 2 }")
    text += layer("Flatten", "soft", "scores", "flatten_param { axis: 1 }")
    more = post or "nms_param { nms_threshold: 0.45 top_k: 100 } keep_top_k: 50 confidence_threshold: 0.3"
    text += layer(
        "DetectionOutput",
        "loc scores prior",
        "found",
        f"detection_output_param {{ num_classes: {CLASSES} share_location: true background_label_id: 0 "
        f"code_type: CENTER_SIZE {more} }}",
    )
    return text, held


def rows_of(found: np.ndarray) -> np.ndarray:
    """The detections, ordered by class and score."""
    rows = found.reshape(-1, 7)
    return rows[np.lexsort((-rows[:, 2], rows[:, 1]))]


@pytest.mark.parametrize(
    "post",
    [
        "",
        "nms_param { nms_threshold: 0.3 top_k: 9 } keep_top_k: 12 confidence_threshold: 0.05",
        "nms_param { nms_threshold: 0.6 } keep_top_k: 200 confidence_threshold: 0.2",
    ],
)
def test_a_detector_finds_what_opencv_finds(post: str, tmp_path: Path) -> None:
    text, held = detector(post)
    x = RNG.standard_normal((1, 3, 48, 64)).astype(np.float32)
    (mine,) = outputs(read(HEAD + text, held, folder=tmp_path), x)
    (wanted,) = judged(tmp_path, x)
    assert mine.shape == wanted.shape and mine.shape[2] > 5
    assert np.abs(rows_of(mine) - rows_of(wanted)).max() <= 1e-4


@pytest.mark.parametrize(
    "options", ["across_spatial: true channel_shared: true", "across_spatial: false channel_shared: true"]
)
def test_normalize_gives_opencv_s_outputs(options: str, tmp_path: Path) -> None:
    text = layer("Normalize", "data", "y", f"norm_param {{ {options} }}")
    x = RNG.standard_normal((1, 3, 48, 64)).astype(np.float32)
    (mine,) = outputs(read(HEAD + text, {"y": [np.float32([2.5])]}, folder=tmp_path), x)
    assert np.abs(mine - judged(tmp_path, x)[0]).max() <= 1e-5


def kinds(reading: Reading) -> set[str]:
    return {node.op.onnx_type()[1] for node in reading.graph.nodes}


def test_prior_boxes_are_constants() -> None:
    text, held = detector()
    reading = read(HEAD + text, held)
    assert "NonMaxSuppression" in kinds(reading) and reading.graph.outputs == ("found",)
    priors = [a for a in reading.graph.consts.values() if a.shape[-1:] == (2,)]
    assert priors and all("prior" not in node.origin for node in reading.graph.nodes)


def test_boxes_that_the_network_computes_are_refused() -> None:
    text, held = detector()
    text = text.replace("loc scores prior", "loc scores data").replace('bottom: "prior"', 'bottom: "data"')
    with pytest.raises(ModelError) as caught:
        read(HEAD + text, held)
    assert "DetectionOutput: prior boxes that the network computes" in caught.value.because


def test_pooling_of_regions(tmp_path: Path) -> None:
    text = 'name: "net"\ninput: "data"\ninput_shape { dim: 1 dim: 2 dim: 8 dim: 8 }\n'
    text += 'input: "rois"\ninput_shape { dim: 2 dim: 5 }\n'
    text += layer(
        "ROIPooling", "data rois", "y", "roi_pooling_param { pooled_w: 2 pooled_h: 2 spatial_scale: 0.5 }"
    )
    graph = read(text, {}).graph
    assert graph.type("y").shape == (2, 2, 2, 2) and kinds(read(text, {})) >= {"MaxRoiPool"}
