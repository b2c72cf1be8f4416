"""Recipes of components: samples come from the components above, and one file runs the whole chain."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from typer.testing import CliRunner

from npuflow import Runner
from npuflow.base.errors import DataError, ModelError, NpuflowError, UsageError
from npuflow.cli._app import application
from npuflow.cli._components import planned_of
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, output_folder
from npuflow.flow.recipe_components import FILES
from npuflow.input.data.config import Data
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples
from npuflow.onnx.session import opened as session_of
from npuflow.program.container import json_bytes, sections_of, written
from npuflow.program.packing.package import load_package, of_bytes
from npuflow.runner.opening import opened
from npuflow.stages.component_evaluation import ComponentEvaluation
from npuflow.stages.component_outputs import ComponentOutputs

ENCODER = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,6] x)
    => (float[1,4] h, float[1,6] plain) { a = MatMul(x, w) h = Relu(a) plain = Sigmoid(x) }"""
DECODER = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] memory, float[1,4] token, float[1,4] s)
    => (float[1,3] y, float[1,4] sn) {
    a = Add(memory, token) b = Sub(a, s) sn = Tanh(b) y = MatMul(sn, w) }"""
PLAIN_DECODER = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4] memory, float[1,4] token)
    => (float[1,3] y) { a = Add(memory, token) b = Tanh(a) y = MatMul(b, w) }"""
RECIPE = """
target = "edge-4t"
[correct]
bias = "off"
[components.decoder]
inputs = { memory = "encoder.h" }
model = { path = "decoder.onnx", state = { sn = "s" } }
data = { source = "tokens.npz", count = 20, seed = 5 }
evaluate = { source = "tokens.npz" }
[components.encoder]
recipe = "encoder.toml"
"""
PART = '[model]\npath = "encoder.onnx"\n[data]\nsource = "x.npz"\ncount = 24\n[evaluate]\nsource = "x.npz"\n'
COUNT = 30


def model(text: str, path: Path, seed: int, *shape: int) -> None:
    proto = parser.parse_model(text)
    weights = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save_model(proto, str(path))


def project_in(folder: Path) -> Path:
    """A model, one with state that reads it, samples of both (row i belongs to row i; the second ones are
    sequences), and the recipe."""
    model(ENCODER, folder / "encoder.onnx", 1, 6, 4)
    model(DECODER, folder / "decoder.onnx", 2, 4, 3)
    rng = np.random.default_rng(0)
    np.savez(folder / "x.npz", x=rng.normal(size=(COUNT, 6)).astype(np.float32))
    tokens = np.arange(COUNT).reshape(COUNT, 1, 1) / COUNT + rng.normal(0, .01, (COUNT, 3, 4))
    np.savez(folder / "tokens.npz", token=tokens.astype(np.float32))
    (folder / "encoder.toml").write_text(PART)
    (folder / "pair.toml").write_text(RECIPE)
    return folder / "pair.toml"


def built(recipe: Path, *args: str, verb: str = "build") -> dict[str, dict[str, Any]]:
    """How each component's steps ended, and under "" the last line of each kind."""
    words = [verb, str(recipe), "--json", "--cache", str(recipe.parent / "cache"), *args]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.output
    ended: dict[str, dict[str, Any]] = {"": {}}
    for line in map(json.loads, filter(lambda text: text.startswith("{"), done.output.splitlines())):
        ended[""][line["event"]] = line
        if line["event"] == "step" and line["item"] is None:
            ended.setdefault(line["recipe"], {})[line["stage"]] = line["status"]
    return ended


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = project_in(tmp_path_factory.mktemp("pair"))
    built(path)
    return path


def values(recipe: Path, rows: range) -> list[dict[str, np.ndarray]]:
    x, token = np.load(recipe.parent / "x.npz")["x"], np.load(recipe.parent / "tokens.npz")["token"]
    return [{"x": x[i : i + 1], "token": token[i, :1]} for i in rows]


@pytest.mark.parametrize("exact", ["executor", "simulator"])
def test_the_chain_gives_the_bits_of_its_programs_run_by_hand(recipe: Path, exact: Any) -> None:
    """Along a sequence, whose state the second one keeps."""
    file = recipe.parent / "out/pair/model.npu"
    parts = [Runner(recipe.parent / f"out/pair/{name}/model.npu", exact="simulator") for name in
             ("encoder", "decoder")]
    runner, given = Runner(file, exact=exact), values(recipe, range(9))
    assert [port.name for port in runner.inputs] == ["x", "token", "s"] and runner.state == (("sn", "s"),)
    assert [port.name for port in runner.outputs] == ["plain", "y", "sn"]
    for sample, whole in zip(given, runner.run_many(given), strict=True):
        first = parts[0].run({"x": sample["x"]})
        want = parts[1].run({"memory": first["h"], "token": sample["token"]})
        assert whole["y"].any() and whole.keys() == {"plain", "y", "sn"}
        np.testing.assert_array_equal(whole["y"], want["y"])
        np.testing.assert_array_equal(whole["plain"], first["plain"])
    inner = runner.run(given[0], dump=["encoder.h"])
    np.testing.assert_array_equal(inner["encoder.h"], parts[0].run({"x": given[0]["x"]})["h"])
    alone = Runner(f"{file}#encoder").run({"x": given[0]["x"]})
    np.testing.assert_array_equal(alone["h"], inner["encoder.h"])


def test_samples_are_the_float_outputs_of_the_component_above(recipe: Path) -> None:
    """Whatever each component takes of its own: row i belongs to row i."""
    session = session_of((recipe.parent / "encoder.onnx").read_bytes())
    given = values(recipe, range(COUNT))
    decoder, _ = load(f"{recipe}#decoder").read(Data)
    assert decoder is not None
    listed = found(decoder)
    read = dict(samples({name: (one.files, one.detail) for name, one in listed.items()}))
    assert len(read) == 20
    for name, sample in read.items():
        token = sample.arrays["token"]
        row = round(float(token.mean()) * COUNT)
        assert listed[name].place == (row, COUNT)
        (want,) = session.run(["h"], {"x": given[row]["x"]})
        np.testing.assert_allclose(sample.arrays["memory"], want, rtol=1e-5, atol=1e-6)
    assert len({one.place for one in listed.values()}) == 20


def test_a_change_runs_what_depends_on_it_and_nothing_where_there_is_none(
    recipe: Path, tmp_path: Path
) -> None:
    shutil.copytree(recipe.parent, tmp_path, dirs_exist_ok=True)
    recipe, file = tmp_path / "pair.toml", tmp_path / "out/pair/model.npu"
    before = file.stat().st_mtime_ns, file.read_bytes()
    again = built(recipe)
    assert again[""]["summary"]["ran"] == 0 and again[""]["written"]["file"] == str(file)
    assert (file.stat().st_mtime_ns, file.read_bytes()) == before
    # the thresholds of the encoder are not what the decoder is fed
    other = built(recipe, "--set", "components.encoder.calibrate.method=mse", verb="plan")
    assert other["encoder"]["thresholds"] == "run" and {*other["decoder"].values()} == {"hit"}
    model(ENCODER, tmp_path / "encoder.onnx", 7, 6, 4)
    third = built(recipe)
    assert third["encoder"]["model"] == third["decoder"]["statistics"] == "ran"
    assert third["decoder"]["model"] == third["decoder"]["parse"] == "hit"


def test_recipes_name_the_files_that_stages_make() -> None:
    assert {"data": ComponentOutputs.file(), "evaluate": ComponentEvaluation.file()} == FILES


def faults(recipe: Path, text: str) -> dict[str, NpuflowError]:
    """By code the faults of another text of the recipe."""
    recipe.write_text(text)
    with pytest.raises(NpuflowError) as caught:
        planned_of(recipe, (), Settings(cache=recipe.parent / "cache"))
    return {one.code: one for one in caught.value.faults()}


def test_faults_of_the_wiring_are_reported_at_once(tmp_path: Path) -> None:
    recipe = project_in(tmp_path)
    text = """target = "edge-4t"
[components.encoder]
recipe = "encoder.toml"
inputs = { x = "decoder.y", z = "decodr.y", q = "y" }
[components.decoder]
inputs = { memory = "encoder.h" }
model.path = "decoder.onnx"
"""
    found_all = faults(recipe, text)
    assert found_all.keys() == {"NF-RECIPE-169", "NF-RECIPE-170", "NF-RECIPE-171"}
    assert found_all["NF-RECIPE-170"].hint == '"decoder"' and found_all["NF-RECIPE-170"].where.line == 4
    assert found_all["NF-RECIPE-171"].because == "encoder reads decoder reads encoder"


def test_faults_of_names_shapes_and_data_are_reported_at_once(tmp_path: Path) -> None:
    recipe = project_in(tmp_path)
    text = RECIPE.replace('"encoder.h" }', '"encoder.plain", memry = "encoder.h", token = "encoder.hh" }')
    text += '[components.lone]\nmodel.path = "encoder.onnx"\ncalibrate.method = "no"\n'
    text += '[components.void]\ninputs = { x = "lone.h" }\n'
    found_all = faults(recipe, text)
    assert {f"NF-RECIPE-{n}" for n in (172, 175, 176, 177)} < found_all.keys()
    assert found_all["NF-RECIPE-175"].hint == '"memory"' and "h, plain" in found_all["NF-RECIPE-176"].because
    assert "[1, 6]" in found_all["NF-RECIPE-177"].because and "[1, 4]" in found_all["NF-RECIPE-177"].because
    assert found_all["NF-RECIPE-172"].where.key == "components.lone"
    keys = {one.where.key for one in found_all.values()}
    assert {"calibrate.method", "components.void.model.path"} < keys
    assert "NF-RECIPE-173" in faults(recipe, RECIPE.replace("encoder.toml", "x.toml")
                                     if (tmp_path / "x.toml").write_text(PART.split("[evaluate]")[0]) else "")


def test_sources_of_several_lengths_are_an_error(tmp_path: Path) -> None:
    recipe = project_in(tmp_path)
    np.savez(tmp_path / "tokens.npz", token=np.zeros((COUNT - 1, 3, 4), np.float32))
    words = ["build", str(recipe), "--cache", str(tmp_path / "cache")]
    done = CliRunner().invoke(application(), [*words, "--set", "evaluate.count=4"])
    assert done.exit_code == 2
    assert '"tokens.npz" has 29 samples, the component "encoder" has 30' in done.output
    assert not (tmp_path / "out/pair/model.npu").exists()


@pytest.mark.slow
def test_a_chain_is_scored_as_a_whole(tmp_path: Path) -> None:
    """By the last component's outputs: programs behind programs, float models behind float models."""
    recipe = project_in(tmp_path)
    model(PLAIN_DECODER, tmp_path / "decoder.onnx", 2, 4, 3)
    np.savez(tmp_path / "tokens.npz", token=np.load(tmp_path / "tokens.npz")["token"][:, :1])
    text = recipe.read_text().replace(', state = { sn = "s" }', "")
    recipe.write_text(text.replace('"tokens.npz" }', '"tokens.npz", metric = "sqnr" }'))
    score = built(recipe, verb="eval")[""]["score"]
    runner, truth, made = Runner(tmp_path / "out/pair/model.npu"), [], []
    sessions = [session_of(tmp_path / f"{name}.onnx") for name in ("encoder", "decoder")]
    for sample in values(recipe, range(COUNT)):
        (h,) = sessions[0].run(["h"], {"x": sample["x"]})
        truth += sessions[1].run(["y"], {"memory": h, "token": sample["token"]})
        made.append(runner.run(sample)["y"])
    wrong = np.square(np.subtract(made, truth)).sum() / np.square(truth).sum()
    assert score["component"] == "decoder" and score["samples"] == COUNT
    assert score["sqnr_db"]["y"] == pytest.approx(-10 * np.log10(wrong), abs=1e-3)
    other = built(Path(f"{recipe}#decoder"), verb="eval")[""]["score"]
    assert other["sqnr_db"]["y"] > score["sqnr_db"]["y"], "the encoder's floats are above it there"
    words = ["eval", str(recipe), "--cache", str(tmp_path / "cache"), "--program"]
    words.append(str(tmp_path / "out/pair/encoder/model.npu"))
    assert "no file of these components" in str(CliRunner().invoke(application(), words).exception)


def test_a_chain_with_state_is_not_scored(recipe: Path) -> None:
    words = ["eval", str(recipe), "--cache", str(recipe.parent / "cache")]
    fault = CliRunner().invoke(application(), words).exception
    assert isinstance(fault, UsageError) and fault.code == "NF-USAGE-412"
    assert fault.because == '"decoder" has state'


def test_one_recipe_is_named_where_one_is_meant(recipe: Path) -> None:
    with pytest.raises(NpuflowError, match="recipe of components: encoder, decoder") as caught:
        load(recipe)
    assert "pair.toml#encoder" in caught.value.hint
    with pytest.raises(NpuflowError, match='no component "decodr"') as caught:
        load(f"{recipe}#decodr")
    assert caught.value.hint == '"decoder"'
    with pytest.raises(UsageError, match="--until"):
        planned_of(recipe, (), Settings(until="parse"))
    one = load(f"{recipe}#decoder", ["components.decoder.calibrate.method=kl"])
    assert one.tables["calibrate"]["method"] == "kl" and one.name == "decoder"
    assert output_folder(one, Settings(out="x")) == Path("x/pair/decoder")


def test_a_chain_says_what_it_lacks(recipe: Path) -> None:
    file = recipe.parent / "out/pair/model.npu"
    runner, (sample,) = Runner(file), values(recipe, range(1))
    with pytest.raises(DataError, match='no data for the input "token"'):
        runner.run({"x": sample["x"]})
    with pytest.raises(DataError, match='"token" has shape'):
        runner.submit({**sample, "token": np.zeros((1, 5), np.float32)}).result()
    with pytest.raises(UsageError, match="feed each other"):
        _ = opened(file).program
    fingerprint, parts = sections_of(memoryview(file.read_bytes()), NpuflowError("").where, True)
    for chain in ({"encoder": {"x": ["decoder", "y"]}}, {"decoder": ["x"]}, []):
        body = json_bytes({"networks": ["encoder", "decoder"], "chain": chain})
        with pytest.raises(ModelError, match="malformed"):
            of_bytes(written(fingerprint, [*{**parts, "set": body}.items()]))
    assert load_package(file).chain == {"decoder": {"memory": ("encoder", "h")}}
