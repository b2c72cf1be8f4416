"""Spectra and frames inside a TFLite network, and sizes that a file leaves open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="the reference kernels (ai-edge-litert) are not installed")

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends.tflite.schema import parsed
from npuflow.frontends.tflite.sizes import RULES, resolved
from npuflow.testing.rule import check_rewrite
from tests.frontends.test_tflite import outputs
from tests.frontends.test_tflite_operators import CASES
from tests.frontends.tflite_cases import f32, i32
from tests.frontends.tflite_layout import NO_MASKS
from tests.frontends.tflite_models import Net, reference
from tests.networks.onnx_text import ops

PARTS = {"COMPLEX_ABS": "", "REAL": "", "IMAG": "", "CAST": "CastOptions"}


def spectrum(part: str, size: int, moved: bool = False) -> bytes:
    """A part of the spectrum of rows [2, 1, 24], by way of other shapes where `moved`."""
    net, bins = Net(), size // 2 + 1
    net.tensor("x", (2, 1, 24)), net.constant("size", i32(1, size))
    net.tensor("c", (2, 1, bins), "complex64")
    net.op("RFFT2D", ["x", "size"], ["c"], "Rfft2dOptions")
    last, shape = "c", (2, 1, bins)
    if moved:
        net.tensor("s", (2, bins), "complex64"), net.tensor("t", (bins, 2), "complex64")
        net.constant("perm", i32(1, 0))
        net.op("SQUEEZE", ["c"], ["s"], "SqueezeOptions", squeezeDims=[1])
        net.op("TRANSPOSE", ["s", "perm"], ["t"], "TransposeOptions")
        last, shape = "t", (bins, 2)
    net.tensor("y", shape)
    given = {"inDataType": 8, "outDataType": 0} if part == "CAST" else {}
    net.op(part, [last], ["y"], PARTS[part], **given)
    return net.done(["x"], ["y"])


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("part", PARTS)
def test_a_spectrum_is_the_reference_s(part: str, size: int, moved: bool) -> None:
    """Rows that are cut to the length, or filled."""
    data, x = spectrum(part, size, moved and part != "COMPLEX_ABS"), f32(2, 1, 24)
    (mine,), (theirs,) = outputs(data, [x]), reference(data, [x], plain=False)
    assert mine.shape == theirs.shape and np.abs(mine - theirs).max() <= 1e-4


def test_what_no_complex_number_can_be_in() -> None:
    net = Net()
    net.tensor("x", (1, 2, 8)), net.constant("size", i32(2, 8)), net.tensor("c", (1, 2, 5), "complex64")
    net.tensor("y", (1, 2, 5))
    net.op("RFFT2D", ["x", "size"], ["c"], "Rfft2dOptions")
    net.op("REAL", ["c"], ["y"])
    with pytest.raises(ModelError) as fault:
        FRONTENDS["tflite"]().read(net.done(["x"], ["y"]), Bindings())
    assert "of 2 rows at once" in fault.value.because
    net = Net()
    net.tensor("x", (1, 1, 8)), net.constant("size", i32(1, 8)), net.tensor("c", (1, 1, 5), "complex64")
    net.tensor("d", (1, 1, 5), "complex64"), net.tensor("y", (1, 1, 5))
    net.op("RFFT2D", ["x", "size"], ["c"], "Rfft2dOptions")
    net.op("MUL", ["c", "c"], ["d"], "MulOptions", fusedActivationFunction=0)
    net.op("REAL", ["d"], ["y"])
    with pytest.raises(ModelError) as fault:
        FRONTENDS["tflite"]().read(net.done(["x"], ["y"]), Bindings())
    assert "MUL of complex numbers" in fault.value.because


def frames(length: int = 2048, size: int = 64, step: int = 40, part: str = "REAL") -> bytes:
    """`tf.signal.stft` and mel bands as a converter writes them that knows no batch: sizes behind the first
    slice are open, and stated as 1."""
    net, common = Net(), int(np.gcd(size, step))
    rng, bins = np.random.default_rng(0), size // 2 + 1
    wide, across = size // common, step // common

    def open_(name: str, shape: tuple[int, ...], dtype: str = "float32") -> str:
        net.tensor(name, [1] * len(shape), dtype)
        net.graph.tensors[net.index[name]].shapeSignature = [-1] * len(shape)
        return name

    net.tensor("x", (1, length)), net.tensor("n", (2,), "int32"), net.tensor("batch", (1,), "int32")
    net.tensor("all", (), "int32"), net.tensor("rest", (), "int32"), net.tensor("steps", (), "int32")
    net.tensor("count", (), "int32")
    for name, value in {
        "zero": i32(0), "one": i32(1), "two": i32(2), "o": np.int32(0), "l": np.int32(1),
        "size": np.int32(size), "step": np.int32(step), "across": np.int32(across),
    }.items():
        net.constant(name, value)
    shrunk = {**NO_MASKS, "shrinkAxisMask": 1}
    net.op("SHAPE", ["x"], ["n"], "ShapeOptions", outType=2)
    net.op("STRIDED_SLICE", ["n", "zero", "one", "one"], ["batch"], "StridedSliceOptions", **NO_MASKS)
    net.op("STRIDED_SLICE", ["n", "one", "two", "one"], ["all"], "StridedSliceOptions", **shrunk)
    net.op("SUB", ["all", "size"], ["rest"], "SubOptions", fusedActivationFunction=0)
    net.op("FLOOR_DIV", ["rest", "step"], ["steps"], "FloorDivOptions")
    net.op("ADD", ["steps", "l"], ["count"], "AddOptions", fusedActivationFunction=0)
    open_("range", (9,), "int32"), open_("begins", (9,), "int32"), open_("column", (9, 1), "int32")
    open_("places", (9, wide), "int32"), open_("rows", (1, 9, common)), open_("cut", (1, 9, wide, common))
    open_("frames", (1, 9, size)), open_("shown", (1, 9, size)), open_("padded", (1, 9, 1, size))
    open_("c", (1, 9, 1, bins), "complex64"), open_("d", (1, 9, bins), "complex64"), open_("r", (1, 9, bins))
    open_("flat", (9, bins)), open_("y", (9, 5))
    net.op("RANGE", ["o", "count", "l"], ["range"], "RangeOptions")
    net.op("MUL", ["range", "across"], ["begins"], "MulOptions", fusedActivationFunction=0)
    net.constant("as column", i32(-1, 1)), net.constant("taps", np.arange(wide, dtype=np.int32))
    net.op("RESHAPE", ["begins", "as column"], ["column"], "ReshapeOptions")
    net.op("ADD", ["column", "taps"], ["places"], "AddOptions", fusedActivationFunction=0)
    net.constant("as rows", i32(1, -1, common)), net.constant("as frames", i32(1, -1, size))
    net.op("RESHAPE", ["x", "as rows"], ["rows"], "ReshapeOptions")
    net.op("GATHER", ["rows", "places"], ["cut"], "GatherOptions", axis=1)
    net.op("RESHAPE", ["cut", "as frames"], ["frames"], "ReshapeOptions")
    net.constant("window", np.hanning(size).astype(np.float32)), net.constant("at", np.int32(-2))
    net.op("MUL", ["frames", "window"], ["shown"], "MulOptions", fusedActivationFunction=0)
    net.op("EXPAND_DIMS", ["shown", "at"], ["padded"], "ExpandDimsOptions")
    net.constant("by", i32(1, size))
    net.op("RFFT2D", ["padded", "by"], ["c"], "Rfft2dOptions")
    net.op("SQUEEZE", ["c"], ["d"], "SqueezeOptions", squeezeDims=[-2])
    net.op(part, ["d"], ["r"], PARTS[part])
    net.constant("as flat", i32(-1, bins))
    net.constant("mel", rng.standard_normal((5, bins)).astype(np.float32))
    net.op("RESHAPE", ["r", "as flat"], ["flat"], "ReshapeOptions")
    net.op("FULLY_CONNECTED", ["flat", "mel", ""], ["y"], "FullyConnectedOptions", fusedActivationFunction=0)
    return net.done(["x"], ["y"])


@pytest.mark.parametrize(("length", "size", "step"), [(2048, 64, 40), (1001, 64, 33), (5120, 64, 16)])
def test_frames_of_open_sizes_become_a_convolution(length: int, size: int, step: int) -> None:
    data, x = frames(length, size, step), np.cumsum(f32(1, length), 1) / 8
    (mine,), (theirs,) = outputs(data, [x]), reference(data, [x], plain=False)
    assert mine.shape == theirs.shape == ((length - size) // step + 1, 5)
    assert np.abs(mine - theirs).max() <= 1e-4 * np.abs(theirs).max()
    done = check_rewrite(FRONTENDS["tflite"]().read(data, Bindings()).graph)
    assert ops(done).count("conv") == 1 and not {"gather", "host", "matmul", "gemm", "mul"} & {*ops(done)}


def test_a_magnitude_of_frames_is_two_convolutions() -> None:
    done = check_rewrite(FRONTENDS["tflite"]().read(frames(part="COMPLEX_ABS"), Bindings()).graph)
    assert ops(done).count("conv") == 2 and "host" not in ops(done)


@pytest.mark.parametrize("name", [name for name in CASES if name.split()[0] in RULES])
def test_sizes_left_open_are_those_of_the_file(name: str) -> None:
    """Every operator's own rule, against sizes that are stated."""
    network = parsed(CASES[name]()[0])
    inner = {index for one in network.operators for index in one.outputs}
    blank = tuple(
        replace(one, shape=(1,) * len(one.shape), open=True) if index in inner else one
        for index, one in enumerate(network.tensors)
    )
    found = resolved(replace(network, tensors=blank))
    assert [one.shape for one in found.tensors] == [one.shape for one in network.tensors]


def test_a_size_that_depends_on_data_is_an_error() -> None:
    net = Net()
    net.tensor("x", (1, 8)), net.tensor("s", (2,), "int32"), net.tensor("y", (1, 1))
    net.graph.tensors[net.index["y"]].shapeSignature = [-1, -1]
    net.op("RESHAPE", ["x", "s"], ["y"], "ReshapeOptions")
    with pytest.raises(ModelError) as fault:
        FRONTENDS["tflite"]().read(net.done(["x", "s"], ["y"]), Bindings())
    assert fault.value.code == "NF-MODEL-511" and fault.value.where.node == "y"


def test_stated_sizes_stay_where_another_cannot_be_computed() -> None:
    """A shape that the network computes, of as many elements: of a free batch 1 is stated, and right."""
    net = Net()
    net.tensor("x", (1, 8)), net.tensor("s", (2,), "int32"), net.tensor("y", (2, 4))
    net.graph.tensors[net.index["y"]].shapeSignature = [-1, 4]
    net.op("RESHAPE", ["x", "s"], ["y"], "ReshapeOptions")
    graph = FRONTENDS["tflite"]().read(net.done(["x", "s"], ["y"]), Bindings()).graph
    assert graph.type("y").shape == (2, 4)
