"""Networks with state: what a run leaves is what the next one reads, in every stage and in the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from npuflow.base.errors import NpuflowError
from npuflow.cli._app import application
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.types import TensorType, Value
from npuflow.run.interpret import Interpreter, host_session
from npuflow.runner.simulated import ProgramRunner
from npuflow.stages.samples import Sample
from npuflow.stages.sequences import affordable, drawn
from npuflow.whole.execute.executor import Executor
from tests.stages.builds import made, products

IN, CELLS, STEPS, CLIPS = 6, 8, 12, 5


def cell() -> onnx.ModelProto:
    """A gated cell: h' = z h + (1 - z) tanh(W x + U h); y = V h'."""
    rng = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        found = rng.standard_normal(shape) / shape[0] ** 0.5
        return numpy_helper.from_array(found.astype(np.float32), name)

    nodes = [
        helper.make_node("Concat", ["x", "h"], ["xh"], axis=1),
        helper.make_node("MatMul", ["xh", "wz"], ["az"]),
        helper.make_node("Sigmoid", ["az"], ["z"]),
        helper.make_node("MatMul", ["xh", "wc"], ["ac"]),
        helper.make_node("Tanh", ["ac"], ["c"]),
        helper.make_node("Sub", ["h", "c"], ["d"]),
        helper.make_node("Mul", ["z", "d"], ["zd"]),
        helper.make_node("Add", ["c", "zd"], ["hn"]),
        helper.make_node("MatMul", ["hn", "v"], ["y"]),
    ]
    weights = [weight("wz", IN + CELLS, CELLS), weight("wc", IN + CELLS, CELLS), weight("v", CELLS, 3)]
    ports = {"x": IN, "h": CELLS, "y": 3, "hn": CELLS}
    typed = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in ports.items()}
    graph = helper.make_graph(nodes, "cell", [typed["x"], typed["h"]], [typed["y"], typed["hn"]], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def clips(count: int, seed: int) -> np.ndarray:
    start = np.random.default_rng(seed).uniform(0, 2 * np.pi, (count, 1, IN))
    return np.sin(start + 0.5 * np.arange(STEPS)[:, None]).astype(np.float32)


def rolled(audio: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs of the float model over one clip, and the state before each step."""
    session, h = host_session(cell().SerializeToString()), np.zeros((1, CELLS), np.float32)
    outputs, states = [], []
    for x in audio:
        states.append(h)
        y, h = session.run(["y", "hn"], {"x": x[None], "h": h})
        outputs.append(y)
    return outputs, states


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    onnx.save_model(cell(), str(folder / "cell.onnx"))
    np.savez(folder / "calib.npz", x=clips(CLIPS, 0))
    np.savez(folder / "eval.npz", x=clips(2, 1))
    text = """
[model]
path = "cell.onnx"
state = { hn = "h" }
[target]
[placement]
min_macs = 0
[data]
source = "calib.npz"
[sequences]
samples = 40
[quantize.activations]
bits = 16
[evaluate]
source = "eval.npz"
metric = "sqnr"
by = "simulator"
"""
    (folder / "cell.toml").write_text(text)
    return folder / "cell.toml"


def test_calibration_walks_along_the_sequences(recipe: Path) -> None:
    result = made(recipe, until="sequences")
    (store,) = products(recipe, result, "model")
    assert store.reading.graph.state == (("hn", "h"),)
    from npuflow import load_recipe
    from npuflow.flow.recipe_build import Settings, open_cache

    cache = open_cache(load_recipe(recipe), Settings(cache=recipe.parent / "cache"))
    whole = dict(result.refs["sequences"].items)
    kept = {name: cache.load(digest, Sample).content.arrays for name, digest in whole.items()}
    assert len(kept) == 40
    audio = clips(CLIPS, 0)
    for name, arrays in kept.items():
        clip, step = name.removeprefix("calib.npz#").split("/")
        _, states = rolled(audio[int(clip)])
        assert np.array_equal(arrays["x"], audio[int(clip), int(step)][None])
        assert np.allclose(arrays["h"], states[int(step)], atol=1e-6)
    firsts = {name for name in whole if int(name.rpartition("/")[2]) == 0}
    assert len(firsts) == CLIPS
    for part in ("fit", "choose"):
        held = [name in firsts for name in made(recipe, until=part).refs[part].items]
        assert held[:2] == [True, False]


@pytest.mark.parametrize(
    ("lengths", "most", "firsts"), [([5, 7, 3], 8, 3), ([5, 7, 3], 4, 2), ([1, 1], 9, 2)]
)
def test_first_steps_are_kept_for_up_to_a_third(lengths: list[int], most: int, firsts: int) -> None:
    found = drawn(lengths, most, 0)
    assert len(found) == min(most, sum(lengths)) and found <= set(range(sum(lengths)))
    assert len(found & {0, lengths[0], sum(lengths[:2])}) >= firsts


@pytest.mark.parametrize(("context", "wanted"), [(256, 91), (2048, 32), (1, 23_301)])
def test_large_states_are_kept_in_small_numbers(context: int, wanted: int) -> None:
    """Caches of 11,520 numbers a token in float32: a gigabyte of them."""
    kind = TensorType((1, 11_520, context))
    values = {name: Value(name, kind) for name in ("h", "hn")}
    graph = Graph(("h",), ("hn",), (), values, {}, state=(("hn", "h"),))
    assert affordable(graph) == wanted


def test_sequences_share_the_float_model(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened once, with a copy of its weights, however many sequences there are."""
    from npuflow.stages import sequences

    opened = list[int]()

    def counting(model: Any) -> Any:
        opened.append(1)
        return host_session(model)

    monkeypatch.setattr(sequences, "host_session", counting)
    text = recipe.read_text().replace('"c', f'"{recipe.parent}/c').replace('"e', f'"{recipe.parent}/e')
    (tmp_path / "cell.toml").write_text(text)
    made(tmp_path / "cell.toml", until="sequences")
    assert len(opened) == 1


def test_steps_of_a_sequence_are_in_one_part(recipe: Path) -> None:
    """Samples that verify are of no sequence that a choice has seen."""
    parts = [made(recipe, until=part).refs[part].items for part in ("fit", "choose", "verify")]
    clips = [{name.partition("/")[0] for name in part} for part in parts]
    assert sum(map(len, clips)) == len(set().union(*clips)) and clips[0] and clips[1]
    assert sum(map(len, parts)) == 40                      # every step that was drawn
    fit = list(parts[0])
    assert len({name.partition("/")[0] for name in fit[: len(clips[0]) + 4]}) > 1, "not clip after clip"


def test_one_sequence_alone_judges_nothing(tmp_path: Path) -> None:
    onnx.save_model(cell(), str(tmp_path / "cell.onnx"))
    np.savez(tmp_path / "calib.npz", x=clips(1, 0))
    text = '[model]\npath = "cell.onnx"\nstate = { hn = "h" }\n[target]\n[data]\nsource = "calib.npz"\n'
    (tmp_path / "one.toml").write_text(text)
    (verdict,) = products(tmp_path / "one.toml", made(tmp_path / "one.toml", until="verdict"), "verdict")
    assert "only one calibration sequence, which cannot both" in verdict.statement.text


def test_a_program_keeps_state_between_runs(recipe: Path) -> None:
    result = made(recipe, until="evaluate")
    quantized, compiled, evaluation = products(recipe, result, "quantize", "codegen", "evaluate")
    graph, program = quantized.graph, compiled.program
    assert program.meta["state"] == [["hn", "h"]]
    assert graph.values["h"].quant == graph.values["hn"].quant is not None
    assert {step["kind"] for step in program.meta["steps"]} == {"quantize", "npu", "dequantize"}
    audio = clips(2, 1)
    runner, wanted = ProgramRunner(program), rolled(audio[0])[0]
    first = runner.run_many([{"x": x[None]} for x in audio[0]])
    noise = sum(float(((a["y"] - b) ** 2).sum()) for a, b in zip(first, wanted, strict=True))
    assert 10 * np.log10(sum(float((b**2).sum()) for b in wanted) / noise) > 30
    assert np.array_equal(runner.run({"x": audio[0, :1]})["y"], first[0]["y"]) is False, "the state goes on"
    runner.reset()
    assert np.array_equal(runner.run({"x": audio[0, :1]})["y"], first[0]["y"])
    other = runner.steps()
    assert [other.run({"x": x[None]})["y"].tolist() for x in audio[0]] == [a["y"].tolist() for a in first]
    for model in (Executor(graph, Numerics()), Interpreter(graph, Numerics())):
        state = np.zeros((1, CELLS), np.float32)
        for x, program_has in zip(audio[0], first, strict=True):
            found = model.run({"x": x[None], "h": state})
            state = found["hn"]
            assert np.array_equal(found["y"], program_has["y"]) and np.array_equal(state, program_has["hn"])
    assert evaluation.score.samples == 2 * STEPS and "hn" not in evaluation.score.sqnr_db
    assert evaluation.score.sqnr_db["y"] > 30


def test_who_runs_the_integers_changes_no_figure(recipe: Path) -> None:
    scores = []
    for by in ("simulator", "executor", "reference"):
        (found,) = products(recipe, made(recipe, f"evaluate.by={by}", until="evaluate"), "evaluate")
        scores.append(found.score.sqnr_db)
    assert scores[0] == scores[1] == scores[2]


def test_run_follows_the_sequence(recipe: Path, tmp_path: Path) -> None:
    result = made(recipe, until="qdq")
    compiled = products(recipe, made(recipe, until="codegen"), "codegen")
    qdq = products(recipe, result, "qdq")
    program, exported = tmp_path / "cell.npu", tmp_path / "cell.qdq.onnx"
    program.write_bytes(compiled[0].program.to_bytes())
    exported.write_bytes(qdq[0].exported.model)
    audio = clips(2, 1)[0]
    np.save(tmp_path / "x.npy", audio)
    outputs = {}
    for path, more in ((program, []), (exported, []), (recipe.parent / "cell.onnx", ["--state", "hn=h"])):
        out = tmp_path / "out.npz"
        words = ["run", str(path), str(tmp_path / "x.npy"), "-o", str(out), *more]
        ran = CliRunner().invoke(application("run"), words)
        assert ran.exit_code == 0, ran.output
        assert "h is kept between runs" in ran.output
        held = np.load(out)
        assert held.files == ["y"] and held["y"].shape == (STEPS, 3)
        outputs[path] = held["y"]
    assert np.allclose(outputs[recipe.parent / "cell.onnx"], np.concatenate(rolled(audio)[0]), atol=1e-5)
    whole = ProgramRunner(program).run_many([{"x": x[None]} for x in audio])
    assert np.array_equal(outputs[program], np.concatenate([one["y"] for one in whole]))
    assert np.allclose(outputs[program], outputs[exported], atol=0.01)


@pytest.mark.parametrize(
    "state, code, words",
    [
        ({"hm": "h"}, "NF-MODEL-070", '"hm"'),
        ({"hn": "hh"}, "NF-MODEL-070", '"hh"'),
        ({"y": "h"}, "NF-MODEL-068", "[1, 3]"),
        ({"hn": "h", "y": "h"}, "NF-MODEL-067", "two outputs"),
    ],
)
def test_what_cannot_be_state_is_an_error(recipe: Path, state: dict[str, str], code: str, words: str) -> None:
    with pytest.raises(NpuflowError) as caught:
        inner = ", ".join(f'"{o}" = "{i}"' for o, i in state.items())
        made(recipe, f"model.state={{ {inner} }}", until="parse").check()
    assert caught.value.code == code and words in str(caught.value)


def test_arrays_of_unlike_lengths_are_an_error() -> None:
    from npuflow.input.data.config import InputSample as Content
    from npuflow.input.data.sequence import steps
    from npuflow.ir.types import TensorType

    kinds = {"a": TensorType((1, 4)), "b": TensorType((1, 2)), "c": TensorType((1, 3))}
    arrays = {"a": np.zeros((5, 4), np.float32), "b": np.zeros((1, 5, 2), np.float32)[0]}
    fed = steps(Content({**arrays, "c": np.ones((1, 3), np.float32)}), kinds)
    assert len(fed) == 5 and all(one["c"].shape == (1, 3) for one in fed), "a fits as it is: fed in each step"
    with pytest.raises(NpuflowError, match="different numbers of steps"):
        steps(Content({**arrays, "b": np.zeros((4, 2), np.float32)}), {k: kinds[k] for k in "ab"})


def test_a_sequence_begins_with_the_state_that_the_sample_has() -> None:
    from npuflow.input.data.config import InputSample as Content
    from npuflow.input.data.sequence import labelled
    from npuflow.ir.types import TensorType

    kinds, zero = {"x": TensorType((1, 4)), "h": TensorType((1, 2))}, {"h": np.zeros((1, 2), np.float32)}
    own = Content({"x": np.zeros((3, 4), np.float32), "h": np.ones(2, np.float32)})
    rows = list(labelled(own, kinds, zero, [4, 5, 6]))
    assert [label for _, label in rows] == [4, 5, 6] and [sorted(fed) for fed, _ in rows] == [
        ["h", "x"], ["x"], ["x"],
    ]
    assert rows[0][0]["h"].tolist() == [[1, 1]]
    assert [label for _, label in labelled(own, kinds, zero, 7)] == [7, 7, 7], "one for the whole sequence"
