"""Rewriting uses no operator's code that the key of `parse` does not hold, whatever a
node becomes on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from npuflow.base.code import closure
from npuflow.base.errors import NpuflowError
from npuflow.base.registry import touching
from npuflow.base.tables import FilePath
from npuflow.cli import main
from npuflow.flow.keys import used_code
from npuflow.frontends import FRONTENDS
from npuflow.ir.graph import Graph
from npuflow.stages.model import ModelTable, plugins
from npuflow.stages.parse import parse, rewritten
from tests.networks.onnx_cases import cases

TABLE = ModelTable(FilePath("net.onnx", Path("net.onnx")))
OPSETS = (7, 9, 10, 12, 17)

BRANCHES = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y) <bool c =
    {1}> {
    y = If (c) <then_branch = t () => (float[1,4,8,8] p) { q = Sigmoid (x) p = Softmax <axis = 1> (q) },
                else_branch = e () => (float[1,4,8,8] r) { r = HardSwish (x) }> }"""
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    { y = my.F (x) }
    <domain: "my", opset_import: ["" : 17]> F (a) => (b) { c = Relu (a) b = Softmax <axis = 1> (c) }"""


def one(text: str, opset: int) -> str:
    return (
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[1,4,8,8] x) => (float[1,4,?,?] y) '
        f'{{ {text} }}'
    )


MODELS = {
    "softmax 11": one("y = Softmax <axis = 1> (x)", 11),
    "log softmax 12": one("y = LogSoftmax <axis = 2> (x)", 12),
    "hardmax 8": one("y = Hardmax (x)", 8),
    "clip 7": one("y = Clip <min = 0.0, max = 6.0> (x)", 7),
    "upsample 9": one("s = Constant <value = float[4] {1, 1, 2, 2}> () y = Upsample (x, s)", 9),
    "a branch": BRANCHES,
    "a function": FUNCTION,
}


@pytest.mark.parametrize("name", MODELS)
def test_the_stage_takes_what_reading_makes_of_a_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    onnx.save_model(parser.parse_model(MODELS[name]), str(tmp_path / "net.onnx"))
    (tmp_path / "net.toml").write_text(
        'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "random"\ncount = 1\n'
    )
    monkeypatch.chdir(tmp_path)
    code = main(["build", "net.toml", "--until", "parse", "--cache", str(tmp_path / "cache")])
    assert code == 0, capfd.readouterr().err


def _held(graph: Graph) -> set[str]:
    """The registry entries whose code the key of `parse` holds for a model that was read as this graph."""
    own = closure(parse.function)
    named = [(registry, name) for registry, names in plugins(graph).items() for name in names]
    return set(used_code(named, [own]))


def _relabelled(case: Any) -> Iterator[bytes]:
    """A node case as it is, and the same text under older opsets, where it may mean
    something else or nothing."""
    yield case.model.SerializeToString()
    for opset in OPSETS:
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx") and entry.version > opset:
                entry.version = opset
                yield model.SerializeToString()


def _read(chosen: list[Any]) -> tuple[list[str], int]:
    """What was used beyond the key, and how many models could be read."""
    strays, count = [], 0
    for case in chosen:
        for data in _relabelled(case):
            try:
                reading = FRONTENDS["onnx"]().read(data, TABLE.bindings)
            except NpuflowError:
                continue
            count += 1
            with touching() as used, contextlib.suppress(NpuflowError):
                rewritten(reading)
            stray = used - _held(reading.graph)
            if stray:
                strays.append(f"{case.name}: {', '.join(sorted(stray))}")
    return strays, count


def test_the_key_holds_what_a_sample_of_the_node_cases_uses() -> None:
    strays, count = _read(list(cases()[::41]))
    assert not strays and count > 40


@pytest.mark.slow
def test_the_key_holds_what_every_node_case_uses() -> None:
    strays, count = _read(list(cases()))
    assert not strays and count > 4000


def test_rewriting_may_use_what_is_in_the_graph_and_what_rules_make() -> None:
    data = parser.parse_model(one("a = Relu (x) y = Softmax <axis = 1> (a)", 17)).SerializeToString()
    ops = plugins(FRONTENDS["onnx"]().read(data, TABLE.bindings).graph)["ops"]
    assert {"host", "relu", "softmax"} <= set(ops) and "erf" not in ops
