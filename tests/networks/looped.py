"""Recurrent layers as loops of integers, and their programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from npuflow.checks.agreement import compare
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import Array
from npuflow.ir.unroll import rolled, written_out
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import RULES
from npuflow.run.floats import FloatRun
from npuflow.run.interpret import interpret
from npuflow.search.plan import plan_network
from npuflow.search.tilings import DEFAULT_LEVEL
from npuflow.sim.hazards import hazards_of
from npuflow.stages._lengths import with_length
from npuflow.stages._step_counts import Sizes
from npuflow.stages._step_masks import with_zeros_behind
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.harness import machine
from tests.networks.onnx_text import normal, rewritten

Range = tuple[float, float]


def quantised(data: bytes, target: Target) -> tuple[Graph, dict[str, Array]]:
    """The integer graph of a model whose inputs are floats, and an input."""
    graph = rewritten(data).graph
    feeds = {i: normal(7, *graph.type(i).shape) for i in graph.inputs}
    return integers(graph, feeds, target), feeds


def integers(
    graph: Graph, feeds: dict[str, Array], target: Target, scheme: Quantize | None = None
) -> Graph:
    """The integer graph, with the ranges of one input."""
    ranges, placed = ranges_of(graph, feeds), place(graph, target)
    return quantize_graph(graph, placed.on_npu, ranges, scheme or Quantize(), target.numerics).graph


def free_length(
    make: Callable[[int], bytes], most: int, target: Target, ranges: Mapping[str, Range] | None = None,
    zeros: bool = False, least: int = 1,
) -> tuple[Graph, dict[str, Array], Mapping[str, Range]]:
    """The integer graph of models by their number of steps, for any number up to the most; an input; and the
    ranges of its values, where none are given. `zeros`: convolutions read zeros behind the last step."""
    sizes = Sizes(lambda steps: graph_of(make(steps)), least, most)
    steps = sizes.steps()
    whole = with_length(sizes.graph(most), steps, "T", least, most)
    whole = with_zeros_behind(whole, steps, sizes.compared(steps)) if zeros else whole
    graph, name = prune(rewrite(whole, list(RULES.names())).graph), whole.lengths[0].name
    feeds = {i: normal(7, *graph.type(i).shape) for i in graph.inputs if i != name}
    feeds[name] = np.full(graph.type(name).shape, most, np.int32)
    ranges = ranges or ranges_of(graph, feeds)
    placed = place(graph, target)
    made = quantize_graph(graph, placed.on_npu, ranges, Quantize(), target.numerics).graph
    return made, feeds, ranges


def ranges_of(graph: Graph, feeds: Mapping[str, Array]) -> Mapping[str, Range]:
    """Of all values, of one input."""
    made = [o for n in graph.nodes for o in n.outputs if o]
    real = {**feeds, **FloatRun.of(graph, made).run(feeds)}
    return {name: (float(a.min()), float(a.max())) for name, a in real.items() if a.dtype == np.float32}


def program_of(
    graph: Graph, target: Target, paired: bool = False, cores: int = 1, nested: bool = False,
    level: int = DEFAULT_LEVEL,
) -> Program:
    """The program of a graph, its loops as repeated commands, as a file has it. `paired`: two loops that may
    run beside each other as one; `cores`: each on one of so many; `nested`: loops in loops as blocks in
    blocks."""
    few = rolled(graph, paired, cores, nested)
    plan = plan_network(few, machine(target), target.numerics, level)
    return Program.from_bytes(generate(few, plan, target).to_bytes())


def ranges_of_all(graph: Graph, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Range]:
    """The ranges of all floats over several inputs; all hold 0."""
    made = [o for node in graph.nodes for o in node.outputs if o]
    runner, ranges = FloatRun.of(graph, made), dict[str, Range]()
    for given in feeds:
        for value, array in {**given, **runner.run(given)}.items():
            if array.dtype == np.float32:
                low, high = ranges.get(value, (0.0, 0.0))
                ranges[value] = min(low, float(array.min())), max(high, float(array.max()))
    return ranges


def agrees(graph: Graph, feeds: Sequence[Mapping[str, Array]], target: Target) -> None:
    """Reference, executor, simulator and the loop written out: all values of all of them, and no hazards."""
    program = program_of(graph, target)
    assert not hazards_of(program, order_of(program))
    checks = compare(graph, program, target.numerics, feeds)
    assert checks and not [one for one in checks if one.different or one.executor]
    straight = written_out(graph)
    for given in feeds:
        wanted = interpret(straight, given, target.numerics)
        for output, array in interpret(graph, given, target.numerics).items():
            np.testing.assert_array_equal(array, wanted[output])
