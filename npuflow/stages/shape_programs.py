"""The program of every further shape of [model] shapes, checked on the simulator as the first one is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.returned import RETURNED
from npuflow.base.wording import counted
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Preparation
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import Array
from npuflow.program.container import Program
from npuflow.run.interpret import Interpreter
from npuflow.stages._targets import WholeTarget
from npuflow.stages.codegen import CompiledProgram, ProgramTable, codegen
from npuflow.stages.costs import SubgraphCosts
from npuflow.stages.parse import Parsed
from npuflow.stages.samples import Sample
from npuflow.stages.shapes import ShapedNetwork
from npuflow.stages.simulate import Simulate, Simulation, simulated
from npuflow.stages.tiling import Planning
from npuflow.stages.tiling import tiling as tiled_by
from npuflow.tune.correct.shared_weights import stretched

FILE = "model.npu"                        # where `CompiledProgram` reads it


@dataclass(frozen=True)
class ShapedProgram(Artifact, spread=("compiled", "simulation")):
    """A program of one shape, and what the simulator found of it."""

    compiled: CompiledProgram
    simulation: Simulation

    @property
    def program(self) -> Program:
        return self.compiled.program

    def summary(self) -> dict[str, Any]:
        return self.simulation.summary()


@stage(over="shapes", when="model.shapes", batch=1, cpu="native", lighter="[simulate] samples = 1")
def shape_programs(
    shapes: Items[ShapedNetwork],
    graph: Parsed,
    samples: Items[Sample],
    planning: Planning, program: ProgramTable, simulate: Simulate, whole: WholeTarget,
) -> Iterator[tuple[str, ShapedProgram]]:
    """Tile, generate and simulate. Samples are those of the first shape, cut off or repeated along the axes
    that differ: they show whether the bits agree, not how accurate the network is."""
    for name, one in shapes.items():
        tiled = tiled_by(
            quantized=one, costs=SubgraphCosts({}), planning=planning, planned=whole.planned
        )
        made: CompiledProgram = codegen(
            quantized=one, tiled=tiled, whole=whole, preparation=Preparation(), program=program
        )
        RETURNED.give_back()                  # the search's and the generator's own
        fed = list(feeds(samples, graph.graph, one.graph, simulate.samples))
        if one.graph.state:
            fed = [runnable(one.graph, whole.planned.numerics, feed) for feed in fed]
        log(f"{name}: {counted(len(fed), 'sample')} of the first shape, cut off or repeated")
        yield name, ShapedProgram(made, simulated(one.graph, made.program, fed, whole.planned.numerics))


def feeds(samples: Items[Sample], first: Graph, graph: Graph, count: int) -> Iterator[dict[str, Array]]:
    """What the first `count` samples feed a graph of another shape."""
    types, own = ({name: g.type(name) for name in g.inputs} for g in (first, graph))
    whole = (one.content for one in samples.values() if not one.content.broken)
    for content in islice(whole, count):
        yield content.feed(own) if content.noise is not None else stretched(content.feed(types), own)


def runnable(graph: Graph, numerics: Numerics, feed: dict[str, Array]) -> dict[str, Array]:
    """A sample of a network with state that can run: a counter of the state (the position in a cache) begins
    at 0 where it leaves less room than this shape takes, so that rows outside of a table were looked up."""
    looked = tuple(n.outputs[0] for n in graph.nodes if "table" in map(n.op.role, range(len(n.inputs))))
    counters = [name for _, name in graph.state if graph.type(name).dtype in ("int32", "int64")]
    if not looked or not counters:
        return feed
    part = prune(graph.replaced(outputs=looked, state=()))
    try:
        Interpreter(part, numerics).run({name: feed[name] for name in part.inputs})
    except DataError:
        return {**feed, **{name: np.zeros_like(feed[name]) for name in counters}}
    return feed
