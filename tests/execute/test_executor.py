"""The whole-tensor executor makes the reference interpreter's integers: every operator, random graphs,
host parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from npuflow.base.errors import DataError, NpuflowError, TargetError
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, FloatType
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.run.interpret import Interpreter
from npuflow.testing.op import quantised, samples
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.execute.executor import Executor, encoded, numbers
from tests.execute.nets import small
from tests.networks.random_graphs import subject
from tests.tiers import often, spread

NUMERICS = Numerics(wide_acc_bits=48, weight_zero_point=True, weight_bits=(4, 8, 16), activation_bits=(8, 16))
OPERATORS = sorted(n for n in OPS if n not in ("host", "quantizelinear", "dequantizelinear"))
SCHEMES = {8: Quantize(), 16: Quantize(activations=Activations(bits=16))}


def agree(graph: Graph, numerics: Numerics, feeds: list[Mapping[str, Array]], batch: int) -> Executor:
    """Every value of every sample is the interpreter's; also of a rest, and without keeping values."""
    reference, executor = Interpreter(graph, numerics), Executor(graph, numerics, batch)
    found = executor.run_many(feeds, keep=lambda _: True)
    outputs = executor.run_many(feeds)
    for feed, got, last in zip(feeds, found, outputs, strict=True):
        want = reference.run(feed, keep=lambda _: True)
        assert got.keys() == want.keys()
        for value, array in want.items():
            np.testing.assert_array_equal(got[value], array, err_msg=value, strict=True)
        assert last.keys() == {*graph.outputs}
        for value, array in last.items():
            np.testing.assert_array_equal(array, want[value], err_msg=value, strict=True)
    return executor


@pytest.mark.parametrize(("name", "bits"), spread(OPERATORS, list(SCHEMES)))
def test_every_operator(name: str, bits: int) -> None:
    rng = np.random.default_rng(7)
    for sample in samples(name):
        try:
            graph, one = quantised(sample, NUMERICS, SCHEMES[bits])
        except TargetError:                 # a table that no interpolation follows
            continue
        feeds = [one.inputs, *({v: rng.permuted(a) for v, a in one.inputs.items()} for _ in range(3))]
        agree(graph, NUMERICS, feeds, 3)


def drawn(seeds: range) -> int:
    """How many of the seeds' graphs were compared."""
    count = 0
    for seed in seeds:
        s = subject(seed)
        try:
            placed = place(s.graph, s.target)
            graph = quantize_graph(s.graph, placed.on_npu, s.ranges, s.config, s.target.numerics).graph
        except NpuflowError:
            continue
        agree(graph, s.target.numerics, list(s.feeds), 2)
        count += 1
    return count


@pytest.mark.parametrize(("seeds", "least"), often([(range(12), 8), (range(12, 60), 32)], 2))
def test_random_graphs(seeds: range, least: int) -> None:
    assert drawn(seeds) > least


def test_a_network_of_several_layers() -> None:
    graph, feeds, ranges = small()
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), NUMERICS).graph
    executor = agree(graph, NUMERICS, feeds, 2)
    assert not [call for call, _ in executor.timed(feeds[:2]) if call.slow]


def test_parts_on_the_host() -> None:
    graph, feeds, ranges = small()
    for host in (1, 4, 5):
        done = quantize_graph(graph, lambda i, host=host: i != host, ranges, Quantize(), NUMERICS).graph
        agree(done, NUMERICS, feeds, 2)


def test_without_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUFLOW_KERNELS", "exact")
    graph, feeds, ranges = small()
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), NUMERICS).graph
    executor = agree(graph, NUMERICS, feeds, 2)
    assert {call.slow for call, _ in executor.timed(feeds[:2]) if call.what != "move"} == {True}


def test_a_sample_of_another_shape_is_refused() -> None:
    graph, feeds, ranges = small()
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), NUMERICS).graph
    with pytest.raises(DataError, match="has shape"):
        Executor(graph, NUMERICS).run_many([feeds[0], {"x": np.zeros((1, 3, 4, 4), np.float32)}])


def test_bfloat16_at_the_boundary_is_that_of_the_definition() -> None:
    kind = FloatType(16, False, (1.0,), element="bfloat16")
    every = np.arange(1 << 16, dtype=np.uint32)
    near = np.concatenate([every << 16 | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    with np.errstate(invalid="ignore"):                          # NaNs that signal
        real = near.view(np.float32).reshape(2, -1)
        np.testing.assert_array_equal(encoded(real, kind), encode(real, kind), strict=True)
    patterns = every.astype(np.uint16).reshape(256, 256).T
    found, want = numbers(patterns, kind), decode(patterns, kind)
    np.testing.assert_array_equal(found.view(np.uint32), want.view(np.uint32), strict=True)
