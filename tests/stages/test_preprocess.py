"""Recipes with [preprocess]: steps moved from the host to the program give the same pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from PIL import Image

from npuflow import Runner
from npuflow.base.errors import ModelError, RecipeError
from npuflow.base.tables import read
from npuflow.input.data.steps import applied, finished
from npuflow.input.preprocess import (
    PIXELS,
    Preprocess,
    fixed_point,
    fraction_bits,
    resampling,
    with_preprocessing,
)
from npuflow.ir.builder import Builder
from npuflow.ir.op import OPS
from npuflow.ir.types import TensorType
from npuflow.onnx.export import export_model
from npuflow.run.interpret import host_session
from npuflow.stages.placement import Placement
from npuflow.stages.simulate import Simulation
from npuflow.stages.thresholds import Thresholds
from npuflow.testing.stage import built, check_deterministic, check_products
from tests.stages.builds import made, products
from tests.tiers import often

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,16,24] x) => (float[1,6,8,12] y) {
    a = Conv<pads=[1,1,1,1], strides=[2,2], kernel_shape=[3,3]>(x, k) y = Relu(a) }"""
STEPS = [
    "resize = [16, 24]", 'channels = "bgr"', "normalize = { mean = [124, 116, 104], std = [58, 57, 57] }",
]
SIZE = 40, 36


@pytest.fixture
def project(tmp_path: Path) -> Path:
    rng, folder = np.random.default_rng(0), tmp_path / "images"
    proto = parser.parse_model(TEXT)
    weights = rng.normal(size=(6, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    onnx.save_model(proto, str(tmp_path / "net.onnx"))
    folder.mkdir()
    for i in range(12):
        coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(SIZE[::-1], Image.Resampling.BICUBIC).save(folder / f"{i}.png")
    return tmp_path


def recipe(
    project: Path, name: str, moved: int, more: str = "", steps: list[str] = STEPS, target: str = "edge-4t"
) -> Path:
    """The last `moved` of the steps are the program's."""
    own = len(steps) - moved
    text = f'target = "{target}"\n[model]\npath = "net.onnx"\n[data]\nsource = "images"\n'
    text += "".join(f"[[data.steps]]\n{step}\n" for step in steps[:own])
    if moved:
        text += '[[data.steps]]\nlayout = "nhwc"\n'
        text += f"[preprocess]\nsize = {list(SIZE)}\n{more}"
        text += "".join(f"[[preprocess.steps]]\n{step}\n" for step in steps[own:])
    path = project / f"{name}.toml"
    path.write_text(text + '[calibrate]\nmethod = "minmax"\n')
    return path


def program(path: Path) -> tuple[Path, Simulation, Placement, Any]:
    done = made(path, until="simulate")
    simulation, placement, compiled = products(path, done, "simulate", "placement", "codegen")
    file = path.with_suffix(".npu")
    compiled.program.save(file)
    return file, simulation, placement, compiled.program


@pytest.mark.parametrize("place", often(["auto", "host"], 2))
def test_the_program_prepares_what_the_host_did(project: Path, place: str) -> None:
    """Raw bytes in, the same outputs: within the rounding of resized pixels."""
    host, _, _, _ = program(recipe(project, "host", 0))
    file, simulation, placement, inside = program(recipe(project, "own", 3, f'place = "{place}"\n'))
    assert simulation.summary()["different"] == 0 and simulation.summary()["hazards"] == 0
    (entry,) = inside.meta["inputs"]
    assert (entry["name"], entry["shape"], entry["dtype"]) == ("image", [1, *SIZE, 3], "uint8")
    steps = [p for p in placement.placed.places if p.node.startswith("image/")]
    assert len(steps) >= 3 and all(p.on_npu == (place == "auto") for p in steps)
    for picture in sorted((project / "images").iterdir())[:4]:
        raw = np.asarray(Image.open(picture))
        want = Runner(host, preprocess=True).run({"x": picture})["y"]
        got = Runner(file).run({"image": raw[None]})["y"]
        np.testing.assert_array_equal(Runner(file, exact="simulator").run({"image": raw[None]})["y"], got)
        np.testing.assert_array_equal(Runner(file, preprocess=True).run({"image": picture})["y"], got)
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error < 0.02, error


def test_the_first_layer_takes_the_normalisation(project: Path) -> None:
    path = recipe(project, "own", 3)
    (parsed,) = products(path, made(path, until="thresholds"), "pixels")
    assert not {"Mul", "Add", "Sub"} & {node.op.onnx for node in parsed.graph.nodes}


@pytest.mark.parametrize("own", [[], ["normalize = { mean = [100], std = [2] }"]])
def test_the_zero_point_is_the_mean_that_the_program_subtracts(project: Path, own: list[str]) -> None:
    """As if the host subtracted it: errors of rounded weights multiply what is left, not 0..255."""
    last = STEPS[2] if not own else "normalize = { mean = [10, 8, 0], std = [29, 29, 29] }"
    path = recipe(project, "own", 3, steps=[*own, *STEPS[:2], last])
    parsed, found = products(path, made(path, until="pixel_codes"), "pixels", "pixel_codes")
    pixels = [quant for quant in found.codes.values() if not quant.signed]
    assert pixels and {quant.zero_point for quant in pixels} == {(112 if own else 115,)}
    assert parsed.pixels["image"].zero == pixels[0].zero_point[0]


@pytest.mark.parametrize("target", often(["edge-4t", "edge-pow2"], 2))
def test_a_mean_in_the_program_costs_no_accuracy(project: Path, target: str) -> None:
    """The same pixels, the same zero point: the outputs are those of a mean that the host subtracts."""
    steps = ['channels = "bgr"', STEPS[2]]
    onnx_file = project / "net.onnx"
    model = onnx.load(str(onnx_file))
    model.graph.input[0].type.tensor_type.shape.CopyFrom(
        onnx.helper.make_tensor_type_proto(1, [1, 3, *SIZE]).tensor_type.shape
    )
    model.graph.output[0].type.tensor_type.shape.CopyFrom(
        onnx.helper.make_tensor_type_proto(1, [1, 6, SIZE[0] // 2, SIZE[1] // 2]).tensor_type.shape
    )
    onnx.save_model(model, str(onnx_file))
    host, _, _, _ = program(recipe(project, "host", 0, steps=steps, target=target))
    file, simulation, _, _ = program(recipe(project, "own", 2, steps=steps, target=target))
    assert simulation.summary()["different"] == 0
    picture = project / "images" / "0.png"
    want = Runner(host, preprocess=True).run({"x": picture})["y"]
    np.testing.assert_array_equal(Runner(file, preprocess=True).run({"image": picture})["y"], want)


def test_pixels_are_those_of_pillow(project: Path) -> None:
    """Where pixels are neither resized nor rounded, not one number differs: same codes, same weights."""
    steps = ["resize = [16, 24]", 'channels = "bgr"', STEPS[2]]
    host, _, _, _ = program(recipe(project, "host", 0, steps=steps))
    path = recipe(project, "own", 2, steps=steps)
    path.write_text(path.read_text().replace("size = [40, 36]", "size = [16, 24]"))
    file, simulation, _, _ = program(path)
    assert simulation.summary()["different"] == 0
    picture = project / "images" / "0.png"
    want = Runner(host, preprocess=True).run({"x": picture})["y"]
    np.testing.assert_array_equal(Runner(file, preprocess=True).run({"image": picture})["y"], want)


def test_pictures_of_the_networks_own_sizes(project: Path) -> None:
    """Without a size a network of several shapes takes pictures of several sizes, in one file."""
    text = TEXT.replace("1,3,16,24", "1,3,H,W").replace("1,6,8,12", "1,6,P,Q")
    proto = parser.parse_model(text)
    weights = np.random.default_rng(0).normal(size=(6, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    onnx.save_model(proto, str(project / "net.onnx"))
    path = recipe(project, "sizes", 1, steps=["resize = [16, 24]", STEPS[2]])
    path.write_text(
        path.read_text().replace("size = [40, 36]\n", "")
        .replace("[data]", "shapes = [{ H = 16, W = 24 }, { H = 24, W = 24 }]\n[data]", 1)
    )
    (packed,) = products(path, made(path, until="package"), "package")
    file = path.with_suffix(".npu")
    file.write_bytes(packed.package.to_bytes())
    for size in ((16, 24), (24, 24)):
        raw = np.random.default_rng(size[0]).integers(0, 256, (1, *size, 3)).astype(np.uint8)
        got = Runner(file).run({"image": raw})["y"]
        assert got.shape == (1, 6, size[0] // 2, size[1] // 2)
        np.testing.assert_array_equal(Runner(file, exact="simulator").run({"image": raw})["y"], got)
        mean, std = (np.reshape(n, (3, 1, 1)) for n in ([124, 116, 104], [58, 57, 57]))
        real = ((raw.transpose(0, 3, 1, 2) - mean) / std).astype(np.float32)
        (want,) = host_session((project / "net.onnx").read_bytes()).run(["y"], {"x": real})
        assert np.linalg.norm(got - want) < 0.05 * np.linalg.norm(want)


def test_signed_pixels_keep_every_bit(project: Path) -> None:
    """A target of signed codes without zero points: the shift moves behind the resizing into the layer."""
    steps = ["normalize = { mean = [124, 116, 104], std = [58, 57, 57] }", "resize = [16, 24]"]
    path = recipe(project, "signed", 1, steps=steps, target="edge-pow2")
    done = made(path, until="thresholds")
    (parsed,) = products(path, done, "pixels")
    assert parsed.pixels["image"].zero == 128
    assert [n.op.onnx for n in parsed.graph.nodes].count("Add") == 0


@pytest.mark.parametrize("method", ["nearest", "bilinear", "area"])
@pytest.mark.parametrize("size", [(20, 32), (50, 60), (20, 72)])
def test_the_nodes_resize_as_pillow(method: str, size: tuple[int, int]) -> None:
    """Within the rounding of the host's pixels, before and after the second axis, and what weights of 8 bits
    may change; no position of these sizes lies between two pixels, where `nearest` may take the other one."""
    rounding = 0.0 if method == "nearest" else 1.01
    check([{"resize": list(size), "method": method}], rounding + _of_weights(method, size))


def _of_weights(method: str, wanted: tuple[int, int]) -> float:
    """The largest change of pixels by weights in fixed point."""
    change = 0.0
    for size, other in zip((37, 44), wanted, strict=True):
        if method == "area" or (method == "bilinear" and other < size):
            exact = resampling(size, other, method)
            # a row's changes add up to 0: those above it and those below it work on the range of pixels
            change += 255 * np.abs(fixed_point(exact) - exact).sum(1).max() / 2
    return change


@pytest.mark.parametrize(("size", "wanted"), [(256, 224), (640, 224), (45, 44), (40, 4), (5, 5), (300, 1)])
@pytest.mark.parametrize("method", ["bilinear", "area"])
def test_fixed_point_weights_keep_flat_areas(size: int, wanted: int, method: str) -> None:
    weights = resampling(size, wanted, method)
    fixed = fixed_point(weights)
    step = 2.0 ** -fraction_bits(fixed)
    codes = fixed / step
    assert (codes == np.rint(codes)).all() and codes.min() >= 0 and codes.max() <= 127
    assert (fixed.sum(1) == 1.0).all()
    assert np.abs(fixed - weights).max() < 2.0 ** -fraction_bits(weights)


def test_pixels_of_a_shrunk_picture(project: Path) -> None:
    """A screenshot with small text, 256 to 224: every pixel of the program within 2 levels of Pillow's, their
    root mean square within 0.3 and no shift of the brightness (0.55 and -0.28 with weights rounded one by
    one)."""
    screenshot = Path(__file__).parents[2] / "docs" / "images" / "view.png"
    picture = Image.open(screenshot).convert("RGB").crop((0, 0, 256, 256))
    onnx.save_model(parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,224,224] x) => (float[1,3,224,224] y) '
        "{ y = Relu(x) }"
    ), str(project / "net.onnx"))
    for file in (project / "images").iterdir():
        file.unlink()
    picture.save(project / "images" / "0.png")
    path = recipe(project, "shrunk", 1, steps=["resize = [224, 224]"])
    path.write_text(path.read_text().replace(f"size = {list(SIZE)}", "size = [256, 256]"))
    file, simulation, _, _ = program(path)
    assert simulation.summary()["different"] == 0
    got = Runner(file).run({"image": np.asarray(picture)[None]})["y"][0].transpose(1, 2, 0)
    want = np.asarray(picture.resize((224, 224), Image.Resampling.BILINEAR), np.float64)
    error = got - want
    assert np.abs(error).max() <= 2.01
    assert np.sqrt((error**2).mean()) < 0.3 and abs(error.mean()) < 0.1


@pytest.mark.parametrize(
    "steps",
    [
        [{"resize": [24, 24], "keep_ratio": "letterbox", "fill": 114.0, "method": "nearest"}],
        [{"resize": [24, 24], "keep_ratio": "letterbox", "align": "corner", "method": "nearest"}],
        [{"resize": [24, 24], "keep_ratio": "short", "method": "nearest"}, {"center_crop": [24, 24]}],
        [{"center_crop": [50, 20], "fill": 7.0}, {"pad": [1, 2, 3, 4], "fill": 9.0}],
        [{"channels": "bgr"}, {"normalize": {"mean": [1, 2, 3], "std": [4, 5, 6], "scale": 0.5}}],
        [{"channels": "grey"}],
        [{"channels": "grey"}, {"channels": "rgb"}, {"layout": "nhwc"}],
    ],
)
def test_the_nodes_do_what_the_host_does(steps: list[dict[str, Any]]) -> None:
    check(steps, 0.501 if any(s.get("channels") == "grey" for s in steps) else 1e-5)


def check(steps: list[dict[str, Any]], most: float) -> None:
    """Float nodes against the host's steps, which round resized pixels."""
    raw = np.random.default_rng(3).integers(0, 256, (37, 44, 3), dtype=np.uint8)
    table, faults = read(Preprocess, {"size": [37, 44], "steps": steps})
    assert table is not None and not faults
    plain = [step.plain() for step in table.steps]
    last = [] if "layout" in plain[-1] else [{"layout": "nchw"}]
    want = finished(applied(raw, plain, ""), last, "", False)
    shape = (1, *want.shape)
    net = Builder()
    net.input("x", TensorType(shape, "float32"))
    net.add(OPS["relu"](), ["x"], ["y"])
    graph = with_preprocessing(net.graph(["x"], ["y"]), table)
    (got,) = host_session(export_model(graph)).run(None, {"image": raw[None].astype(np.float32)})
    assert np.abs(got[0] - np.maximum(want, 0)).max() <= most


def test_all_that_is_wrong_is_said_together(project: Path) -> None:
    steps = ["transpose = [2, 0, 1]", 'dtype = "float16"', "resize = [16, 24]"]
    with pytest.raises(RecipeError) as fault:
        built(recipe(project, "wrong", 3, "channels = 9\n", steps), project / "cache", "preprocess")
    said = " ".join(one.message for one in fault.value.faults())
    assert "9 is out of range" in said
    with pytest.raises(RecipeError) as fault:
        built(recipe(project, "wrong", 3, "", steps), project / "cache", "preprocess")
    said = " ".join(one.message for one in fault.value.faults())
    assert "step 1, transpose" in said and 'step 2, dtype = "float16"' in said


@pytest.mark.parametrize(
    ("more", "steps", "said"),
    [
        ("", ["resize = [16, 20]"], r"make \[1, 3, 16, 20\], the model takes \[1, 3, 16, 24\]"),
        ('input = "z"\n', ["resize = [16, 24]"], 'the input "z" takes no pictures'),
        ('name = "a"\n', ["resize = [16, 24]"], 'cannot be the input "a"'),
        ("channels = 1\n", ["resize = [16, 24]", 'channels = "bgr"'], "needs a picture of 3 channels"),
        ("", ["resize = [16, 24]", "normalize = { mean = [1, 2] }"], "2 numbers per channel"),
    ],
)
def test_what_does_not_fit_the_model(project: Path, more: str, steps: list[str], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        built(recipe(project, "wrong", len(steps), more, steps), project / "cache", "preprocess")


@pytest.mark.slow
def test_every_step_has_its_operators(project: Path) -> None:
    """The operators that steps become are in the key of the stage, whatever the model has."""
    own = [
        'resize = [12, 20]\nmethod = "nearest"', "resize = [15, 22]", 'channels = "bgr"',
        "pad = [1, 2, 0, 0]",
        'resize = [40, 48]\nmethod = "area"', "center_crop = [16, 24]", 'channels = "grey"',
        'channels = "rgb"',
    ]
    path = recipe(project, "all", len(own), steps=own)
    simulation = program(path)[1]
    assert simulation.summary()["different"] == 0


def test_the_stages_are_deterministic_and_their_products_are_whole(project: Path) -> None:
    path = recipe(project, "own", 3)
    one, other = (built(path, project / name, "pixel_codes") for name in ("one", "other"))
    for stage in ("preprocess", "pixel_codes"):
        check_deterministic(one, other, stage)
        check_products(one, stage)
    codes = next(iter(one.products("pixel_codes").values()))
    assert isinstance(codes, Thresholds)
    assert all(q.scale == (1.0,) for v, q in codes.codes.items() if f"/{PIXELS}_" in v) and codes.codes


def test_a_network_that_begins_inside(project: Path) -> None:
    """[model] begin, outputs and [preprocess] together: the pictures are those of the cut point."""
    proto = onnx.load(str(project / "net.onnx"))
    proto.graph.node.insert(0, onnx.helper.make_node("Neg", ["x"], ["m"]))
    proto.graph.node[1].input[0] = "m"
    onnx.save_model(proto, str(project / "net.onnx"))
    path = recipe(project, "own", 3)
    path.write_text(path.read_text().replace('"net.onnx"', '"net.onnx"\nbegin = ["m"]\noutputs = ["a"]'))
    one = built(path, project / "cache", "preprocess")
    (model,) = one.products("preprocess").values()
    graph = model.reading.graph  # type: ignore[attr-defined]
    assert graph.inputs == ("image",) and graph.outputs == ("a",)
