"""run, compare and disasm on a real program: npy, npz and pictures in, npz out;
against its ONNX and itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from commandline import Ran

from npuflow.base.errors import DataError, ModelError, UsageError, Where
from npuflow.cli import main
from npuflow.cli._build import distinct
from npuflow.cli._errors import lines
from tests.cli.test_rebuild import EXAMPLE

MODEL = str(EXAMPLE / "fashion.onnx")


@pytest.fixture(scope="module")
def built(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fashion example, compiled, with its QDQ model and an input."""
    folder = shutil.copytree(compiled, tmp_path_factory.mktemp("net"), dirs_exist_ok=True)
    with np.load(EXAMPLE / "calib.npz") as held:
        images = held[held.files[0]][:2].reshape(2, 28, 28)
    np.save(folder / "two.npy", ((images[:, None] - 72.94) / 90.02).astype(np.float32))
    from PIL import Image

    Image.fromarray(images[0]).save(folder / "image.png")
    return folder


def product(built: Path, suffix: str) -> str:
    return str(next(p for p in built.rglob(f"*{suffix}") if "cache" not in p.parts))


def call(capfd: pytest.CaptureFixture[str], *args: str) -> Ran:
    capfd.readouterr()
    code = main(list(args))
    out, err = capfd.readouterr()
    assert "Traceback" not in err, err
    return Ran(code, out, err)


def test_an_array_under_another_name_is_not_an_input(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The one array of an npz is an input's by its name, or by having none."""
    program, image = product(built, ".npu"), np.load(built / "two.npy")
    files = {n: str(tmp_path / f"{n}.npz") for n in ("wrong", "several", "unnamed", "none", "outputs")}
    np.savez(files["wrong"], picture=image)
    np.savez(files["several"], picture=image, label=np.zeros(2))
    np.savez(files["unnamed"], image)
    np.savez(files["none"], image=image[:0])
    for name, held in (("wrong", "picture"), ("several", "picture, label")):
        ran = call(capfd, "run", program, files[name], "-o", files["outputs"])
        assert ran.code == 2 and "NF-DATA-231" in ran.err and '"image"' in ran.err
        assert f"named {held}" in ran.err and not Path(files["outputs"]).exists()
    ran = call(capfd, "run", program, files["none"], "-o", files["outputs"])
    assert ran.code == 2 and "NF-DATA-232" in ran.err and "none.npz holds no sample" in ran.err
    assert call(capfd, "run", program, files["unnamed"], "-o", files["outputs"]).code == 0


def test_nan_in_an_input_is_noted_once_or_refused(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, image = product(built, ".npu"), np.load(built / "two.npy").astype(np.float32) / 255
    image[1, ..., 3] = np.nan
    np.save(tmp_path / "nan.npy", np.concatenate([image] * 6))
    words = ("run", program, str(tmp_path / "nan.npy"), "-o", str(tmp_path / "out.npz"))
    ran = call(capfd, *words)
    assert ran.code == 0 and ran.err.count("holds NaN") == 1 and "--nan refuse" in ran.err
    ran = call(capfd, *words, "--nan", "refuse")
    assert ran.code == 2 and "NF-DATA-230" in ran.err
    assert "NaN" not in call(capfd, *words, "--nan", "allow").err


def test_run_takes_arrays_and_pictures(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = product(built, ".npu")
    one, all_, picture = (tmp_path / n for n in ("one.npz", "all.npz", "picture.npz"))
    assert call(capfd, "run", program, str(built / "two.npy"), "-o", str(one)).code == 0
    np.savez(tmp_path / "in.npz", image=np.load(built / "two.npy"))
    assert call(capfd, "run", program, str(tmp_path / "in.npz"), "-o", str(all_), "--dump-all").code == 0
    assert (
        call(capfd, "run", program, str(built / "image.png"), "-o", str(picture), "--json").lines[0][
            "samples"
        ]
        == 1
    )
    exact = tmp_path / "exact.npz"
    simulated = ["--exact", "simulator", "-o", str(exact)]
    assert call(capfd, "run", program, str(built / "two.npy"), *simulated).code == 0
    first, everything = np.load(one), np.load(all_)
    for name, array in np.load(exact).items():
        np.testing.assert_array_equal(first[name], array)
    assert len(everything.files) > len(first.files) + 3
    for name in first.files:
        assert first[name].shape[0] == 2
        np.testing.assert_array_equal(first[name], everything[name])


def test_compare_finds_the_first_divergence(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, qdq, inputs = product(built, ".npu"), product(built, ".qdq.onnx"), str(built / "two.npy")
    assert call(capfd, "compare", program, program, "-i", inputs, "--all").code == 0
    against = call(capfd, "compare", program, MODEL, "-i", inputs, "--json")
    assert against.code == 1 and 10 < float(against.lines[0]["sqnr"]) < 80
    close = call(capfd, "compare", program, qdq, "-i", inputs, "--json")
    # 18.1 dB with saturating kernels; none where the codes are equal
    level = close.lines[0]["sqnr"]
    assert (level is None or float(level) > 20) and "session.disable_quant_qdq" in close.err
    a, b = {"x": np.arange(4), "y": np.ones(3)}, {"x": np.arange(4), "y": np.array([1.0, 2, 1])}
    np.savez(tmp_path / "a.npz", **a)
    np.savez(tmp_path / "b.npz", **b)
    ran = call(capfd, "compare", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"))
    assert ran.code == 1 and 'first divergence: "y"' in ran.out and "1 of 2 tensors agree" in ran.out


def test_pictures_go_through_the_steps_stored_with_the_program(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, picture = product(built, ".npu"), str(built / "image.png")
    by_picture, by_array = tmp_path / "picture.npz", tmp_path / "array.npz"
    ran = call(capfd, "run", program, picture, "-o", str(by_picture))
    assert (
        ran.code == 0
        and "pictures are prepared by the recipe's steps: " in ran.err
        and "normalize" in ran.err
    )
    assert call(capfd, "run", program, str(built / "two.npy"), "-o", str(by_array)).err == ""
    picture_out, array_out = np.load(by_picture), np.load(by_array)
    for name in picture_out.files:
        np.testing.assert_array_equal(picture_out[name], array_out[name][:1])
    # the model gets what the program gets
    against = call(capfd, "compare", program, MODEL, "-i", picture, "--json")
    assert float(against.lines[0]["sqnr"]) > 10 and "recipe's steps" in against.err
    bare = call(capfd, "run", MODEL, picture, "-o", str(tmp_path / "bare.npz"))
    assert bare.code == 0 and "0..255" in bare.err
    # so does a quantised model, whose input is pixels
    quantised = call(capfd, "run", product(built, ".qdq.onnx"), picture, "-o", str(tmp_path / "qdq.npz"))
    assert quantised.code == 0, quantised.err


def test_raw_mode_prepares_pictures_and_takes_integers_as_codes(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, picture = product(built, ".npu"), str(built / "image.png")
    first, second = tmp_path / "a.bin", tmp_path / "b.bin"
    ran = call(capfd, "raw", "pack", program, picture, "-o", str(first))
    assert ran.code == 0 and "pictures are prepared by the recipe's steps: " in ran.err
    np.save(tmp_path / "one.npy", np.load(built / "two.npy")[:1])
    assert call(capfd, "raw", "pack", program, str(tmp_path / "one.npy"), "-o", str(second)).code == 0
    assert first.read_bytes() == second.read_bytes()
    assert call(capfd, "raw", "pack", program, picture, "--channels-last", "-o", str(second)).code == 2
    slot = next(s for s in call(capfd, "raw", "slots", program).lines if s["way"] == "input")
    codes = np.frombuffer(first.read_bytes()[: slot["size"]], slot["dtype"]).reshape(slot["shape"])
    np.savez(tmp_path / "codes.npz", image=codes)
    assert call(capfd, "raw", "pack", program, str(tmp_path / "codes.npz"), "-o", str(second)).code == 0
    assert first.read_bytes() == second.read_bytes()
    np.savez(tmp_path / "far.npz", image=codes.astype(np.int32) + 1000)
    ran = call(capfd, "raw", "pack", program, str(tmp_path / "far.npz"), "-o", str(second))
    assert ran.code == 2 and "takes pixels 0..255" in ran.err


@pytest.mark.parametrize(
    "array", [np.full((1, 1, 28, 28), "a"), np.zeros((1, 1, 28, 28), np.complex64)], ids=["text", "complex"]
)
def test_an_input_of_no_numbers_is_refused(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], array: np.ndarray
) -> None:
    np.savez(tmp_path / "in.npz", image=array)
    ran = call(capfd, "run", product(built, ".npu"), str(tmp_path / "in.npz"), "-o", str(tmp_path / "o.npz"))
    assert ran.code == 2 and f"holds {array.dtype}; the model expects float32" in ran.err


def test_a_picture_needs_an_input_of_fixed_size(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import onnx
    from onnx import parser
    from PIL import Image

    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu (x) }'
    )
    onnx.save_model(parser.parse_model(text), str(tmp_path / "free.onnx"))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    ran = call(
        capfd, "run", str(tmp_path / "free.onnx"), str(tmp_path / "a.png"), "-o", str(tmp_path / "o.npz")
    )
    assert ran.code == 2 and "no fixed size" in ran.err and "bind the dimension" in ran.err


def test_disasm_lists_a_nodes_commands(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = product(built, ".npu")
    whole = call(capfd, "disasm", program)
    heads = [line[2:].rsplit(" (", 1)[0] for line in whole.out.splitlines() if line.startswith("; ")]
    part = call(capfd, "disasm", program, "--node", heads[0])
    assert whole.code == part.code == 0 and "CONV" in whole.out
    assert 1 < len(part.out.splitlines()) < len(whole.out.splitlines()) and part.out.startswith(
        f"; {heads[0]} ("
    )
    assert call(capfd, "disasm", program, "--node", "nothing").code == 2


def test_a_place_is_named_for_what_it_is() -> None:
    program = lines(ModelError("not a program", where=Where(file="a.onnx"), code="NF-PROGRAM-003"))
    assert program == ["NF-PROGRAM-003  not a program", "  file     a.onnx"]
    option = lines(UsageError("unknown table [x]", where=Where(file="--set x.y=1", key="x.y")))
    assert option[1] == "  option   --set x.y=1  x.y"
    assert lines(UsageError("no", where=Where(file="a.toml", line=3, key="b")))[1] == "  recipe   a.toml:3  b"


def test_equal_faults_of_two_stages_are_told_once() -> None:
    faults = [
        DataError("no data", where=Where(stage=stage, line=4)) for stage in ("evaluate", "evaluation_inputs")
    ]
    other = DataError("no data", where=Where(stage="samples", line=9))
    assert distinct([*faults, other]) == [faults[0], other]


def changed_bias(built: Path, folder: Path) -> tuple[Path, str]:
    """The QDQ model with one bias of a layer in its middle changed, and the tensor that this layer makes."""
    import onnx

    model = onnx.load(product(built, ".qdq.onnx"))
    convolutions = [n for n in model.graph.node if n.op_type == "Conv"]
    node = convolutions[len(convolutions) // 2]
    bias = node.input[2].removesuffix(":dq")
    held = next(t for t in model.graph.initializer if t.name == bias)
    array = onnx.numpy_helper.to_array(held).copy()
    array[3] += 1 << 14
    held.CopyFrom(onnx.numpy_helper.from_array(array, bias))
    onnx.save(model, str(folder / "changed.onnx"))
    return folder / "changed.onnx", node.output[0].removesuffix(":real")


def test_compare_goes_in_the_networks_order_and_names_layer_element_and_tile(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, inputs = product(built, ".npu"), str(built / "two.npy")
    model, tensor = changed_bias(built, tmp_path)
    options = ["-i", inputs, "--all", "--tolerance", "8"]             # onnxruntime rounds some ties otherwise
    ran = call(capfd, "compare", program, str(model), *options, "--json")
    names = [line["name"] for line in ran.lines]
    # what is an output does not come first
    assert names[0].startswith("/stem/stem.0/") and names[-1] == "logits"
    (first,) = [line for line in ran.lines if line["tile"]]
    assert first["name"] == tensor and first["codes"] and "(Conv)" in first["layer"]
    assert first["index"][1] == 3 and abs(first["sides"][0] - first["sides"][1]) > 8
    box = first["tile"]["box"]
    within = [0, *first["index"][1:]]                                 # of a sample, whose batch is 1
    assert all(a <= i < b for i, (a, b) in zip(within, box, strict=True))
    assert 1 <= first["tile"]["number"] <= first["tile"]["count"]
    text = call(capfd, "compare", program, str(model), *options)
    assert text.code == 1 and f'first divergence: "{tensor}", made by ' in text.out
    assert f"element  {first['index']}: codes {first['sides'][0]} and {first['sides'][1]}" in text.out
    assert f"tile     {first['tile']['number']} of {first['tile']['count']}" in text.out


def test_a_program_and_its_qdq_model_are_compared_by_codes(
    built: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, qdq, inputs = product(built, ".npu"), product(built, ".qdq.onnx"), str(built / "two.npy")
    lines = call(capfd, "compare", program, qdq, "-i", inputs, "--all", "--json").lines
    codes = [line for line in lines if line["codes"]]
    assert len(codes) > 40 and all(float(line["max_abs"]) <= 4 for line in codes)
    assert sum(line["different"] for line in codes) < 0.01 * sum(line["elements"] for line in codes)


def test_every_element_has_the_tile_that_made_it(built: Path) -> None:
    from npuflow.program.container import load_program
    from npuflow.sim.made import tile_of

    program = load_program(product(built, ".npu"))
    shapes = {n: tuple(v.shape) for n, v in program.taps.values.items()}
    shapes |= {n: tuple(v["shape"]) for n, v in program.meta["values"].items() if v.get("node") is not None}
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        for _ in range(3):
            index = tuple(int(rng.integers(0, d)) for d in shape)
            tile = tile_of(program, name, index)
            assert tile is not None, name
            assert all(a <= i < b for i, (a, b) in zip(index, tile.box, strict=True)), name
            assert program.decoded[tile.core][tile.command].node == tile.node
    assert tile_of(program, "image", (0, 0, 0, 0)) is None            # the host writes the input


def test_pictures_feed_inputs_that_take_codes(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--cache", str(built / "cache"), "--out", str(tmp_path), "--until", "codegen"]
    assert main(["build", str(built / "net.toml"), *where, "--set", "quantize.inputs=integer"]) == 0
    program, floats = str(next(tmp_path.rglob("*.npu"))), product(built, ".npu")
    outputs = []
    for one in (program, floats):
        assert call(capfd, "run", one, str(built / "image.png"), "-o", str(tmp_path / "o.npz")).code == 0
        outputs.append(dict(np.load(tmp_path / "o.npz")))
    np.testing.assert_array_equal(outputs[0]["logits"], outputs[1]["logits"])
    real = ["-o", str(tmp_path / "real.npz")]
    assert call(capfd, "run", program, str(built / "two.npy"), *real).code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "real.npz")["logits"][:1], outputs[0]["logits"])
