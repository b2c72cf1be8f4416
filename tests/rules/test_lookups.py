"""Look-ups and rankings: indices that are computed, or come from outside, as whole numbers on the NPU."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.ir.graph import Graph
from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import host_session, interpret
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.op import check_program
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.whole.execute.executor import Executor
from tests.networks.onnx_text import TARGET, model, normal, ops, rewritten

TABLE = normal(1, 40, 8)
WEIGHTS = {
    "table": TABLE,
    "wide": normal(2, 3, 40, 4),
    "w": normal(3, 8, 5),
    "k": np.array([3], np.int64),
    "depth": np.array(5, np.int64),
    "ends": np.array([-1.0, 2.0], np.float32),
}
IDS = np.random.default_rng(5).integers(-40, 40, (2, 6))


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    found = {}
    for i in graph.inputs:
        kind = graph.type(i)
        own = np.resize(IDS, kind.shape) % 4 - 2 if i == "near" else np.resize(IDS, kind.shape)
        found[i] = own if kind.dtype == "int64" else normal(7, *kind.shape)
    return found


def quantised(
    graph: Graph, given: dict[str, np.ndarray], hosts: Set[str] = frozenset({"Cast"})
) -> Graph:
    """For the target, with ranges of one sample; nothing but Casts at the ends is the host's, or `hosts`."""
    placed = place(graph, TARGET)
    assert {op for op, why in placed.reasons() if why != "dtype int64"} <= hosts, placed.reasons()
    wanted = [o for n in graph.nodes for o in n.outputs if o and graph.type(o).dtype == "float32"]
    found = zip(wanted, host_session(export_model(graph, wanted)).run(wanted, given), strict=True)
    known = [(i, a) for i, a in given.items() if a.dtype == np.float32]
    ranges = {name: (float(a.min()), float(a.max())) for name, a in (*known, *found)}
    made = quantize_graph(graph, placed.on_npu, ranges, Quantize(), TARGET.numerics)
    assert not [note.reason for note in made.notes if note.on_host]
    return made.graph


@pytest.mark.parametrize("rows", [65538, 140_001])
def test_tables_of_more_rows_than_an_index_tells_apart(rows: int) -> None:
    """As large vocabularies have: a block of rows is loaded, and one picked of it."""
    ids = np.array([[0, 1, 65535, 65536, rows - 1, -1], [-rows, 3, rows - 2, 2, 40000, 40001]])
    data = model("int64[2,6] ids => float[2,6,3] y", "y = Gather(table, ids)", {"table": normal(1, rows, 3)})
    done = rewritten(data, feeds={"ids": ids})
    hosts = {"Cast", "Mod", "Sub", "Div", "Add"}
    assert ops(done).count("lookup") == 2
    assert {o for o in ops(done) if o.startswith("host:")} <= {f"host:{name.lower()}" for name in hosts}
    graph = quantised(done.graph, {"ids": ids}, hosts)
    check_program(graph, {"ids": ids}, TARGET, "a table of many rows")
    for wrong in (rows, -rows - 1):
        with pytest.raises(DataError, match="index"):
            interpret(graph, {"ids": np.full((2, 6), wrong)}, TARGET.numerics)


def test_a_table_without_blocks_of_equal_size_stays_on_the_host() -> None:
    data = model("int64[6] ids => float[6,3] y", "y = Gather(table, ids)", {"table": normal(1, 65537, 3)})
    done = rewritten(data, feeds={"ids": np.arange(6)})
    (why,) = (why for _, why in place(done.graph, TARGET).reasons() if "65537 rows" in why)
    assert "tells 65536 apart" in why


@pytest.mark.parametrize(
    ("signature", "body", "made"),
    [
        ("int64[2,6] ids => float[2,6,5] y", "e = Gather(table, ids) y = MatMul(e, w)", "lookup"),
        ("int64[6] ids => float[3,6,4] y", "y = Gather<axis=1>(wide, ids)", "lookup"),
        ("float[4,8] x, int64[3] near => float[3,8] y", "r = Relu(x) y = Gather(r, near)", "lookup"),
        ("float[4,8] x, int64[2,8] near => float[2,8] y", "y = GatherElements(x, near)", "lookup"),
        ("float[5,4,2] x, int64[3,2,1] near => float[3,2,4,2] y", "y = GatherND(x, near)", "lookup"),
        ("int64[2,6] ids => float[2,5,6] y", "y = OneHot<axis=1>(ids, depth, ends)", "lookup"),
        ("float[2,6,7] x => int64[2,1,7] y", "y = ArgMax<axis=1>(x)", "argextreme"),
        ("float[2,6] x => int64[2] y", "y = ArgMin<axis=-1, keepdims=0>(x)", "argextreme"),
        ("float[2,9] x => float[2,3] y, int64[2,3] p", "y, p = TopK(x, k)", "topk"),
        (
            "float[6,40] x => float[6,8] y",
            "p = ArgMax<axis=1, keepdims=0>(x) y = Gather(table, p)",
            "argextreme",
        ),
        (
            "float[3,9] x, float[9,8] t => float[3,3,8] y",
            "v, p = TopK(x, k) y = Gather(t, p)",
            "topk",
        ),
    ],
)
def test_computed_indices_run_on_the_npu(signature: str, body: str, made: str) -> None:
    data = model(signature, body, WEIGHTS)

    given = feeds(graph_of(data))
    done = rewritten(data, feeds=given)
    assert made in ops(done)
    assert {o for o in ops(done) if o.startswith("host:")} <= {"host:cast"}
    graph = quantised(done.graph, given)
    check_program(graph, given, TARGET, "computed indices")
    executor = Executor(graph, TARGET.numerics).run(given)
    for name, array in interpret(graph, given, TARGET.numerics).items():
        np.testing.assert_array_equal(executor[name], array)


def test_positions_pass_to_a_lookup_without_the_host() -> None:
    data = model(
        "float[6,40] x => float[6,8] y", "p = ArgMax<axis=1, keepdims=0>(x) y = Gather(table, p)", WEIGHTS
    )
    assert not [o for o in ops(rewritten(data)) if o.startswith("host:")]


@pytest.mark.parametrize("index", [40, -41, 70_000])
def test_an_index_outside_the_table_is_an_error(index: int) -> None:
    data = model("int64[6] ids => float[6,8] y", "y = Gather(table, ids)", WEIGHTS)
    done = rewritten(data, feeds={"ids": IDS[0]})
    graph = quantised(done.graph, {"ids": IDS[0]})
    plan = plan_network(graph, Machine(TARGET.compute, TARGET.memory, TARGET.dma), TARGET.numerics)
    program = generate(graph, plan, TARGET)
    wrong = {"ids": np.array([1, 2, index, 3, 4, 5])}
    for run in (
        lambda: ProgramRunner(program).run(wrong),
        lambda: interpret(graph, wrong, TARGET.numerics),
        lambda: Executor(graph, TARGET.numerics).run(wrong),
    ):
        with pytest.raises(DataError, match=f"index {index}; the table has 40 rows"):
            run()


def test_a_constant_table_is_in_the_program_once() -> None:
    data = model("int64[6] ids => float[6,8] y", "y = Gather(table, ids)", WEIGHTS)
    graph = quantised(rewritten(data, feeds={"ids": IDS[0]}).graph, {"ids": IDS[0]})
    plan = plan_network(graph, Machine(TARGET.compute, TARGET.memory, TARGET.dma), TARGET.numerics)
    program = generate(graph, plan, TARGET)
    assert len(program.const) < TABLE.size + 64
    kinds = [c.opcode for c in program.decoded[0]]
    assert kinds.count("LOADROWS") == 1 and "GATHER" not in kinds


@pytest.mark.parametrize("order", ["int64[1,2,6]", "int64[1,6,2]"])
def test_indices_into_two_tables_in_one_input_are_checked_by_their_own(order: str) -> None:
    """As taggers have them, whose input holds a word's letter and its syllable; a part that is read by no
    table may hold anything."""
    axis = 1 if order.endswith("2,6]") else 2
    body = f"""letter = Gather<axis={axis}>(ids, i0) part = Gather<axis={axis}>(ids, i1)
        first = Gather(table, letter) second = Gather(few, part)
        y = Add(first, second)"""
    consts = {"few": normal(5, 3, 8), "i0": np.array(0), "i1": np.array(1)}
    data = model(f"{order} ids => float[1,6,8] y", body, {**WEIGHTS, **consts})
    held = np.stack([IDS[0] % 40, IDS[0] % 3])[None]
    ids = held if axis == 1 else np.ascontiguousarray(held.transpose(0, 2, 1))
    done = rewritten(data, feeds={"ids": ids})
    graph = quantised(done.graph, {"ids": ids}, {"Cast"})
    check_program(graph, {"ids": ids}, TARGET, "two tables")
    plan = plan_network(graph, Machine(TARGET.compute, TARGET.memory, TARGET.dma), TARGET.numerics)
    program = ProgramRunner(generate(graph, plan, TARGET))
    for at, rows in ((0, 40), (1, 3)):
        wrong = ids.copy()
        wrong[(0, at, 3) if axis == 1 else (0, 3, at)] = rows
        for run in (program.run, lambda fed: interpret(graph, fed, TARGET.numerics)):
            with pytest.raises(DataError, match=f"index {rows}; the table has {rows} rows"):
                run({"ids": wrong})


def test_what_no_table_reads_of_an_input_may_be_any_number() -> None:
    body = "letter = Gather(ids, i0) y = Gather(table, letter)"
    ids = np.stack([IDS[0] % 40, np.full(6, 3000)])
    data = model("int64[2,6] ids => float[6,8] y", body, {**WEIGHTS, "i0": np.array(0)})
    graph = quantised(rewritten(data, feeds={"ids": ids}).graph, {"ids": ids}, {"Cast"})
    check_program(graph, {"ids": ids}, TARGET, "a part of the input")
    with pytest.raises(DataError, match="index 40; the table has 40 rows"):
        interpret(graph, {"ids": np.where(ids == 3000, ids, 40)}, TARGET.numerics)
