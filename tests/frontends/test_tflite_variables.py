"""Variables of TFLite files as states, judged by LiteRT over several calls in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import npuflow
from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings, Reading
from npuflow.frontends.tflite.schema import parsed
from npuflow.input.sources import file_has_states, gathered
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.run.interpret import Interpreter, host_session
from npuflow.runner.simulated import ProgramRunner
from tests.frontends.tflite_judged import integers, wide_multipliers
from tests.frontends.tflite_models import Net

SHAPE, CALLS = (1, 6), 6
Q = ((0.05,), (-7,), 0)
STARTS = {
    "zero": np.zeros(SHAPE, np.float32),
    "one": np.full(SHAPE, 0.5, np.float32),
    "many": np.linspace(-2, 2, 6, dtype=np.float32).reshape(SHAPE),
}


class Stateful(Net):
    """A network with variables; a second subgraph gives them their first values."""

    def __init__(self, coded: bool) -> None:
        super().__init__()
        self.coded, self.first = coded, Net()
        self.first.model, self.first.graph.name = self.model, b"NoOp"
        self.model.subgraphs.append(self.first.graph)

    def value(self, name: str, shape: Sequence[int] = SHAPE) -> str:
        return self.tensor(name, shape, "int8" if self.coded else "float32", Q if self.coded else None)

    def stored(self, net: Net, name: str, values: Array) -> str:
        if not self.coded:
            return net.constant(name, values)
        codes = np.clip(np.rint(values / Q[0][0]) + Q[1][0], -128, 127).astype(np.int8)
        return net.constant(name, codes, Q)

    def once(self) -> None:
        self.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)

    def handle(self, name: str, net: Net | None = None) -> str:
        net = net or self
        handle = net.tensor(f"{name}:handle{len(net.graph.tensors)}", (), "resource")
        net.op("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName=name.encode(), container=b"")
        return handle

    def starts(self, name: str, values: Array) -> None:
        data = self.stored(self.first, f"{name}:first", values)
        self.first.op("ASSIGN_VARIABLE", [self.handle(name, self.first), data], [], "AssignVariableOptions")

    def read(self, handle: str, name: str, shape: Sequence[int] = SHAPE) -> str:
        self.op("READ_VARIABLE", [handle], [self.value(name, shape)], "ReadVariableOptions")
        return name

    def assign(self, handle: str, value: str) -> None:
        self.op("ASSIGN_VARIABLE", [handle, value], [], "AssignVariableOptions")

    def add(self, one: str, other: str, result: str) -> str:
        self.op("ADD", [one, other], [self.value(result)], "AddOptions")
        return result


def accumulating(coded: bool, start: str) -> bytes:
    """Gives the sum before and behind this call: read before the assignment, and after it."""
    net = Stateful(coded)
    net.starts("sum", STARTS[start])
    net.once()
    handle = net.handle("sum")
    before = net.read(handle, "before")
    net.assign(handle, net.add(before, net.value("x"), "total"))
    after = net.read(handle, "after")
    net.add(after, before, "y")
    return net.done(["x"], ["before", "after", "y"])


def swapping(coded: bool) -> bytes:
    """Two variables change places, a third is only read, a fourth is assigned before it is read."""
    net = Stateful(coded)
    net.starts("a", STARTS["one"])
    net.starts("b", STARTS["zero"])
    net.starts("fixed", STARTS["many"])
    net.once()
    a, b, fixed, own = (net.handle(name) for name in ("a", "b", "fixed", "own"))
    first, second = net.read(a, "first"), net.read(b, "second")
    net.assign(a, net.add(second, net.value("x"), "moved"))
    net.assign(b, first)
    net.assign(own, "moved")
    net.add(net.read(own, "taken"), net.read(fixed, "held"), "y")
    net.add(net.read(net.handle("b"), "again"), "y", "z")        # a second handle of one variable
    return net.done(["x"], ["y", "z"])


def wanted(data: bytes, feeds: Sequence[Array]) -> list[list[Array]]:
    """LiteRT's outputs as real numbers, call after call."""
    net = LiteRT(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    net.allocate_tensors()
    (given,), found = net.get_input_details(), []
    for x in feeds:
        codes = parsed(data).tensors[parsed(data).inputs[0]].codes
        net.set_tensor(given["index"], coded(x) if codes else x)
        net.invoke()
        found.append([real(net.get_tensor(d["index"])) for d in net.get_output_details()])
    return found


def coded(x: Array) -> Array:
    return np.clip(np.rint(x / Q[0][0]) + Q[1][0], -128, 127).astype(np.int8)


def real(held: Array) -> Array:
    return (held.astype(np.int64) - Q[1][0]) * np.float32(Q[0][0]) if held.dtype == np.int8 else held.copy()


def read(data: bytes, bindings: Bindings | None = None) -> Reading:
    return FRONTENDS["tflite"]().read(data, bindings or Bindings())


def feeds(coded_ones: bool) -> list[Array]:
    rng = np.random.default_rng(0)
    return [(rng.integers(-9, 10, SHAPE) * 0.05).astype(np.float32) for _ in range(CALLS)]


MADE: dict[str, Callable[[bool], bytes]] = {
    **{start: lambda coded, start=start: accumulating(coded, start) for start in STARTS},
    "swapping": swapping,
}


@pytest.mark.parametrize("name", MADE)
def test_floats_follow_litert_over_several_calls(name: str) -> None:
    data = MADE[name](False)
    graph = read(data).graph
    session = host_session(export_model(graph))
    state = {given: np.zeros(graph.type(given).shape, np.float32) for _, given in graph.state}
    assert state and graph.inputs == ("x", *state)
    for x, theirs in zip(feeds(False), wanted(data, feeds(False)), strict=True):
        made = dict(zip(graph.outputs, session.run(None, {"x": x, **state}), strict=True))
        state = {given: made[output] for output, given in graph.state}
        mine = [made[name] for name in graph.outputs if name not in dict(graph.state)]
        for one, other in zip(mine, theirs, strict=True):
            assert np.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("name", MADE)
def test_codes_are_those_of_litert_over_several_calls(name: str) -> None:
    data, target = MADE[name](True), wide_multipliers()
    graph = integers(data, target)
    runner = Interpreter(graph, target.numerics)
    state = {given: np.zeros(graph.type(given).shape, np.float32) for _, given in graph.state}
    assert state
    for output, given in graph.state:
        assert graph.values[given].quant is not None, "the file's scale"
        assert graph.values[given].quant.scale == pytest.approx(Q[0])
        assert graph.values[output].quant == graph.values[given].quant
    for x, theirs in zip(feeds(True), wanted(data, feeds(True)), strict=True):
        made = runner.run({"x": x, **state})
        state = {given: made[output] for output, given in graph.state}
        mine = [made[name] for name in graph.outputs if name not in dict(graph.state)]
        for one, other in zip(mine, theirs, strict=True):
            assert np.allclose(one, other, atol=1e-5)


def test_a_variable_that_is_only_read_is_a_constant_and_one_assigned_first_is_no_state() -> None:
    assert [given for _, given in read(swapping(False)).graph.state] == ["a", "b"]


def test_a_build_carries_the_states(tmp_path: Path) -> None:
    """The recipe says nothing of states: sequences are walked along, and the program keeps them."""
    data, path = accumulating(True, "one"), tmp_path / "sum.tflite"
    path.write_bytes(data)
    assert file_has_states(path)
    clips = np.stack([np.stack(feeds(True)) for _ in range(3)])
    build = npuflow.compile(
        path, "edge-4t", data={"x": clips}, cache=tmp_path / "cache", until="codegen",
        placement={"min_macs": 0, "min_bytes": 0},
    )
    runner = ProgramRunner(build.program)
    assert runner.state == (("sum:next", "sum"),)
    found = runner.run_many([{"x": x} for x in feeds(True)])
    for mine, theirs in zip(found, wanted(data, feeds(True)), strict=True):
        for name, other in zip(("before", "after", "y"), theirs, strict=True):
            assert np.abs(mine[name] - other).max() <= 1.01 * Q[0][0]


def test_cut_points_keep_the_states_that_they_need() -> None:
    graph = read(swapping(False), Bindings(outputs=("moved",))).graph
    assert graph.outputs[0] == "moved"
    assert [given for _, given in graph.state] == ["a", "b"], "b is read, and takes the value of a"
    alone = read(accumulating(False, "zero"), Bindings(constants={"sum": 0.0})).graph
    assert alone.state == () and alone.inputs == ("x",)


def refused(net: Stateful, *outputs: str) -> str:
    with pytest.raises(ModelError) as caught:
        read(net.done(["x"], outputs))
    assert caught.value.code == "NF-MODEL-066"
    return str(caught.value)


def test_what_cannot_be_a_state_says_why() -> None:
    computed = Stateful(False)
    data = computed.stored(computed.first, "data", STARTS["one"])
    computed.first.tensor("sine", SHAPE)
    computed.first.op("SIN", [data], ["sine"])
    computed.first.op(
        "ASSIGN_VARIABLE", [computed.handle("sum", computed.first), "sine"], [], "AssignVariableOptions"
    )
    computed.once()
    handle = computed.handle("sum")
    computed.assign(handle, computed.add(computed.read(handle, "r"), computed.value("x"), "y"))
    said = refused(computed, "y")
    assert "CALL_ONCE: its subgraph holds SIN" in said and "keep the state outside" in said
    unset = Stateful(False)
    handle = unset.handle("sum")
    unset.assign(handle, unset.add(unset.read(handle, "r"), unset.value("x"), "y"))
    assert 'READ_VARIABLE: nothing gives variable "sum" a value before it is read' in refused(unset, "y")
    grows = Stateful(False)
    grows.starts("sum", STARTS["zero"])
    grows.once()
    handle = grows.handle("sum")
    grows.tensor("both", (2, 6))
    grows.op(
        "CONCATENATION", [grows.read(handle, "r"), grows.value("x")], ["both"], "ConcatenationOptions", axis=0
    )
    grows.assign(handle, "both")
    assert 'ASSIGN_VARIABLE: variable "sum" has more than one shape: [2, 6] and [1, 6]' in refused(
        grows, "both"
    )


def test_subgraphs_beside_the_first_do_not_matter() -> None:
    """Several subgraphs of which only one is the start of variables."""
    net = Stateful(False)
    net.starts("sum", STARTS["zero"])
    other = schema.SubGraphT()
    other.tensors, other.operators, other.inputs, other.outputs = [], [], [], []
    net.model.subgraphs.append(other)
    net.once()
    handle = net.handle("sum")
    net.assign(handle, net.add(net.read(handle, "r"), net.value("x"), "y"))
    assert [given for _, given in read(net.done(["x"], ["y"])).graph.state] == ["sum"]


def test_a_file_without_variables_or_damaged_has_no_states(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    data = accumulating(False, "zero")
    for cut in (0, 3, 9, 40, len(data) // 2):
        path.write_bytes(data[:cut])
        assert not file_has_states(path) or cut > 40
    assert not file_has_states(tmp_path / "absent.tflite") and not file_has_states(tmp_path / "net.other")
    path.write_bytes(data)
    assert gathered(path)[0] == "tflite"
