"""Caffe networks: parsed without Caffe, judged by the dnn of an OpenCV below 5 where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.frontends import Bindings
from tests.frontends.caffe_models import RNG, Blobs, caffemodel, draw, judged, layer, outputs, read
from tests.frontends.test_damaged import damaged
from tests.tiers import often

HEAD = 'name: "net"\ninput: "data"\ninput_shape { dim: 1 dim: 3 dim: 13 dim: 11 }\n'


C = "convolution_param { num_output: 8 kernel_size: 3 pad: 1 stride: 2 }"
CASES: dict[str, tuple[str, Blobs]] = {
    "convolutions": (
        layer("Convolution", "data", "c", C)
        + layer("BatchNorm", "c", "c", "batch_norm_param { eps: 0.001 }", "bn")
        + layer("Scale", "c", "c", "scale_param { bias_term: true }", "sc")
        + layer("ReLU", "c", "c", name="r")
        + layer(
            "Convolution",
            "c",
            "d",
            "convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 8 bias_term: false }",
        )
        + layer("Eltwise", "c d", "e", "eltwise_param { operation: SUM coeff: 1 coeff: -0.5 }")
        + layer(
            "Deconvolution", "e", "u", "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 }"
        ),
        {
            "c": [draw(8, 3, 3, 3), draw(8)],
            "bn": [draw(8), np.abs(draw(8)) + 1, np.float32([2])],
            "sc": [draw(8), draw(8)],
            "d": [draw(8, 1, 3, 3)],
            "u": [draw(8, 4, 4, 4), draw(4)],
        },
    ),
    "pooling": (
        layer("Pooling", "data", "a", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
        + layer("Pooling", "data", "b", "pooling_param { pool: AVE kernel_size: 3 stride: 2 }")
        + layer("Concat", "a b", "c")
        + layer("LRN", "c", "n", "lrn_param { local_size: 3 alpha: 0.1 beta: 0.75 }")
        + layer("Pooling", "n", "p", "pooling_param { pool: AVE kernel_h: 2 kernel_w: 3 stride: 1 pad: 1 }")
        + layer("Pooling", "p", "g", "pooling_param { pool: AVE global_pooling: true }"),
        {},
    ),
    "dense": (
        layer("Slice", "data", "a b", "slice_param { axis: 1 slice_point: 1 }")
        + layer("Flatten", "b", "f")
        + layer("InnerProduct", "f", "i", "inner_product_param { num_output: 7 }")
        + layer("PReLU", "i", "p")
        + layer("Dropout", "p", "p", name="drop")
        + layer("Softmax", "p", "s")
        + layer("Flatten", "a", "q")
        + layer("InnerProduct", "q", "j", "inner_product_param { num_output: 7 bias_term: false }")
        + layer("Sigmoid", "j", "k")
        + layer("Eltwise", "s k", "y", "eltwise_param { operation: PROD }"),
        {"i": [draw(7, 286), draw(7)], "p": [np.abs(draw(7))], "j": [draw(7, 143)]},
    ),
    "elements": (
        layer("Power", "data", "a", "power_param { power: 2 scale: 0.5 shift: 1 }")
        + layer("TanH", "a", "b")
        + layer("AbsVal", "b", "c")
        + layer("ELU", "data", "d")
        + layer("Eltwise", "c d data", "e", "eltwise_param { operation: MAX }")
        + layer("Permute", "e", "f", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
        + layer("Reshape", "f", "y", "reshape_param { shape { dim: 0 dim: -1 } }"),
        {},
    ),
}


@pytest.mark.parametrize("name", often(CASES, 2))
def test_networks_give_opencv_s_outputs(name: str, tmp_path: Path) -> None:
    text, held = CASES[name]
    x = RNG.standard_normal((1, 3, 13, 11)).astype(np.float32)
    (mine,) = outputs(read(HEAD + text, held, folder=tmp_path), x)
    (wanted,) = judged(tmp_path, x)
    assert mine.shape == wanted.shape
    assert np.abs(mine - wanted).max() <= 1e-4 * max(1.0, np.abs(wanted).max())


def test_layers_and_blobs_keep_their_names() -> None:
    text, held = CASES["convolutions"]
    graph = read(HEAD + text, held).graph
    assert graph.inputs == ("data",) and graph.outputs == ("u",)
    assert {"c", "bn", "sc", "r", "d", "e", "u"} <= {o for n in graph.nodes for o in n.origin}
    made = {o: n.op.onnx_type()[1] for n in graph.nodes for o in n.outputs}
    assert made["c"] == "Relu"  # the blob's name is that of its last value


def test_average_pooling_divides_as_caffe_does() -> None:
    """Padding counts, what lies beyond it does not: pool_layer of Caffe."""
    x = np.ones((1, 3, 13, 11), np.float32)
    text = layer("Pooling", "data", "y", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }")
    (y,) = outputs(read(HEAD + text, {}), x)
    assert y.shape == (1, 3, 7, 6)
    assert y[0, 0, 0, 0] == pytest.approx(4 / 9) and y[0, 0, 6, 5] == pytest.approx(4 / 9)
    text = layer("Pooling", "data", "y", "pooling_param { pool: AVE kernel_size: 4 stride: 4 }")
    (y,) = outputs(read(HEAD + text, {}), x)
    assert y.shape == (1, 3, 4, 3) and (y == 1).all()  # the last windows are cut, not padded


def test_old_files_and_the_forms_of_text() -> None:
    weight, bias = draw(4, 3, 1, 1), draw(4)
    old = (
        "input: 'data' input_dim: 1 input_dim: 3 input_dim: 13 input_dim: 11  # sizes\n"
        "layers { name: 'c' type: CONVOLUTION bottom: 'data' top: 'c' "
        "convolution_param < num_output: 4, kernel_size: 1; > }\n"
        "layers { name: 't' type: RELU bottom: 'c' top: 'c' include: { phase: TRAIN } }\n"
        "layers { name: 'l' type: 'Silence' bottom: 'c' }"
    )
    new = HEAD + layer("Convolution", "data", "c", "convolution_param { num_output: 4 kernel_size: [1] }")
    x = RNG.standard_normal((1, 3, 13, 11)).astype(np.float32)
    held = {"c": [weight, bias]}
    (a,), (b,) = outputs(read(old, held, old=True), x), outputs(read(new, held), x)
    assert np.array_equal(a, b)
    assert np.allclose(a, np.einsum("oc,nchw->nohw", weight[:, :, 0, 0], x) + bias[:, None, None], atol=1e-5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + layer("Convolution", "data", "c", C), "no weights"),
        (
            HEAD + layer("Sphere", "data", "a") + layer("ReLU", "a", "b") + layer("Sphere", "data", "c"),
            "2 times",
        ),
        (HEAD + layer("ReLU", "lost", "b"), "no layer before it"),
        (layer("ReLU", "data", "b"), "inputs"),
        (HEAD + "layer {", "not closed"),
        (HEAD + "}", "none opens"),
        ("", "no layers"),
    ],
)
def test_mistakes_are_one_error_each(text: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(text, {})
    assert words in str(caught.value)


def test_damaged_files_are_refused() -> None:
    from npuflow.frontends.caffe.convert import reading
    from npuflow.frontends.caffe.parse import parsed

    text, held = CASES["convolutions"]
    whole, weights = (HEAD + text).encode(), caffemodel(held)
    rng, refused = np.random.default_rng(1), 0
    for i in range(80):
        pair = (damaged(whole, rng), weights) if i % 2 else (whole, damaged(weights, rng))
        try:
            reading(parsed(*pair), Bindings())
        except NpuflowError as fault:
            assert fault.message
            refused += 1
    assert refused > 20
