"""Files of the forms that other tools write today, built by the descriptions of these forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, TensorEntry, exact, read_table
from npuflow.ir.types import QuantType
from tests.stages.builds import made, products

NET = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,8,8] x) => (float[1,5] y) {
    a = Conv<pads=[1,1,1,1]>(x, k, kb) b = Relu(a) c = GlobalAveragePool(b) d = Flatten(c)
    y = Gemm<transB=1>(d, w, wb) }"""
SHAPES = {"k": (4, 3, 3, 3), "kb": (4,), "w": (5, 4), "wb": (5,)}


def read(held: Any, name: str) -> dict[str, TensorEntry]:
    """The rows of a JSON file that is recognised as of that format."""
    found, table = read_table(json.dumps(held).encode(), "file.json")
    assert found == name
    return table


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    model = parser.parse_model(NET)
    for name, shape in SHAPES.items():
        values = (rng.normal(size=shape) * 0.3).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save_model(model, str(tmp_path / "net.onnx"))
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(8, 3, 8, 8)).astype(np.float32))
    path = tmp_path / "recipe.toml"
    path.write_text(
        'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "d.npz"\n'
        '[ranges]\nfile = "table.json"\n'
    )
    return path


def scales(recipe: Path, held: Any) -> dict[str, tuple[float, ...]]:
    """The scales of the integer graph that a table gives, of values and constants by name."""
    (recipe.parent / "table.json").write_text(json.dumps(held))
    result = made(recipe).check()
    (quantized,) = products(recipe, result, "quantize")
    values = quantized.graph.values.values()
    return {v.id.removesuffix(":q"): v.quant.scale for v in values if v.quant is not None}


def test_quant_info_of_a_vitis_ai_quantiser(recipe: Path) -> None:
    """Rows as QuantConfigImpBase keeps them: [bits, position] for each output, null where there is none;
    beside them fast_finetuned, bias_corrected, version, graph_md5 (Xilinx/Vitis-AI,
    src/vai_quantizer/vai_q_pytorch, nndct_shared/quantization/quant_config_imp.py)."""
    held = {
        "param": {"Net::k": [[8, 6]], "Net::kb": [[8, 7]], "Net::w": [[8, 7]], "Net::wb": [[8, 6]]},
        "output": {
            "Net::x": [[8, 5]], "Net::b": [[8, 4]], "Net::c": [[8, 6], [8, 6]], "Net::y": [[8, 6]],
            "Net::Net/Softmax[softmax]/91": [None], "Net::Net/Split[split]/7": [[8, None], [8, None]],
        },
        "input": {}, "fast_finetuned": False, "bias_corrected": True, "version": "3.5.0+60df3f1+torch1.13.1",
        "graph_md5": "d41d8cd98f00b204e9800998ecf8427e",
    }
    table = read(held, "vitis_ai")
    assert set(table) == {"k", "kb", "w", "wb", "x", "b", "c", "y"}
    assert table["c"].quant == QuantType(8, True, (2.0**-6,)) and table["k"].constant
    found = scales(recipe, held)
    assert {name: found[name] for name in ("x", "b", "y", "k", "w")} == {
        "x": (2.0**-5,), "b": (2.0**-4,), "y": (2.0**-6,), "k": (2.0**-6,), "w": (2.0**-7,),
    }


def test_quant_info_for_other_devices_than_a_dpu() -> None:
    """[bits, scale, zero point, largest], lists by channel: CPUGPUQConfigImp in the same file, the scales by
    pytorch_nndct/quantization/torch_qalgo.py: symmetric ones are the largest over 127."""
    many = [[8, [0.01, 0.02], [0, 0], [1.27, 2.54]]]
    held = {
        "param": {"N::w": many},
        "output": {
            "N::s": [[8, 0.02, 0, 2.54]], "N::u": [[8, 0.02, 28, 4.54]], "N::n": [[8, None, None, None]]
        },
        "input": {}, "fast_finetuned": False, "bias_corrected": False, "version": "3.5.0",
    }
    table = read(held, "vitis_ai")
    assert table["w"].quant == QuantType(8, True, (0.01, 0.02), (0, 0), 0)
    assert table["s"].quant == QuantType(8, True, (0.02,))
    assert table["u"].quant == QuantType(8, False, (0.02,), (28,)) and set(table) == {"w", "s", "u"}
    with pytest.raises(DataError, match=r"neither \[bit width, position\] nor"):
        read({**held, "input": {"N::x": [[8, 0.5]]}}, "vitis_ai")


def test_overrides_of_qnn_need_no_scales(recipe: Path) -> None:
    """Rows with a width and the ends of the range, scale and offset being optional (ModelTC/MQBench
    docs/source/user_guide/hardware/snpe.rst, whose mqbench/deploy/deploy_linear.py writes such rows), or with
    a width and a dtype only."""
    held = {
        "activation_encodings": {
            "x": [{"bitwidth": 8, "min": -2.0, "max": 3.1}],
            "b": [{"bitwidth": 8, "min": 0.5, "max": 2.55}],
            "c": [{"bitwidth": 16, "dtype": "int", "is_symmetric": "False"}],
            "y": [{"bitwidth": 8, "min": 0, "max": 0}],
        },
        "param_encodings": {
            "k": [{"bitwidth": 8, "min": -1.28, "max": 1.27, "is_symmetric": "True"}],
            "w": {"bitwidth": 8, "scale": 0.01, "offset": -128, "is_symmetric": "True"},
        },
    }
    table = read(held, "aimet")
    assert set(table) == {"x", "b", "y", "k", "w"}
    x, b, k = (table[name].quant for name in "xbk")
    assert x == QuantType(8, False, (pytest.approx(0.02),), (100,)) and not table["x"].constant
    assert b == QuantType(8, False, (pytest.approx(0.01),), (0,))
    assert k == QuantType(8, True, (pytest.approx(0.01),), (0,)) and table["k"].constant
    assert table["w"].quant == QuantType(8, True, (0.01,), (0,))
    del held["activation_encodings"]["y"]
    found = scales(recipe, held)
    assert (found["x"], found["w"]) == ((pytest.approx(0.02),), (0.01,))


def test_encodings_of_version_1(recipe: Path) -> None:
    """Lists of named rows with enc_type, bw, is_sym and lists of scales and offsets; a FLOAT row has no scale
    (qualcomm/aimet Docs/techniques/encoding_spec.rst, version 1.0.0; the offset of symmetric codes is
    -2^(bw-1), as to_qnn_encoding_dict of aimet_torch's affine encoding gives it)."""
    row = {"dtype": "INT", "bw": 8, "enc_type": "PER_TENSOR", "is_sym": False}
    sized = [0.01, 0.02, 0.03, 0.04]
    held = {
        "version": "1.0.0",
        "activation_encodings": [
            {**row, "name": "x", "scale": [0.02], "offset": [-100]},
            {**row, "name": "b", "bw": 16, "scale": [0.0001], "offset": [0]},
            {"name": "c", "dtype": "FLOAT", "bw": 16, "enc_type": "PER_TENSOR"},
        ],
        "param_encodings": [
            {
                **row, "name": "k", "enc_type": "PER_CHANNEL", "is_sym": True, "scale": sized,
                "offset": [-128] * 4,
            },
        ],
        "quantizer_args": {"activation_bitwidth": 8, "param_bitwidth": 8}, "excluded_layers": [],
        "producer": "aimet-onnx",
    }
    table = read(held, "aimet")
    assert table["x"].quant == QuantType(8, False, (0.02,), (100,)) and set(table) == {"x", "b", "k"}
    assert table["k"].quant == QuantType(8, True, tuple(sized), (0,) * 4, 0) and table["k"].constant
    assert scales(recipe, held)["k"] == tuple(sized)
    two = {**row, "name": "k", "bw": 2, "scale": [0.1], "offset": [-2], "zero_point_shift": [0.5]}
    for wrong, said in (
        (two, "between two codes"),
        ({**row, "name": "k", "enc_type": "LPBQ", "scale": [1.0], "offset": [-8]}, '"k" is encoded LPBQ'),
    ):
        with pytest.raises(DataError, match=said):
            read({**held, "param_encodings": [wrong]}, "aimet")


@pytest.mark.parametrize("version", ["2.0.0", "2.1.0"])
def test_encodings_of_version_2(recipe: Path, version: str) -> None:
    """Rows with the inputs and attributes of QuantizeLinear (the same document, versions 2.0.0 and 2.1.0),
    whose axis may count from the last."""
    sized = [0.01, 0.02, 0.03, 0.04]
    rows = [
        {"name": "x", "y_scale": 0.02, "y_zero_point": 100, "output_dtype": "uint8"},
        {"name": "b", "y_scale": 0.05, "output_dtype": "int8"},
        {"name": "k", "y_scale": sized, "axis": -4, "output_dtype": "int8"},
        {"name": "kb", "y_scale": [0.0002] * 4, "y_zero_point": [0] * 4, "axis": 0, "output_dtype": "int32"},
        {"name": "c", "y_scale": 1.0, "output_dtype": "float8e4m3fn"},
    ]
    held = {"version": version, "encodings": rows}
    table = read(held, "aimet")
    assert table["x"].quant == QuantType(8, False, (0.02,), (100,)) and set(table) == {"x", "b", "k", "kb"}
    found = scales(recipe, held)
    assert (found["x"], found["b"], found["k"]) == ((0.02,), (0.05,), tuple(sized))
    many = {"name": "w", "axis": 1, "output_dtype": "int4"}
    parts = {"per_block_int_scale": [[1]], "per_channel_float_scale": [[0.1]]}
    meta = {"x": [[3, 5], [11, 9]], "x_scale": [0.001, 0.002], "axis": 0}
    for wrong, said in (
        ({**many, "y_scale": [[0.1, 0.2]], "block_size": 2}, "scales per block"),
        ({**many, "y_scale": meta, "block_size": 2}, "scales per block"),
        ({**many, "y_scale": {"x": 3, "x_scale": 0.1}}, "quantised themselves"),
        ({**many, **parts, "block_size": 2}, "scales per block"),
        ({**many, "y_scale": [0.1] * 5, "y_zero_point": [-0.5] * 5, "axis": 0}, "between two codes"),
    ):
        with pytest.raises(DataError, match=said):
            read({**held, "encodings": [*rows, wrong]}, "aimet")


def test_clip_ranges_of_mqbench(recipe: Path) -> None:
    """MODEL_clip_ranges.json of each back end (ModelTC/MQBench mqbench/deploy/deploy_linear.py). `bit` is the
    logarithm of the number of codes cut to a whole number: 7 for codes from -127 to 127."""
    ppl = {
        "x": {"step": 0.02, "zero_point": 100, "min": -2.0, "max": 3.1, "bit": 8, "type": "biased"},
        "k": {"step": [0.01] * 4, "zero_point": [0] * 4, "min": [-1.27] * 4, "max": [1.27] * 4, "bit": 7},
        "y": {"step": 0.5, "zero_point": 0, "min": -64.0, "max": 63.5, "bit": 8, "type": "biased"},
        "d": {"step": 0.1, "zero_point": 0, "min": 0.0, "max": 1.5, "bit": 4, "type": "biased"},
    }
    table = read({"ppl": ppl}, "mqbench")
    assert table["x"].quant == QuantType(8, False, (0.02,), (100,))
    assert table["k"].quant == QuantType(8, True, (0.01,) * 4, (0,) * 4, 0)
    assert table["y"].quant == QuantType(8, True, (0.5,)) and table["d"].quant == QuantType(4, False, (0.1,))
    assert scales(recipe, {"ppl": ppl})["x"] == (0.02,)
    table = read({"vitis": {"x": {"scale": 0.125}}}, "mqbench")
    assert table["x"].quant == QuantType(8, True, (0.125,))
    table = read({"tensorrt": {"blob_range": {"x": 2.5}}}, "mqbench")
    assert table["x"] == TensorEntry(-2.5, 2.5)
    sophgo = {"b_Relu": {"threshold": 3.0, "min": 0.0, "max": 3.0, "ori_name": "n1"}}
    table = read({"sophgo_tpu": sophgo, "w_qscheme": "", "a_qscheme": ""}, "mqbench")
    assert table["b_Relu"] == TensorEntry(0.0, 3.0)
    name, table = read_table(b"x: 2.5\nlayer1/conv out: 0.125\n", "m_clip_ranges.json")
    assert name == "mqbench" and table["layer1/conv out"] == TensorEntry(-0.125, 0.125)
    assert read_table(b"x 2.5\ny 1\n", "calibration.cache")[0] == "onnxruntime"


def test_clip_ranges_come_back_and_their_faults_are_told() -> None:
    whole = {
        "x": exact(QuantType(8, False, (0.02,), (100,)), "mqbench"),
        "y": exact(QuantType(16, True, (2.0**-12,)), "mqbench"),
        "w": exact(QuantType(4, True, (0.01, 0.5), (0, 0), 0), "mqbench", True),
    }
    text = EXCHANGE["mqbench"]().write({**whole, "r": TensorEntry(-1.0, 1.55)})
    name, back = read_table(text.encode(), "f")
    assert name == "mqbench" and {n: back[n] for n in whole} == whole
    assert back["r"].quant == QuantType(8, False, (pytest.approx(0.01),), (100,))
    for wrong, said in (
        (b'{"nnie": {"x": 1}}', "no known back end"), (b"x 2 3\n", "not a name and a number"),
        (b'{"ppl": {"x": {"step": 1}}}', "cannot be read as a table"),
    ):
        with pytest.raises(DataError, match=said):
            read_table(wrong, "f", "mqbench")
