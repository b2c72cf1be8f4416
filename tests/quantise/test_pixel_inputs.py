"""Pixels as codes: six normalisations, several first layers, bytes in; program, QDQ model and
float model beside each other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuflow.cli import main
from npuflow.input.pixels.pixels import Pixels, given
from npuflow.program.container import load_program
from npuflow.runner.simulated import ProgramRunner
from tests.networks.normalised import (
    FIRST,
    NORMALISATIONS,
    SIZE,
    laid_out,
    network,
    normalised,
    pictures,
    session,
)
from tests.tiers import often


def recipe(folder: Path, name: str, first: str, more: str = "", target: str = "edge-4t") -> Path:
    (folder / "net.onnx").write_bytes(network(first))
    np.save(folder / "calib.npy", pictures())
    scale, mean, std = NORMALISATIONS[name]
    layout = '[[data.steps]]\nlayout = "nchw"\n' if first != "nhwc" else ""
    numbers = f"normalize = {{ scale = {scale!r}, mean = {list(mean)}, std = {list(std)} }}"
    steps = f"[[data.steps]]\n{numbers}\n" if name != "raw" else ""
    text = (
        f'target = "{target}"\n[model]\npath = "net.onnx"\n[data]\nsource = '
        f'"calib.npy"\n{more}{steps}{layout}'
    )
    path = folder / "net.toml"
    path.write_text(text)
    return path


def built(folder: Path, path: Path, *stages: str) -> tuple[Path, Path]:
    for stage in stages or ("codegen", "qdq"):
        assert (
            main(
                [
                    "build",
                    str(path),
                    "--cache",
                    str(folder / "cache"),
                    "--out",
                    str(folder / "out"),
                    "--until",
                    stage,
                ]
            )
            == 0
        )
    found = [next(iter((folder / "out").rglob(f"*{end}")), Path()) for end in (".npu", ".qdq.onnx")]
    return found[0], found[1]


def exposed(path: Path, names: list[str]) -> bytes:
    model = onnx.load(str(path))
    known = {o.name for o in model.graph.output} | {i.name for i in model.graph.input}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("name", "first"),
    often(
        [
            *((name, "padded") for name in NORMALISATIONS),
            *(("imagenet", first) for first in FIRST[1:]),
            ("tf", "nhwc"),
        ],
        5,
    ),
)
def test_input_codes_are_the_bytes_in_program_and_qdq(name: str, first: str, tmp_path: Path) -> None:
    program, qdq = built(tmp_path, recipe(tmp_path, name, first))
    runner, images = ProgramRunner(program), laid_out(pictures(), first)
    (entry,) = runner.program.meta["inputs"]
    assert entry["dtype"] == "uint8" and entry["quant"]["scale"] == [1.0]
    made = runner.run_many([{"x": image[None]} for image in images], dump=True)
    codes = np.concatenate([one["x"] for one in made])
    np.testing.assert_array_equal(codes, images)
    # what the float model takes gives the same codes
    real = laid_out(normalised(pictures(), name), first)
    again = runner.run_many([{"x": image[None]} for image in real], dump=["x"])
    np.testing.assert_array_equal(np.concatenate([one["x"] for one in again]), images)

    coded = [v for v, e in runner.program.meta["values"].items() if e["quant"] and v in made[0] and v != "x"]
    run = session(exposed(qdq, coded))
    (port,) = run.get_inputs()
    assert port.name == "x" and port.type == "tensor(uint8)"
    names = [o.name for o in run.get_outputs() if o.name in coded or o.name == "y"]
    for one, image in zip(made, images, strict=True):
        found = dict(zip(names, run.run(names, {"x": image[None]}), strict=True))
        for value in set(names) & set(coded):
            assert np.abs(found[value].astype(int) - one[value].astype(int)).max() <= 1, value
        step = runner.program.meta["outputs"][0]["quant"] or runner.program.meta["steps"][-1]["quant"]
        assert np.abs(found["y"] - one["y"]).max() <= 1.01 * step["scale"][0]
    # and both are the float network's answer, up to eight bits
    plain = session(network(first))
    truth = np.concatenate([plain.run(None, {"x": image[None]})[0] for image in real])
    error = np.concatenate([one["y"] for one in made]) - truth
    assert 10 * np.log10((truth**2).mean() / (error**2).mean()) > 26


@pytest.mark.parametrize(("reader", "settings"), often([("Sigmoid", {}), ("LRN", {"size": 3})], 2))
def test_layers_that_take_no_scale_get_a_layer_that_normalises(
    reader: str, settings: dict[str, int], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    weight = numpy_helper.from_array(rng.normal(size=(4, 3, 1, 1)).astype(np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node(reader, ["x"], ["s"], **settings),
            helper.make_node("Conv", ["s", "w"], ["a"]),
            helper.make_node("Conv", ["x", "w"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["y"]),
        ],
        "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, SIZE, SIZE])], [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = recipe(tmp_path, "imagenet", "padded")
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    program, _ = built(tmp_path, path, "simulate")
    images, runner = laid_out(pictures(), "padded"), ProgramRunner(program)
    made = np.concatenate([one["y"] for one in runner.run_many([{"x": image[None]} for image in images])])
    plain = session(model.SerializeToString())
    real = laid_out(normalised(pictures(), "imagenet"), "padded")
    truth = np.concatenate([plain.run(None, {"x": image[None]})[0] for image in real])
    assert 10 * np.log10((truth**2).mean() / ((made - truth) ** 2).mean()) > 26


def test_the_key_switches_it_off(tmp_path: Path) -> None:
    program, _ = built(tmp_path, recipe(tmp_path, "half", "padded", "fold_normalize = false\n"), "codegen")
    (entry,) = load_program(program).meta["inputs"]
    assert entry["dtype"] == "float32" and "pixels" not in entry


@pytest.mark.parametrize("name", often(["half", "imagenet"], 2))
def test_signed_codes_without_zero_point_hold_pixels_less_128(name: str, tmp_path: Path) -> None:
    program, qdq = built(tmp_path, recipe(tmp_path, name, "padded", target="edge-pow2"), "simulate", "qdq")
    runner, images = ProgramRunner(program), laid_out(pictures(), "padded")
    assert runner.program.meta["inputs"][0]["dtype"] == "int8"
    made = runner.run_many([{"x": image[None]} for image in images], dump=["x"])
    shifted = (images.astype(int) - 128).astype(np.int8)
    np.testing.assert_array_equal(np.concatenate([one["x"] for one in made]), shifted)
    again = runner.run_many([{"x": image[None]} for image in shifted], dump=["x"])
    np.testing.assert_array_equal(np.concatenate([one["x"] for one in again]), shifted)
    assert session(qdq.read_bytes()).get_inputs()[0].type == "tensor(int8)"


def test_what_an_input_of_pixels_takes() -> None:
    half = Pixels((1 / 127.5,), (-1.0,), None, 128)
    every = np.arange(256, dtype=np.uint8)
    real = ((every.astype(np.float32) - np.float32(127.5)) / np.float32(127.5)).astype(np.float32)
    for array in (every, every.astype(np.int64), real):
        np.testing.assert_array_equal(given(array, half, "uint8", "x"), every)
    np.testing.assert_array_equal(given(every, half, "int8", "x"), every.astype(int) - 128)
    np.testing.assert_array_equal(given(real, half, "float32", "x"), every.astype(np.float32) - 128)
    with pytest.raises(Exception, match="outside the range of pixels"):
        given(every.astype(np.float32), half, "uint8", "x")
    with pytest.raises(Exception, match=r"takes pixels 0\.\.255"):
        given(np.array([300]), half, "uint8", "x")


def test_another_deviation_leaves_the_samples_as_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path, "half", "padded")
    built(tmp_path, path, "codegen")
    path.write_text(path.read_text().replace("std = [127.5]", "std = [120.0]"))
    capfd.readouterr()
    assert main(["plan", str(path), "--cache", str(tmp_path / "cache"), "--json"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert any('"samples"' in line and '"hit"' in line for line in lines)
    assert not any('"samples"' in line and '"run"' in line for line in lines)
    assert any('"pixels"' in line for line in lines)


def test_run_takes_bytes_and_real_numbers_of_program_and_qdq(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, qdq = built(tmp_path, recipe(tmp_path, "imagenet", "padded"))
    images = laid_out(pictures(), "padded")
    np.save(tmp_path / "bytes.npy", images)
    np.save(tmp_path / "real.npy", laid_out(normalised(pictures(), "imagenet"), "padded"))
    found = []
    for model in (program, qdq):
        for kind_ in ("bytes", "real"):
            out = tmp_path / f"{model.suffixes[-1]}-{kind_}.npz"
            assert main(["run", str(model), str(tmp_path / f"{kind_}.npy"), "-o", str(out)]) == 0
            found.append(np.load(out)["y"])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], found[3])
    assert 10 * np.log10((found[0] ** 2).mean() / max(((found[0] - found[2]) ** 2).mean(), 1e-12)) > 40
    slots = tmp_path / "in.bin"
    assert main(["raw", "pack", str(program), str(tmp_path / "bytes.npy"), "-o", str(slots)]) == 0
    one = np.frombuffer(slots.read_bytes(), np.uint8).reshape(len(images), -1)[:, : images[0].size]
    np.testing.assert_array_equal(one, images.reshape(len(images), -1))
    capfd.readouterr()
    assert (
        main(["raw", "pack", str(program), str(tmp_path / "bytes.npy"), "-o", str(slots), "--channels-last"])
        == 2
    )
    np.save(tmp_path / "last.npy", pictures())
    assert (
        main(["raw", "pack", str(program), str(tmp_path / "last.npy"), "-o", str(slots), "--channels-last"])
        == 0
    )
    one = np.frombuffer(slots.read_bytes(), np.uint8).reshape(len(images), -1)[:, : images[0].size]
    np.testing.assert_array_equal(one, images.reshape(len(images), -1))


def test_a_whole_build_is_exact_and_prints_the_border(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = recipe(tmp_path, "imagenet", "padded")
    _, mean, std = NORMALISATIONS["half"]
    other = f"[[evaluate.steps]]\nnormalize = {{ mean = {list(mean)}, std = {list(std)} }}\n"
    other += '[[evaluate.steps]]\nlayout = "nchw"\n'
    whole = path.read_text() + '[evaluate]\nsource = "calib.npy"\nmetric = "sqnr"\n'
    figures = []
    for steps in ("", other):                                  # its own steps: their way back to pixels
        path.write_text(whole + steps)
        capfd.readouterr()
        assert (
            main(
                ["build", str(path), "-v", "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")]
            )
            == 0
        )
        text = capfd.readouterr()
        assert "border_codes" in text.out + text.err
        assert "different 0" in text.out + text.err
        assert "does not compute what the model does" not in text.out + text.err
        assert re.search(r"rewrite_check .* largest_error \S*e-0[678]", text.err), text.err
        assert main(["eval", str(path), "--cache", str(tmp_path / "cache"), "--json"]) == 0
        figures.append(json.loads(capfd.readouterr().out.splitlines()[-1])["figures"]["sqnr_db"])
        for end in (".npu", ".qdq.onnx"):
            given_ = str(next((tmp_path / "out").rglob(f"*{end}")))
            assert (
                main(["eval", str(path), "--cache", str(tmp_path / "cache"), "--json", "--program", given_])
                == 0
            )
            again = json.loads(capfd.readouterr().out.splitlines()[-1])["figures"]["sqnr_db"]
            assert abs(again - figures[-1]) < 1.0
    assert figures[0] > 26 and figures[1] > 20


@pytest.mark.slow
def test_a_model_that_states_its_codes_keeps_them(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    _, qdq = built(made, recipe(made, "imagenet", "padded", "fold_normalize = false\n"))
    path = recipe(tmp_path, "imagenet", "padded")
    (tmp_path / "net.onnx").write_bytes(qdq.read_bytes())
    program, _ = built(tmp_path, path)
    images = laid_out(pictures(), "padded")
    real = laid_out(normalised(pictures(), "imagenet"), "padded")
    found = np.concatenate(
        [r["y"] for r in ProgramRunner(program).run_many([{"x": image[None]} for image in images])]
    )
    own = session(qdq.read_bytes())
    truth = np.concatenate([own.run(None, {"x": image[None]})[0] for image in real])
    assert 10 * np.log10((truth**2).mean() / ((found - truth) ** 2).mean()) > 30


def test_a_model_of_float16_takes_pixels_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = onnx.load_from_string(network("padded"))
    for port in (model.graph.input[0], model.graph.output[0]):
        port.type.tensor_type.elem_type = TensorProto.FLOAT16
    for one in model.graph.initializer:
        one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one).astype(np.float16), one.name))
    path = recipe(tmp_path, "imagenet", "padded")
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    program, _ = built(tmp_path, path, "codegen", "rewrite_check")
    assert "does not compute what the model does" not in capfd.readouterr().err
    assert load_program(program).meta["inputs"][0]["dtype"] == "uint8"
    images = laid_out(pictures(), "padded")
    found = np.concatenate(
        [one["y"] for one in ProgramRunner(program).run_many([{"x": image[None]} for image in images])]
    )
    real = laid_out(normalised(pictures(), "imagenet"), "padded")
    truth = np.concatenate([session(network("padded")).run(None, {"x": image[None]})[0] for image in real])
    assert 10 * np.log10((truth**2).mean() / ((found - truth) ** 2).mean()) > 26
