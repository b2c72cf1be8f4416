"""The rewritten float graph beside the source model: rounding is let pass, a rule
that moves values is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from npuflow import build, load_recipe
from npuflow.base import code, registry
from npuflow.checks.rewrite_check import READING, SourceModel, culprits
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.run_state import Result
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.report.accuracy import of_rewrites
from npuflow.rewrite.rewrite import Applied, rewrite
from npuflow.rules import RULES
from npuflow.stages.parse import rewritten
from npuflow.stages.rewrite_check import RewriteCheck
from tests.networks import recipes
from tests.networks.onnx_text import model, normal

NET = model(
    "float[1,3,8,8] x => float[1,4,8,8] y, float[1,4] z",
    "a = Conv<pads=[1,1,1,1]>(x, k) b = BatchNormalization(a, s, o, m, v) c = Relu(b) "
    "d = Identity(c) y = Sigmoid(d) e = Relu(d) f = GlobalAveragePool(e) z = Flatten(f)",
    {
        "k": normal(0, 4, 3, 3, 3),
        **{name: normal(i, 4) for i, name in enumerate("som", 1)},
        "v": np.abs(normal(4, 4)),
    },
)
# A rule whose product differs from what it replaces: where a Relu gives 0 it leaves a hundredth.
LEAKY = '''"""A Relu with a leak."""
from npuflow.ir.op import OPS, Node
from npuflow.rules import RULES, Change, Rule


@RULES.entry
class Leak(Rule):
    order = 5
    triggers = ("relu",)
    makes = ("leakyrelu",)

    def rewrite(self, graph, node):
        return Change((node,), (Node(OPS["leakyrelu"](alpha=0.01), node.inputs, node.outputs, node.origin),))
'''
RECIPE = recipes.RECIPE


@pytest.fixture
def leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that brings the rule."""
    plug = tmp_path / "plugs"
    info = plug / "leaks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leaks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[npuflow.rules]\nleak = leaking\n")
    (plug / "leaking.py").write_text(LEAKY)
    monkeypatch.syspath_prepend(str(plug))
    registry.forget_all()
    yield
    sys.modules.pop("leaking", None)
    monkeypatch.undo()
    registry.forget_all()
    code.forget()


def source(data: bytes, bindings: Bindings | None = None) -> SourceModel:
    reader, bound = FRONTENDS["onnx"](), bindings or Bindings()
    graph = reader.read(data, bound).graph
    feeds = [{i: normal(seed, *graph.type(i).shape) for i in graph.inputs} for seed in (8, 9)]
    return SourceModel(reader.runnable(data, bound), graph.outputs, feeds)


def found(data: bytes, original: SourceModel) -> tuple[tuple[str, ...], bool]:
    reading = FRONTENDS["onnx"]().read(data, Bindings())

    def replay(skip: tuple[str, ...], most: int | None) -> tuple[Graph, tuple[Applied, ...]]:
        done = rewritten(reading, skip, most)
        return done.graph, done.applied

    named, cured = culprits(original, replay)
    assert all(c.before is not None and c.after is not None and c.before < 1e-4 < c.after for c in named)
    return tuple(c.change.rule for c in named), cured


def test_rewrites_can_be_stopped_anywhere() -> None:
    graph = FRONTENDS["onnx"]().read(NET, Bindings()).graph
    whole = rewrite(graph)
    assert [a.rule for a in whole.applied] == ["drop_noop", "fold_scale", "fuse_clip"]
    for most in range(len(whole.applied) + 1):
        part = rewrite(graph, most=most)
        assert part.applied == whole.applied[:most]
    assert rewrite(graph, most=0).graph == graph and part.graph == whole.graph
    lines = [a.line() for a in whole.applied]
    assert (
        lines[0] == "Identity d -> nothing"
        and lines[2] == "conv a, relu c -> conv a"
        and lines[1].endswith("-> conv a")
    )


def test_float_rounding_is_let_pass() -> None:
    original = source(NET)
    errors = original.errors(rewritten(FRONTENDS["onnx"]().read(NET, Bindings())).graph)
    assert [e.name for e in errors] == ["y", "z"]
    assert all(e.relative is not None and e.relative < 1e-5 and not e.moved for e in errors)


def test_a_rule_that_moves_values_is_named(leak: None) -> None:
    original = source(NET)
    assert original.moved(rewritten(FRONTENDS["onnx"]().read(NET, Bindings())).graph)
    assert found(NET, original) == (("leak",), True)


def test_reading_is_named_where_no_rule_moved_anything() -> None:
    other = onnx.load_model_from_string(NET)
    next(n for n in other.graph.node if n.op_type == "Sigmoid").op_type = "Tanh"
    original = source(other.SerializeToString())
    reading = FRONTENDS["onnx"]().read(NET, Bindings())
    named, cured = culprits(original, lambda skip, most: (rewritten(reading, skip, most).graph, ()))
    assert [c.change.rule for c in named] == [READING] and not cured


def test_what_cannot_be_compared_is_said() -> None:
    original = source(model("float[1,4] x => float[1,4] y", "y = Log(x)"))
    (error,) = original.errors(
        FRONTENDS["onnx"]().read(model("float[1,4] x => float[1,4] y", "y = Exp(x)"), Bindings()).graph
    )
    assert error.moved and error.relative is None and "finite in one of the two only" in error.note
    ends = {"s": np.int64([0]), "e": np.int64([2]), "a": np.int64([1])}
    short = model("float[1,4] x => float[1,2] y", "y = Slice(x, s, e, a)", ends)
    (error,) = original.errors(FRONTENDS["onnx"]().read(short, Bindings()).graph)
    assert error.note == "its shape is [1, 2] instead of [1, 4]"


def test_cut_points_and_constants_reach_the_source() -> None:
    data = model("float[1,4] x, float[1] g => float[1,4] y", "a = Mul(x, g) b = Exp(a) y = Neg(b)")
    bindings = Bindings({}, {}, ("b",), {"g": 2.0})
    original = source(data, bindings)
    graph = rewritten(FRONTENDS["onnx"]().read(data, bindings)).graph
    assert original.outputs == ("b",) and not original.moved(graph)
    np.testing.assert_allclose(original.wanted[0][0], np.exp(2 * original.feeds[0]["x"]), 1e-5)


def test_a_quantised_source_is_compared_without_its_rounding() -> None:
    data = model(
        "float[1,4] x => float[1,4] y",
        "a = Neg(x) q = QuantizeLinear(a, s, z) d = DequantizeLinear(q, s, z) y = Exp(d)",
        {"s": np.array(0.5, np.float32), "z": np.array(128, np.uint8)},
    )
    graph = rewritten(FRONTENDS["onnx"]().read(data, Bindings())).graph
    original = source(data)
    assert not original.moved(graph)
    assert SourceModel(data, graph.outputs, original.feeds).moved(graph)


def test_a_source_that_draws_random_numbers_is_known() -> None:
    assert not source(model("float[1,4] x => float[1,4] y", "y = RandomNormalLike(x)")).repeats
    assert source(NET).repeats


def made(folder: Path, *sets: str) -> tuple[Result, RewriteCheck]:
    (folder / "net.toml").write_text(RECIPE)
    (folder / "net.onnx").write_bytes(NET)
    np.savez(folder / "calib.npz", x=normal(5, 6, 3, 8, 8))
    result = build(folder / "net.toml", sets, until="rewrite_check", cache=folder / "cache")
    kept = open_cache(load_recipe(folder / "net.toml"), Settings(cache=folder / "cache"))
    check = kept.load(result.outputs["rewrite_check"], RewriteCheck)
    assert isinstance(check, RewriteCheck)
    return result, check


def test_a_build_compares_once(tmp_path: Path) -> None:
    _, check = made(tmp_path)
    assert check.summary().keys() == {"outputs", "largest_error", "samples"} and check.samples == 2
    again, _ = made(tmp_path, "calibrate.method=mse")
    assert again.status["rewrite_check"] == {None: "hit"}


def test_a_build_warns_with_the_rule_and_what_helps(tmp_path: Path, leak: None) -> None:
    assert "leak" in RULES
    _, check = made(tmp_path)
    reported = check.summary()
    assert 'the rule "leak" moved it' in reported["warning"] and "relu" in reported["warning"]
    assert reported["warning_hint"].startswith('[parse] skip = ["leak"] restores every output of the model')
    applied = rewritten(FRONTENDS["onnx"]().read(NET, Bindings())).applied
    errors, moved, changes = of_rewrites(applied, check.errors, check.culprits, check.reason)
    assert (
        moved[2][0][0] == "leak"
        and [row[0] for row in errors[2]] == ["y", "z"]
        and len(changes[2]) == len(applied)
    )
    _, without = made(tmp_path, "parse.skip=['leak']")
    assert "warning" not in without.summary()
