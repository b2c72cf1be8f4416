"""One runner for many threads: the same outputs as one thread gives, and shadows that
belong to the thread that asked."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.program.container import Program
from npuflow.quantise.config import Quantize
from npuflow.runner.simulated import Array, ProgramRunner
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build
from tests.networks.random_networks import network

THREADS, RUNS = 4, 100


Made = tuple[Program, list[dict[str, Array]]]


def several(program: Program, shape: tuple[int, ...]) -> Made:
    """A program and inputs that all differ."""
    rng = np.random.default_rng(0)
    return program, [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(THREADS * RUNS)]


@pytest.fixture(scope="module")
def made() -> Made:
    graph, inputs = network(random.Random(3), Numerics())
    return several(build(graph, SMALL), inputs["x"].shape)


@pytest.fixture(scope="module")
def split() -> Made:
    """Two parts on the NPU and one on the host between them."""
    nodes = [
        Node(OPS[op](), (a,), (b,))
        for op, a, b in (("tanh", "x", "a"), ("sigmoid", "a", "b"), ("relu", "b", "y"))
    ]
    values = {v: Value(v, TensorType((4, 32))) for v in "xaby"}
    graph = Graph(("x",), ("y",), tuple(nodes), MappingProxyType(values), MappingProxyType({}))
    ranges = dict.fromkeys(values, (-2.0, 2.0))
    done = quantize_graph(graph, lambda i: i != 1, ranges, Quantize(), Numerics())
    program = build(done.graph, SMALL)
    assert [step["kind"] for step in program.meta["steps"]].count("host") == 1
    return several(program, (4, 32))


@pytest.mark.parametrize("network", ["made", "split"])
def test_four_threads_give_what_one_thread_gives(network: str, request: pytest.FixtureRequest) -> None:
    program, feeds = request.getfixturevalue(network)
    alone, shared = ProgramRunner(program), ProgramRunner(program)
    serial = [alone.run(feed) for feed in feeds]
    assert len({o.tobytes() for found in serial for o in found.values()}) > RUNS, (
        "the inputs must tell runs apart"
    )

    def runs(thread: int) -> list[dict[str, Array]]:
        return [shared.run(feed) for feed in feeds[thread * RUNS : (thread + 1) * RUNS]]

    with ThreadPoolExecutor(THREADS) as pool:
        found = [one for part in pool.map(runs, range(THREADS)) for one in part]
    wrong = [
        i for i, (a, b) in enumerate(zip(found, serial, strict=True)) if any((a[n] != b[n]).any() for n in b)
    ]
    assert not wrong, f"{len(wrong)} of {len(feeds)} runs differ"


def test_threads_dump_different_values_and_batches_beside_each_other(made: Made) -> None:
    """Every thread asks for something else; what taps showed is its own, however long it looks at it."""
    program, feeds = made
    shared, inner = ProgramRunner(program, batch=3), [*program.taps.values][:1]
    wants: list[bool | list[str]] = [True, inner, False, True]

    def runs(thread: int) -> list[tuple[list[dict[str, Array]], list[Array]]]:
        found = []
        for start in range(10):
            outputs = shared.run_many(feeds[start : start + 1 + thread], dump=wants[thread])
            shown = shared.shadows
            time.sleep(0.001)
            found.append(
                (outputs, [shadow.array.copy() for shadow in shown.values()] if wants[thread] else [])
            )
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(runs, range(THREADS)))
    for thread, found in enumerate(together):
        alone = runs(thread)
        for (got, seen), (want, expected) in zip(found, alone, strict=True):
            assert [sorted(one) for one in got] == [sorted(one) for one in want]
            for one, other in zip(got, want, strict=True):
                for name, array in other.items():
                    np.testing.assert_array_equal(one[name], array, err_msg=name)
            assert len(seen) == len(expected) and all(map(np.array_equal, seen, expected))


def test_a_run_that_fails_leaves_no_machine_behind(made: Made) -> None:
    program, feeds = made
    runner = ProgramRunner(program)
    want = runner.run(feeds[0])
    (machine,) = next(iter(runner._idle.values()))
    machine.steps = [lambda: (_ for _ in ()).throw(ZeroDivisionError())] * len(machine.steps)
    with pytest.raises(ZeroDivisionError):
        runner.run(feeds[0])
    for name, array in runner.run(feeds[0]).items():
        np.testing.assert_array_equal(array, want[name])
