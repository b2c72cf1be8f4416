"""`npuflow new`: recipes for many kinds of inputs and data, which plan and build without an edit."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commandline import Ran
from onnx import TensorProto, helper
from PIL import Image

from npuflow.cli import main
from tests.tiers import often

Inputs = dict[str, tuple[int, list[int | str]]]
U8, F32, I64 = np.uint8, np.float32, np.int64
rng = np.random.default_rng(7)


def model(path: Path, inputs: Inputs, classes: int = 10) -> Path:
    """A net that takes these inputs: each summed to a number, and their sum spread over the classes."""
    value, nodes, sums = helper.make_tensor_value_info, [], []
    for i, name in enumerate(inputs):
        nodes.append(helper.make_node("Cast", [name], [f"c{i}"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Flatten", [f"c{i}"], [f"f{i}"]))
        nodes.append(helper.make_node("ReduceMean", [f"f{i}"], [f"m{i}"], axes=[1], keepdims=1))
        sums.append(f"m{i}")
    total = sums[0]
    for i, other in enumerate(sums[1:]):
        nodes.append(helper.make_node("Add", [total, other], [f"t{i}"]))
        total = f"t{i}"
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, classes], np.linspace(-1, 1, classes).tolist())
    nodes.append(helper.make_node("MatMul", [total, "w"], ["scores"]))
    ports = [value(name, kind, shape) for name, (kind, shape) in inputs.items()]
    graph = helper.make_graph(nodes, "g", ports, [value("scores", TensorProto.FLOAT, [1, classes])], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    monkeypatch.delenv("NPUFLOW_STAGES", raising=False)
    monkeypatch.setenv("NPUFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Ran:
        capfd.readouterr()
        code = main(list(args))
        out, err = capfd.readouterr()
        assert "Traceback" not in err, err
        return Ran(code, out, err)

    return run


def picture(path: Path, size: tuple[int, int], grey: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (*size, *(() if grey else (3,))), U8)).save(path)


def pictures(folder: Path) -> None:
    for i in range(4):
        picture(folder / f"calib/{i}.png", (40, 30 + i), grey=i % 2 == 0)
        picture(folder / f"eval/{i}.png", (32, 32))


def saved(**arrays: Any) -> Callable[[Path], None]:
    """A folder with calib.npz (arrays without a prefix) and eval.npz (those called eval_*)."""

    def write(folder: Path) -> None:
        mine = {k: v for k, v in arrays.items() if not k.startswith("eval_")}
        np.savez(folder / "calib.npz", **mine)
        held_out = {k.removeprefix("eval_"): v for k, v in arrays.items() if k.startswith("eval_")}
        if held_out:
            np.savez(folder / "eval.npz", **held_out)

    return write


def single_files(folder: Path) -> None:
    for i in range(4):
        np.save(folder / f"{i}.npy", rng.normal(size=(3, 8, 8)).astype(F32))


def row_files(folder: Path) -> None:
    for i in range(2):
        np.save(folder / f"{i}.npy", rng.normal(size=(5, 1, 3, 8, 8)).astype(F32))


def u8(*shape: int) -> Any:
    return rng.integers(0, 256, shape, U8)


def f32(*shape: int) -> Any:
    return rng.normal(size=shape).astype(F32)


X = TensorProto.FLOAT
CASES: dict[str, tuple[Inputs, list[str], Callable[[Path], None], dict[str, Any], dict[str, Any] | None]] = {
    # inputs, flags, data -> what [data] must hold, and [evaluate] (None: there is none)
    "u8 as the input has it": (
        {"x": (X, [1, 3, 8, 8])},
        [],
        saved(x=u8(6, 3, 8, 8)),
        {"steps": None, "arrays": None},
        None,
    ),
    "another name": (
        {"x": (X, ["N", 1, 8, 8])},
        [],
        saved(images=u8(6, 8, 8), labels=u8(6)),
        {"arrays": {"x": "images"}},
        None,
    ),
    "grey to rgb, NHWC": (
        {"x": (X, [1, 8, 8, 3])},
        [],
        saved(x=u8(6, 8, 8, 1)),
        {"steps": [{"channels": "rgb"}]},
        None,
    ),
    "NHWC data, NCHW model": (
        {"x": (X, [1, 3, 8, 8])},
        [],
        saved(x=u8(6, 8, 8, 3)),
        {"steps": [{"layout": "nchw"}]},
        None,
    ),
    "NCHW data, NHWC model, another size": (
        {"x": (X, [1, 8, 8, 3])},
        [],
        saved(y=u8(6, 3, 12, 12)),
        {"arrays": {"x": "y"}, "steps": [{"transpose": [1, 2, 0]}, {"resize": [8, 8]}]},
        None,
    ),
    "evaluation data in grey": (
        {"x": (X, [1, 3, 8, 8])},
        [],
        saved(x=u8(6, 3, 8, 8), eval_x=u8(4, 1, 8, 8)),
        {"steps": None},
        {"steps": [{"transpose": [1, 2, 0]}, {"channels": "rgb"}, {"layout": "nchw"}]},
    ),
    "labels that are classes": (
        {"x": (X, [1, 4])},
        [],
        saved(x=f32(6, 4), eval_x=f32(5, 4), eval_labels=np.arange(5)),
        {"arrays": None},
        {"arrays": {"x": "x"}, "label": "labels", "metric": "top1"},
    ),
    "labels beyond the classes": (
        {"x": (X, [1, 4])},
        [],
        saved(x=f32(6, 4), eval_x=f32(5, 4), eval_labels=np.arange(5) + 10),
        {},
        {"metric": None},
    ),
    "an evaluation of another task": (
        {"x": (X, [1, 4])},
        [],
        saved(x=f32(6, 4), eval_audio=f32(99)),
        {},
        None,
    ),
    "several inputs, one with all its axes": (
        {"a": (X, [1, 6]), "state": (X, [2, 1, 3])},
        [],
        saved(a=f32(5, 6), state=np.float16(f32(5, 2, 1, 3))),
        {"arrays": None, "steps": None},
        None,
    ),
    "integers, names with other signs": (
        {"input_ids:0": (TensorProto.INT64, [1, "seq"]), "mask": (TensorProto.INT64, [1, "seq"])},
        ["--shape", "input_ids:0=1,7", "--shape", "mask=1,7"],
        saved(Input_ids=rng.integers(0, 9, (5, 7)), mask=np.ones((5, 7), I64)),
        {"arrays": {"input_ids:0": "Input_ids", "mask": "mask"}},
        None,
    ),
    "one sample a file": ({"x": (X, [1, 3, 8, 8])}, [], single_files, {"rows": False, "steps": None}, None),
    "rows with a batch axis": ({"x": (X, [1, 3, 8, 8])}, [], row_files, {"rows": None, "steps": None}, None),
    "pictures": (
        {"x": (X, [1, 3, 16, 16])},
        [],
        pictures,
        {"steps": [{"resize": [16, 16]}]},
        {"steps": None, "metric": None},
    ),
    "pictures, NHWC": (
        {"x": (X, [1, 16, 16, 3])},
        [],
        pictures,
        {"steps": [{"resize": [16, 16]}, {"layout": "nhwc"}]},
        {},
    ),
    "pictures for one channel": (
        {"x": (X, [1, 1, "h", "w"])},
        ["--shape", "x=1,1,16,12"],
        pictures,
        {"steps": [{"resize": [16, 12]}, {"channels": "grey"}]},
        {},
    ),
}


@pytest.mark.parametrize("name", often(CASES, 4))
def test_a_recipe_that_plans_and_builds_without_an_edit(
    name: str, tmp_path: Path, call: Callable[..., Ran]
) -> None:
    inputs, flags, write, data, evaluation = CASES[name]
    net = model(tmp_path / "net.onnx", inputs)
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    (tmp_path / "sub").mkdir()
    ran = call("new", str(net), *flags, "--data", "data", "-o", "sub/net.toml")
    assert ran.code == 0, ran.err
    recipe = tomllib.loads((tmp_path / "sub/net.toml").read_text())
    for table, wanted in (("data", data), ("evaluate", evaluation)):
        assert (table in recipe) == (wanted is not None)
        for key, value in (wanted or {}).items():
            assert recipe[table].get(key) == value, (table, key)
    assert call("plan", "sub/net.toml").code == 0
    until = (
        "evaluate"
        if (evaluation or {}).get("metric")
        else "input_check"
        if evaluation is not None
        else "statistics"
    )
    built = call("build", "sub/net.toml", "--until", until, "--json")  # what reads data; some to the end
    assert built.code == 0, built.err


def test_outputs_that_are_no_scores_are_judged_by_their_noise(
    tmp_path: Path, call: Callable[..., Ran]
) -> None:
    """The place of the largest coordinate or pixel is no answer."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 4, 4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, ir_version=8), str(tmp_path / "net.onnx"))
    (tmp_path / "data").mkdir()
    saved(x=f32(6, 2, 4, 4), eval_x=f32(4, 2, 4, 4))(tmp_path / "data")
    assert call("new", str(tmp_path / "net.onnx"), "--data", "data").code == 0
    assert tomllib.loads((tmp_path / "net.toml").read_text())["evaluate"]["metric"] == "sqnr"


def test_what_no_file_says_is_a_line_to_look_at(tmp_path: Path, call: Callable[..., Ran]) -> None:
    net = model(tmp_path / "net.onnx", {"x": (X, [1, 3, 8, 8])})
    pictures(tmp_path / "data")
    ran = call("new", str(net), "--data", "data")
    assert "1 line with CHECK to look at" in ran.out
    text = (tmp_path / "net.toml").read_text()
    at = text.index("# CHECK: ")
    assert "uint8 in 0..255" in text[at:].splitlines()[0]
    reported = "\n".join(line.removeprefix("# ") for line in text[at:].splitlines()[2:4])
    assert tomllib.loads(reported) == {"data": {"steps": [{"normalize": {"mean": [127.5], "std": [127.5]}}]}}
    lines = text.splitlines()
    start = lines.index("# [[data.steps]]", lines.index(text[at:].splitlines()[0]))
    lines[start : start + 2] = [line.removeprefix("# ") for line in lines[start : start + 2]]
    (tmp_path / "net.toml").write_text("\n".join(lines))
    assert (
        call("build", "net.toml", "--until", "statistics").code == 0
    )  # uncommented where it stands, it works


def test_free_dimensions_are_one_error_with_the_flags_to_write(
    tmp_path: Path, call: Callable[..., Ran]
) -> None:
    inputs: Inputs = {
        "x": (X, ["p2o.0", 3, "?", "p2o.1"]),
        "y": (X, ["N", 4]),
        "z": (TensorProto.INT64, [1, "seq len"]),
    }
    net = model(tmp_path / "net.onnx", inputs)
    ran = call("new", str(net))
    said = " ".join(ran.err.split())
    assert ran.code == 2 and not (tmp_path / "net.toml").exists()
    assert (
        "x is float[p2o.0, 3, ?, p2o.1]: dimensions 0 (p2o.0), 2 (?), 3 (p2o.1); "
        "z is int64[1, seq len]: dimension 1"
        in said
    )
    assert "--shape x=1,3,?,? --shape z=1,?, with a size for every ?" in said
    np.savez(tmp_path / "calib.npz", x=u8(5, 3, 8, 6), y=f32(5, 4), z=np.ones((5, 9), I64))
    said = " ".join(call("new", str(net), "--data", "calib.npz").err.split())
    assert "--shape x=1,3,8,6 --shape z=1,9, as the stored samples are" in said
    assert call("new", str(net), "--data", "calib.npz", "--shape", "x=1,3,8,6", "--shape", "z=1,9").code == 0
    recipe = tomllib.loads((tmp_path / "net.toml").read_text())
    assert recipe["model"]["inputs"] == {"x": [1, 3, 8, 6], "y": [1, 4], "z": [1, 9]}


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("x", "is not NAME=D,D"),
        ("q=1", 'no input "q"'),
        ("x=1,a", "whole numbers"),
        ("x=1,4,8,8", "declares float[1, 3, h, w]"),
        ("x=1,3,8", "declares float[1, 3, h, w]"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(
    flag: str, said: str, tmp_path: Path, call: Callable[..., Ran]
) -> None:
    ran = call("new", str(model(tmp_path / "net.onnx", {"x": (X, [1, 3, "h", "w"])})), "--shape", flag)
    assert ran.code == 2 and said in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (saved(x=f32(5, 13, 40)), 'do not fit the model input "x"'),
        (saved(a=f32(5, 7), b=f32(5, 9)), "no array for the model input x"),
        (lambda folder: None, "holds no samples"),
    ],
)
def test_data_that_do_not_fit_are_said_and_nothing_is_written(
    write: Callable[[Path], None], said: str, tmp_path: Path, call: Callable[..., Ran]
) -> None:
    net = model(tmp_path / "net.onnx", {"x": (X, [1, 3, 8, 8])})
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    ran = call("new", str(net), "--data", "data")
    assert ran.code == 2 and said in " ".join(ran.err.split()) and not (tmp_path / "net.toml").exists()
    assert call("new", str(net), "--data", "nosuch").code == 2


def test_a_size_that_is_given_once_holds_wherever_the_model_has_its_name(
    tmp_path: Path, call: Callable[..., Ran]
) -> None:
    """States have the batch in the middle, and one edge has a distance: sizes must not contradict."""
    x, states, batch = (X, ["batch", "t"]), (X, [1, "batch", 3]), (X, ["batch", 4])
    net = model(tmp_path / "net.onnx", {"x": x, "states": states, "wanted": batch})
    assert call("new", str(net), "--shape", "x=1,5").code == 0
    recipe = tomllib.loads((tmp_path / "net.toml").read_text())
    assert recipe["model"]["inputs"] == {"x": [1, 5], "states": [1, 1, 3], "wanted": [1, 4]}
    assert call("inspect", "net.toml").code == 0
    net = model(tmp_path / "edges.onnx", {"edges": (X, [2, "n"]), "far": (X, ["n", 1])})
    assert call("new", str(net), "--shape", "edges=2,9").code == 0
    recipe = tomllib.loads((tmp_path / "edges.toml").read_text())
    assert recipe["model"]["inputs"] == {"edges": [2, 9], "far": [9, 1]}


@pytest.mark.parametrize("shape", often([((8, 5, 1, 6),), ((8, 1, 6),)], 2))
def test_sequences_for_a_model_with_states(
    tmp_path: Path, call: Callable[..., Ran], shape: tuple[int, ...]
) -> None:
    """A TFLite file with variables is fed clips of any number of steps, or steps alone."""
    pytest.importorskip("ai_edge_litert")
    from tests.frontends.test_tflite_variables import accumulating

    (tmp_path / "sum.tflite").write_bytes(accumulating(False, "zero"))
    np.savez(tmp_path / "clips.npz", sound=rng.normal(size=shape).astype(F32))
    ran = call("new", "sum.tflite", "--data", "clips.npz")
    assert ran.code == 0, ran.err
    recipe = tomllib.loads((tmp_path / "sum.toml").read_text())
    assert recipe["data"] == {"source": "clips.npz", "arrays": {"x": "sound"}}
    assert f"8 samples: x float32{list(shape[1:])}" in (tmp_path / "sum.toml").read_text()
    assert call("plan", "sum.toml").code == 0
    np.savez(tmp_path / "clips.npz", sound=rng.normal(size=(8, 5, 1, 7)).astype(F32))
    assert "NF-DATA-04" in call("new", "sum.tflite", "--data", "clips.npz", "-o", "other.toml").err


def test_without_data_the_recipe_builds_on_noise(tmp_path: Path, call: Callable[..., Ran]) -> None:
    assert call("new", str(model(tmp_path / "net.onnx", {"x": (X, ["N", 3, 8, 8])}))).code == 0
    assert call("build", "net.toml", "--until", "codegen").code == 0


def test_a_data_function_is_named_from_the_recipes_folder(tmp_path: Path, call: Callable[..., Ran]) -> None:
    net = model(tmp_path / "net.onnx", {"x": (X, [1, 4])})
    text = (
        "import numpy as np\ndef some():\n    yield from ((str(i), np.ones(4, 'f4') * i) for i in range(4))\n"
    )
    (tmp_path / "feed_new.py").write_text(text)
    (tmp_path / "sub").mkdir()
    assert call("new", str(net), "--data", "python:feed_new.py:some", "-o", "sub/net.toml").code == 0
    recipe = tomllib.loads((tmp_path / "sub/net.toml").read_text())
    assert recipe["data"]["source"] == "python:../feed_new.py:some"
    assert call("build", "sub/net.toml", "--until", "statistics").code == 0
    assert call("build", "sub/net.toml", "--until", "statistics", "--json").lines[-1]["ran"] == 0


def test_a_file_of_another_format_is_told_what_is_read(tmp_path: Path, call: Callable[..., Ran]) -> None:
    (tmp_path / "net.caffemodel").write_bytes(bytes(range(64)))
    ran = call("new", "net.caffemodel")
    assert ran.code == 2 and "NF-MODEL-035" in ran.err and 'name the network, "net.prototxt"' in ran.err
    (tmp_path / "net.weights").write_bytes(bytes(range(64)))
    ran = call("new", "net.weights")
    assert ran.code == 2 and "NF-MODEL-035" in ran.err
    known = "known are .gguf, .h5, .hdf5, .json, .keras, .npg, .onnx, .pb, .prototxt, .pt, .pt2, .py, .tflite"
    assert known in ran.err and "others are exported to ONNX first" in ran.err
    assert not (tmp_path / "net.toml").exists()
