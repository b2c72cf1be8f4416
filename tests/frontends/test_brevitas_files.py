"""Files as Brevitas writes them (constants among the inputs, Clips of codes): every scale is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import npuflow
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.frontends.onnx.clipped_codes import width
from npuflow.ir.types import QuantType
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

HELD = np.load(Path(__file__).with_name("brevitas_files.npz"))
NAMES = sorted({name.partition(":")[0] for name in HELD.files})
BITS = {"8 bits": 8, "4 bits": 4, "powers of two": 8}


def read(data: bytes) -> Reading:
    return FRONTENDS["onnx"]().read(data, Bindings())


def types(found: Reading) -> list[tuple[int, bool, tuple[float, ...]]]:
    return sorted((q.bits, q.signed, q.scale) for q in found.stated.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["qonnx", "qcdq"])
def test_every_scale_is_kept(name: str, form: str) -> None:
    found = read(HELD[f"{name}: {form}"].tobytes())
    assert not any("not kept" in note or "stay as they are" in note for note in found.notes)
    weights = [
        found.stated[i] for node in found.graph.nodes for i in node.inputs[1:2] if i in found.stated
    ]
    assert len(weights) == 3 and len(found.stated) == 6, "three layers, the input, two activations"
    assert {q.bits for q in weights} == {BITS[name]} and all(q.signed for q in weights)
    assert all((q.axis is None) == (name == "powers of two") for q in weights)
    if name == "powers of two":
        assert all(np.log2(s).is_integer() for q in weights for s in q.scale)
    made = run(export_model(found.graph), {found.graph.inputs[0]: HELD[f"{name}: x"]})[0]
    wanted = HELD[f"{name}: y"]
    assert np.abs(made - wanted).max() < 0.05 * np.abs(wanted).max(), "the float network, without rounding"


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_mean_the_same(name: str) -> None:
    one, other = (types(read(HELD[f"{name}: {form}"].tobytes())) for form in ("qonnx", "qcdq"))
    for (bits, signed, scales), (bits_, signed_, scales_) in zip(one, other, strict=True):
        assert (bits, signed) == (bits_, signed_) and scales == pytest.approx(scales_)


@pytest.mark.slow
def test_a_build_gives_brevitas_numbers(tmp_path: Path) -> None:
    path, x = tmp_path / "net.onnx", HELD["8 bits: x"]
    path.write_bytes(HELD["8 bits: qcdq"].tobytes())
    build = npuflow.compile(
        path, "edge-4t", data=np.concatenate([x, -x]), cache=tmp_path / "cache", until="codegen",
        correct={"bias": "off"}, placement={"min_macs": 0, "min_bytes": 0},
    )
    (made,) = npuflow.Runner(build.program).run({build.float_graph.inputs[0]: x}).values()
    wanted = HELD["8 bits: y"]
    assert np.abs(made - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize(
    "ends, signed, wanted",
    [((0, 15), False, (4, False)), ((-8, 7), True, (4, False)), ((-127, 127), True, (8, True)),
     ((0, 10), False, None), ((1, 15), False, None), ((-8, 6), True, None), ((-5, 7), True, None),
     ((0, 1), False, (1, False)), ((5, -5), True, None)],
)
def test_ends_of_codes(ends: tuple[int, int], signed: bool, wanted: tuple[int, bool] | None) -> None:
    assert width(ends, signed) == wanted


def clipped(lo: int, hi: int) -> onnx.ModelProto:
    """An activation whose codes are clipped."""
    constants = {"s": np.float32(0.1), "z": np.uint8(0), "lo": np.uint8(lo), "hi": np.uint8(hi)}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        helper.make_node("Clip", ["q", "lo", "hi"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    port = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy"}
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [port["x"]], [port["y"]], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_ends_that_no_width_has_stay_a_clip() -> None:
    def stated(model: onnx.ModelProto) -> list[QuantType]:
        return list(read(model.SerializeToString()).stated.values())

    assert [q.bits for q in stated(clipped(0, 15))] == [4]
    odd = read(clipped(0, 10).SerializeToString())
    assert not odd.stated and any(type(n.op).__name__ == "Host" for n in odd.graph.nodes)
