"""The forms in which .caffemodel files hold numbers, and what is said where the file is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends.caffe.convert import reading
from npuflow.frontends.caffe.parse import parsed
from tests.frontends.caffe_models import Blobs, chunk, draw, judged, layer, outputs, read, varint

HEAD = 'name: "net"\ninput: "data"\ninput_shape { dim: 1 dim: 4 dim: 6 dim: 5 }\n'
TEXT = (
    HEAD
    + layer("Convolution", "data", "c", "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }")
    + layer("BatchNorm", "c", "c", name="bn")
    + layer("Scale", "c", "c", "scale_param { bias_term: true }", "sc")
    + layer("PReLU", "c", "p")
    + layer("Deconvolution", "p", "u", "convolution_param { num_output: 4 kernel_size: 2 stride: 2 }")
    + layer("Bias", "u", "b")
    + layer("BN", "b", "n")
    + layer("Normalize", "n", "m", "norm_param { across_spatial: false channel_shared: false }")
    + layer("InnerProduct", "m", "y", "inner_product_param { num_output: 3 }")
)
# multiples of 1/64 below 2: float16 holds them
EXACT: Blobs = {
    name: [np.round(np.clip(array, -1.9, 1.9) * 64).astype(np.float32) / 64 for array in arrays]
    for name, arrays in {
        "c": [draw(4, 4, 3, 3), draw(4)],
        "bn": [draw(4), np.abs(draw(4)) + 1, np.float32([1.5])],
        "sc": [draw(4), draw(4)],
        "p": [np.abs(draw(4))],
        "u": [draw(4, 4, 2, 2), draw(4)],
        "b": [draw(4)],
        "n": [draw(4) + 1, draw(4)],
        "m": [np.abs(draw(4)) + 1],
        "y": [draw(3, 480), draw(3)],
    }.items()
}
DOUBLE, FLOAT, FLOAT16 = range(3)


def shape(array: np.ndarray) -> bytes:
    return chunk(7, chunk(1, b"".join(varint(d) for d in array.shape)))


def four(array: np.ndarray, last: bool = True) -> bytes:
    """The shape as four numbers: ones in front, as Caffe writes them, or channels second."""
    ones = (1,) * (4 - array.ndim)
    sizes = (*ones, *array.shape) if last or array.ndim > 1 else (1, *array.shape, 1, 1)
    return b"".join(varint(i << 3) + varint(d) for i, d in enumerate(sizes, 1))


def loose(number: int, array: np.ndarray, wire: int) -> bytes:
    """A list that is not packed: every number is a field."""
    return b"".join(varint(number << 3 | wire) + one.tobytes() for one in array.reshape(-1))


def raw(kind: int, array: np.ndarray) -> bytes:
    """NVCaffe's and OpenCV's form: a type, and bytes."""
    return varint(10 << 3) + varint(kind) + chunk(12, array.tobytes())


FORMS: dict[str, Callable[[np.ndarray], bytes]] = {
    "float32": lambda a: shape(a) + chunk(5, a.astype("<f4").tobytes()),
    "float32 not packed": lambda a: shape(a) + loose(5, a.astype("<f4"), 5),
    "double": lambda a: shape(a) + chunk(8, a.astype("<f8").tobytes()),
    "double not packed": lambda a: shape(a) + loose(8, a.astype("<f8"), 1),
    "double with gradients": lambda a: shape(a) + chunk(9, b"\1" * 8) + chunk(8, a.astype("<f8").tobytes()),
    "raw double": lambda a: shape(a) + raw(DOUBLE, a.astype("<f8")),
    "raw float32": lambda a: shape(a) + raw(FLOAT, a.astype("<f4")),
    "raw float16": lambda a: shape(a) + raw(FLOAT16, a.astype("<f2")),
    "raw float16 with gradients": lambda a: shape(a) + varint(11 << 3) + varint(2)
    + raw(FLOAT16, a.astype("<f2")) + chunk(13, b"\1" * 8),
    "float16 as numbers": lambda a: shape(a)
    + chunk(10, b"".join(varint(int(bits)) for bits in a.astype("<f2").view("<u2").reshape(-1))),
    "float16 as numbers, not packed": lambda a: shape(a)
    + b"".join(varint(10 << 3) + varint(int(bits)) for bits in a.astype("<f2").view("<u2").reshape(-1)),
    "four sizes": lambda a: four(a) + chunk(5, a.astype("<f4").tobytes()),
    "four sizes, channels second": lambda a: four(a, last=False) + chunk(5, a.astype("<f4").tobytes()),
    "four sizes, double": lambda a: four(a) + chunk(8, a.astype("<f8").tobytes()),
    "four sizes, raw float16": lambda a: four(a) + raw(FLOAT16, a.astype("<f2")),
    "no shape": lambda a: chunk(5, a.astype("<f4").tobytes()),
}


KINDS = {"c": b"Convolution", "y": b"InnerProduct"}


def weights(form: Callable[[np.ndarray], bytes], held: Blobs = EXACT) -> bytes:
    """A NetParameter whose blobs have one form."""
    made = b""
    for name, arrays in held.items():
        about = chunk(1, name.encode()) + chunk(2, KINDS.get(name, b""))
        made += chunk(100, about + b"".join(chunk(7, form(a)) for a in arrays))
    return made


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_numbers_gives_the_same_network(form: str) -> None:
    x = np.random.default_rng(5).standard_normal((1, 4, 6, 5)).astype(np.float32)
    (wanted,) = outputs(read(TEXT, EXACT), x)
    (mine,) = outputs(reading(parsed(TEXT.encode(), weights(FORMS[form])), Bindings()), x)
    assert np.array_equal(mine, wanted)


def test_a_file_that_opencv_wrote_in_half_precision(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    if not hasattr(cv2.dnn, "shrinkCaffeModel"):
        pytest.skip("OpenCV from 5 on reads no Caffe networks")
    text = HEAD + layer("Convolution", "data", "c", "convolution_param { num_output: 4 kernel_size: 3 }")
    text += layer("InnerProduct", "c", "y", "inner_product_param { num_output: 3 }")
    (tmp_path / "net.prototxt").write_text(text)
    whole, half = tmp_path / "whole.caffemodel", tmp_path / "net.caffemodel"
    held = {"c": [draw(4, 4, 3, 3), draw(4)], "y": [draw(3, 48), draw(3)]}
    whole.write_bytes(weights(FORMS["float32"], held))
    cv2.dnn.shrinkCaffeModel(str(whole), str(half))
    assert half.stat().st_size < whole.stat().st_size * 0.7
    x = np.random.default_rng(5).standard_normal((1, 4, 6, 5)).astype(np.float32)
    (mine,) = outputs(reading(parsed(text.encode(), half.read_bytes()), Bindings()), x)
    (wanted,) = judged(tmp_path, x)
    assert np.abs(mine - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (lambda a: shape(a) + raw(7, a), "of the unknown type 7"),
        (lambda a: shape(a) + chunk(5, a.tobytes()[4:]), 'blob 0 of layer "c" holds 143 numbers'),
        (lambda a: shape(a) + chunk(10, varint(1 << 17) * a.size), "more than 16 bits"),
        (lambda a: shape(a) + varint(5 << 3) + varint(3), "single whole number"),
    ],
)
def test_numbers_that_are_wrong_say_where(form: Callable[[np.ndarray], bytes], words: str) -> None:
    with pytest.raises(ModelError, match="damaged") as caught:
        parsed(TEXT.encode(), weights(form))
    assert words in caught.value.because


CONV = layer("Convolution", "data", "c", "convolution_param { num_output: 4 kernel_size: 3 }")
DENSE = layer("InnerProduct", "c", "y", "inner_product_param { num_output: 3 }")


def refused(folder: Path, text: str) -> ModelError:
    """What is said of the network net.prototxt in a folder."""
    (folder / "net.prototxt").write_text(text)
    reader = FRONTENDS["caffe"]()
    with pytest.raises(ModelError) as caught:
        reader.read(reader.gather(folder / "net.prototxt"), Bindings())
    return caught.value


def test_a_network_without_weights_says_which_file_is_missing(tmp_path: Path) -> None:
    fault = refused(tmp_path, HEAD + CONV + DENSE)
    assert fault.message == "the Caffe model has no weights"
    assert fault.because == 'no file "net.caffemodel" lies beside it'
    assert "net.caffemodel" in fault.hint and "outputs" not in fault.hint
    (tmp_path / "snapshot_iter_100.caffemodel").write_bytes(b"")
    fault = refused(tmp_path, HEAD + CONV + DENSE)
    assert 'but "snapshot_iter_100.caffemodel"' in fault.because
    assert fault.hint == "name both files alike: ln -s snapshot_iter_100.caffemodel net.caffemodel"
    (tmp_path / "snapshot_iter_100.caffemodel").rename(tmp_path / "snapshot_iter_100.caffemodel.h5")
    assert "of HDF5" in refused(tmp_path, HEAD + CONV + DENSE).hint


def test_weights_of_another_network_say_so(tmp_path: Path) -> None:
    (tmp_path / "net.caffemodel").write_bytes(weights(FORMS["float32"], {"fc6": [draw(3, 48)]}))
    fault = refused(tmp_path, HEAD + CONV + DENSE)
    assert fault.message == "net.caffemodel lacks weights"
    assert fault.because == 'of "c"; it has those of "fc6"' and "belong to this .prototxt" in fault.hint


def test_all_unknown_layers_are_told_at_once(tmp_path: Path) -> None:
    """Also those behind others that are unknown, or that lack weights."""
    text = HEAD + layer("Sphere", "data", "a") + layer("Warp", "a", "b") + layer("Sphere", "b", "d")
    fault = refused(tmp_path, text + CONV + layer("Twist", "c", "e"))
    assert fault.message == "4 layers of the Caffe model cannot be converted"
    assert fault.because.startswith("Sphere (2 times); Warp; Twist; the Caffe model has no weights")
    assert 'no file "net.caffemodel"' in fault.because


def test_a_network_may_end_in_front_of_a_layer_that_is_unknown() -> None:
    text = HEAD + CONV + layer("ReLU", "c", "c", name="r") + layer("Sphere", "c", "s")
    held = {"c": [draw(4, 4, 3, 3), draw(4)]}
    data = text.encode(), weights(FORMS["float32"], held)
    graph = reading(parsed(*data), Bindings(outputs=("c",))).graph
    assert graph.outputs == ("c",) and [node.op.onnx_type()[1] for node in graph.nodes] == ["Conv", "Relu"]
    with pytest.raises(ModelError, match="1 layer of") as caught:
        reading(parsed(*data), Bindings())
    assert "[model] outputs" in caught.value.hint


def test_a_network_for_training_names_the_file_for_use(tmp_path: Path) -> None:
    data = 'layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "db" } }\n'
    fault = refused(tmp_path, data + CONV)
    assert "does not state its inputs" in fault.message and "deploy.prototxt" in fault.hint
    fault = refused(tmp_path, 'input: "data"\n' + CONV)
    assert fault.because == 'no sizes are stated of the input "data"' and "input_shape" in fault.hint
    old = 'layers { layer { name: "c" type: "conv" num_output: 4 } bottom: "data" top: "c" }'
    assert "upgrade_net_proto_text" in refused(tmp_path, HEAD + old).hint
