"""Calibration tables: what is written is read again, other tools read it, and theirs are understood."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, TensorEntry, exact, read_table
from npuflow.ir.types import QuantType

FULL = {
    "input": exact(QuantType(8, False, (0.0078125,), (127,)), "", False, "input"),
    "/block.0/conv": exact(QuantType(8, False, (0.0234375,), (0,)), "mse", False, "Conv_0"),
    "signed": exact(QuantType(8, True, (0.0625,), (0,)), "kl", False, "Add_3"),
    "wide": exact(QuantType(16, True, (2.0**-15,), (0,)), "kl", False, "Add_3"),
}
WEIGHTS = {"w": exact(QuantType(8, True, (0.01, 0.02, 0.3), (0, 0, 0), 0), "", True)}


def reread(name: str, table: dict[str, TensorEntry]) -> dict[str, TensorEntry]:
    text = EXCHANGE[name]().write(table)
    found, back = read_table(text.encode(), "file")
    assert found == name
    assert read_table(text.encode(), "file", name)[1] == back
    return back


def test_every_format_is_a_file() -> None:
    tables = {"aimet", "compass", "compass_statistics", "mqbench", "onnxruntime", "tensorrt", "tpu_mlir"}
    assert set(EXCHANGE.names()) == {"json", "toml", "vitis_ai", *tables}
    for name in EXCHANGE.names():
        assert EXCHANGE[name].suffix and isinstance(EXCHANGE[name].omits, str)


@pytest.mark.parametrize("name", ["json", "toml"])
def test_own_tables_lose_nothing(name: str) -> None:
    odd = {
        'with "quotes" and\n\u00e9\\': TensorEntry(-1e-30, 3.4e38),
        "a.b": TensorEntry(-1.0, 0.1 + 0.2, None, "by hand"),
    }
    table = {**FULL, **WEIGHTS, **odd}
    assert reread(name, table) == table
    assert list(reread(name, table)) == list(table)


FLOATS = st.floats(1e-6, 1e6)


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(str.isprintable), st.tuples(FLOATS, FLOATS), min_size=1
    )
)
def test_own_tables_take_any_name_and_number(rows: dict[str, tuple[float, float]]) -> None:
    table = {name: TensorEntry(-lo, hi) for name, (lo, hi) in rows.items()}
    for name in ("json", "toml"):
        assert read_table(EXCHANGE[name]().write(table).encode(), "f", name)[1] == table


@pytest.mark.parametrize("name", ["tpu_mlir", "onnxruntime", "compass", "compass_statistics"])
def test_ranges_come_back(name: str) -> None:
    back = reread(name, {**FULL, **WEIGHTS})
    assert set(back) == set(FULL)
    for tensor, entry in FULL.items():
        assert (back[tensor].lo, back[tensor].hi) == pytest.approx((entry.lo, entry.hi), rel=1e-8)


def test_fixed_point_positions_of_vitis_ai() -> None:
    """quant_info.json of its PyTorch quantiser: [width, position], in a list by output or alone."""
    held = {
        "param": {"Net::conv.weight": [[8, 7]], "Net::conv.bias": [8, 9]},
        "output": {"Net::x": [[8, 5]], "Net::conv": [[8, -1]], "Net::skipped": [[8, None]]},
        "input": {}, "version": "3.5",
    }
    name, table = read_table(json.dumps(held).encode(), "quant_info.json")
    assert name == "vitis_ai" and set(table) == {"conv.weight", "conv.bias", "x", "conv"}
    assert table["conv"].quant == QuantType(8, True, (2.0,)) and table["conv"].node == "conv"
    assert table["conv.weight"].constant and table["conv.weight"].hi == 127 / 128
    again = read_table(EXCHANGE["vitis_ai"]().write(table).encode(), "f")[1]
    assert {n: e.quant for n, e in again.items()} == {n: e.quant for n, e in table.items()}
    ranges = EXCHANGE["vitis_ai"]().write({"x": TensorEntry(-0.5, 3.0), "y": TensorEntry(0.0, 0.0)})
    assert json.loads(ranges)["output"] == {"x": [[8, 5]], "y": [[8, 7]]}
    with pytest.raises(DataError):
        read_table(json.dumps({**held, "param": {"w": [8]}}).encode(), "f")


def test_codes_come_back_exactly_through_aimet_and_compass() -> None:
    back = reread("aimet", {**FULL, **WEIGHTS})
    assert {n: e.quant for n, e in back.items()} == {n: e.quant for n, e in {**FULL, **WEIGHTS}.items()}
    assert back["w"].constant and not back["wide"].constant
    compass = reread("compass", FULL)
    for tensor, entry in FULL.items():
        mine, theirs = entry.quant, compass[tensor].quant
        assert mine is not None and theirs is not None
        assert (theirs.bits, theirs.signed, theirs.zero_point) == (mine.bits, mine.signed, mine.zero_point)
        assert theirs.scale == pytest.approx(mine.scale, rel=1e-15)
        assert compass[tensor].node == entry.node


def test_tensorrt_cache() -> None:
    text = EXCHANGE["tensorrt"]().write(FULL)
    assert text.startswith("TRT-")
    name, back = read_table(text.encode(), "calibration.cache")
    assert name == "tensorrt"
    for tensor, entry in FULL.items():
        top = 127 * struct.unpack("f", struct.pack("f", max(abs(entry.lo), abs(entry.hi)) / 127))[0]
        assert (back[tensor].lo, back[tensor].hi) == (-top, top)
    # the example of TensorRT's documentation: the output of a softmax has amax 1
    lines = b"data: 3c008912\nprob: 3c010a14\n(Unnamed Layer* 0) [Convolution]_output: 404efcc8\n"
    _, known = read_table(b"TRT-7000-EntropyCalibration2\n" + lines, "c")
    assert known["prob"].hi == pytest.approx(1.0, rel=1e-3) and known["data"].method == "EntropyCalibration2"
    assert "(Unnamed Layer* 0) [Convolution]_output" in known
    # read as onnxruntime's TensorRT provider does: the name ends at the first colon, bits in hexadecimal
    head, *written = text.splitlines()
    assert head.partition(":")[0].startswith("TRT-") and len(written) == len(FULL)
    for line, (tensor, entry) in zip(written, FULL.items(), strict=True):
        before, _, bits = line.partition(":")
        (scale,) = struct.unpack(">f", int(bits, 16).to_bytes(4))
        assert before == tensor and 127 * scale == pytest.approx(max(-entry.lo, entry.hi), rel=1e-6)


def test_tpu_mlir_example_of_its_manual() -> None:
    text = """# generated time: 2022-08-11 10:00:59.743675
# histogram number: 2048
# sample number: 100
# tune number: 5
###
# op_name    threshold    min    max
images 1.0000080 0.0000000 1.0000080
122_Conv 56.4281803 -102.5830231 97.6811752
124_Mul 38.1586478 -0.2784646 97.6811752
#weight_scale
conv 2 0.1 0.2
#int4_th
122_Conv 20 -30 30
"""
    name, table = read_table(text.encode(), "yolo_cali_table")
    assert name == "tpu_mlir"
    assert {k: (e.lo, e.hi) for k, e in table.items()} == {
        "images": (0.0, 1.000008), "122_Conv": (-56.4281803, 56.4281803), "124_Mul": (-0.2784646, 38.1586478)
    }


def test_onnxruntime_reads_what_is_written_and_the_reverse(tmp_path: Path) -> None:
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    text = EXCHANGE["onnxruntime"]().write(FULL)
    theirs = calibrate.TensorsData.from_dict(json.loads(text))
    assert set(theirs.keys()) == set(FULL)
    assert theirs["input"].range_value[0] == np.float32(FULL["input"].lo)
    made = calibrate.TensorsData(
        calibrate.CalibrationMethod.Entropy,
        {
            "a": calibrate.TensorData(
                lowest=np.float32(-1.5), highest=np.array([2.5], np.float32), hist=np.ones(3), bins=3
            )
        },
    )
    encoded = json.dumps(made, cls=calibrate.CalibrationCacheEncoder)
    name, back = read_table(encoded.encode(), "calibration.json")
    assert name == "onnxruntime" and (back["a"].lo, back["a"].hi, back["a"].method) == (-1.5, 2.5, "entropy")
    from onnxruntime.quantization.quant_utils import write_calibration_table

    pytest.importorskip("flatbuffers")
    write_calibration_table({"a": made["a"]}, str(tmp_path))
    for file in ("calibration.json", "calibration.cache"):
        name, rows = read_table((tmp_path / file).read_bytes(), file)
        assert name == "onnxruntime" and rows["a"].hi == 2.5


def test_older_and_newer_aimet_encodings() -> None:
    old = {
        "version": "0.4.0",
        "activation_encodings": {
            "20": [
                {
                    "bitwidth": 8,
                    "is_symmetric": "False",
                    "max": 2.6086959838867188,
                    "min": -2.109158515930176,
                    "offset": -114.0,
                    "scale": 0.018501389771699905,
                }
            ],
            "conv2d/Relu:0": [
                {
                    "bitwidth": 8,
                    "is_symmetric": "False",
                    "max": 2.184721499681473,
                    "min": -0.10788747668266296,
                    "offset": 11,
                    "scale": 0.0089906234367221,
                }
            ],
            "half": [{"bitwidth": 16, "dtype": "float"}],
        },
        "param_encodings": {
            "w": [
                {
                    "bitwidth": 8,
                    "is_symmetric": "True",
                    "max": 1.27,
                    "min": -1.28,
                    "offset": -128,
                    "scale": 0.01,
                }
            ]
            * 2
        },
    }
    name, table = read_table(json.dumps(old).encode(), "model.encodings")
    assert name == "aimet" and set(table) == {"20", "conv2d/Relu:0", "w"}
    assert table["20"].quant == QuantType(8, False, (0.018501389771699905,), (114,))
    assert table["20"].lo == pytest.approx(-2.109158515930176, rel=1e-6)
    assert table["conv2d/Relu:0"].quant == QuantType(8, False, (0.0089906234367221,), (12,))
    assert table["w"].quant == QuantType(8, True, (0.01, 0.01), (0, 0), 0) and table["w"].constant
    new = {"version": "2.0.0", "encodings": [
        {"name": "A", "output_dtype": "uint8", "y_scale": 0.1, "y_zero_point": 128},
        {"name": "B", "output_dtype": "int8", "y_scale": [0.1, 0.2], "axis": 0},
        {"name": "C", "output_dtype": "float16", "y_scale": 1.0},
    ]}
    _, table = read_table(json.dumps(new).encode(), "m.encodings")
    assert table["A"].quant == QuantType(8, False, (0.1,), (128,))
    assert table["B"].quant == QuantType(8, True, (0.1, 0.2), (0, 0), 0)
    assert set(table) == {"A", "B"}


def test_compass_statistics_and_its_pickles() -> None:
    tree = {
        "conv_0": {
            "conv_0_out": {
                "extrema_min": -2.0,
                "extrema_max": [3.0],
                "running_min": -1.0,
                "running_max": [[2.0]],
            },
            "w": {"extrema_min": -1.0, "extrema_max": 1.0, "extrema_min_key_axis": [-1.0]},
        }
    }
    name, table = read_table(json.dumps(tree).encode(), "s.json")
    assert name == "compass_statistics" and (table["conv_0_out"].lo, table["conv_0_out"].hi) == (-1.0, 2.0)
    assert table["w"].constant
    import pickle

    with pytest.raises(DataError, match="is a pickle"):
        read_table(pickle.dumps(tree), "resnet_statistic_info.npy")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "unknown format"),
        ('{"a": {"lo": 1}}', 'no "hi"'),
        ('{"a": {"lo": 1, "hi": 0}}', r"range of \"a\" is \[1, 0\]|range of"),
        ('{"a": {"lo": 0, "hi": 1, "scal": 3}}', 'unknown key "scal"'),
        ('{"a": {"lo": 0, "hi": NaN}}', "range of"),
        ('{"a": {"codes": {"bits": 8, "signed": true, "scale": [0.0], "zero_point": [0]}}}', "scale of 0"),
        ('{"a": {"codes": {"bits": 8}}}', "cannot be read"),
        ("TRT-1-X\na 3c\n", "line 2"),
        ("# op_name threshold min max\na 1 2\n", "line 2"),
        (
            '{"CLS": "TensorsData", "data": {"a": {"CLS": "TensorData", "lowest": {"data": [1, 2]}}}}',
            "one per channel",
        ),
    ],
)
def test_faults_name_their_row(text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_table(text.encode(), "file")
