"""Simulates the program: hazards, cycles, equality with the reference on every integer tensor.
The whole-tensor executor is compared too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import numpy as np

from npuflow.base.errors import BuildError
from npuflow.base.returned import RETURNED
from npuflow.base.tables import Config, Range
from npuflow.base.wording import counted
from npuflow.checks.agreement import TensorCheck, as_in_sequences, compare, require_equal, require_same
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.lengths import cut
from npuflow.input.pixels.pixels import model_inputs, of_program
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.program.container import Program, instances_of
from npuflow.program.order import order_of
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import compare as compare_forms
from npuflow.report.profile.schedule import worst_groups
from npuflow.report.throughput import throughput
from npuflow.run.interpret import Interpreter
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of, require_safe
from npuflow.sim.rounds import proof_of_rounds
from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.parse import Parsed
from npuflow.stages.quantize import Quantized
from npuflow.stages.samples import Sample, feeds


@dataclass(frozen=True)
class Simulate(Config):
    """How much the simulator checks."""

    samples: Annotated[int, Range(0, None)] = 2
    """Samples on which every integer tensor, the program's and the whole-tensor executor's, is compared
    with the reference interpreter's."""


@dataclass(frozen=True)
class Simulation(Artifact):
    """Per tensor how it compares with the reference; cycles in all, the host's among
    them, and per layer of the NPU."""

    checks: tuple[TensorCheck, ...]
    layers: tuple[Mapping[str, Any], ...]
    totals: Mapping[str, Any]

    def summary(self) -> dict[str, Any]:
        different, unseen = sum(1 for c in self.checks if c.different), sum(c.unseen for c in self.checks)
        tensors, total = sum(1 for c in self.checks if c.elements), self.totals
        clock = {
            "cycles": round(total["cycles"]),
            "ms": _figures(total["milliseconds"]),
            "mb": _figures(total["bytes"] / 1e6),
        }
        clock |= {"per_second": round(total["throughput"]["per_second"])}
        clock |= {"host_cycles": round(total["host_cycles"]), "host_macs": total["host_macs"]}
        found = {**clock, "tensors": tensors, "different": different, "hazards": total["hazards"]}
        return {**found, "unseen": unseen} if unseen else found


def _figures(value: float) -> float:
    """Four of them."""
    return float(f"{value:.4g}")


@stage(cpu="native", lighter="[simulate] samples = 1")
def simulate(
    quantized: Quantized,
    parsed: Parsed,
    compiled: CompiledProgram,
    samples: Items[Sample],
    simulate: Simulate,
    numerics: Numerics,
) -> Simulation:
    """Judge the program's hazards, run it beside the reference, and read the clock."""
    fed = list(feeds(samples, parsed.graph, simulate.samples))
    return simulated(quantized.graph, compiled.program, fed, numerics)


def _at_all_lengths(graph: Graph, program: Program) -> str:
    """Whether no length has a hazard, as far as the stored words show."""
    ranges = ", ".join(f"{one.dim} = {one.least} to {one.most}" for one in graph.lengths)
    proof = proof_of_rounds(program)
    if not proof.proved:
        return f"{ranges}: not proved free of hazards for all lengths, since {proof.why}"
    cases, back = counted(proof.cases, "case"), counted(proof.distance, "round")
    return (
        f"{ranges}: no hazards at any length; proved from the words in {cases} for all "
        f"{counted(proof.numbers, 'number')} of rounds: a command may run beside those of at most {back} "
        "before it, of queues that it waits for"
    )


def _shorter(
    graph: Graph, program: Program, fed: Sequence[Mapping[str, Array]], numerics: Numerics
) -> Iterator[str]:
    """What the program of any length does with a sample that is cut; a fault is an error."""
    if graph.lengths:
        yield _at_all_lengths(graph, program)
    reference, runner = Interpreter(graph, numerics), ProgramRunner(program)
    pixels = of_program(program.meta)
    for one in graph.lengths if fed else ():
        for count in sorted({one.least, (one.least + one.most) // 2}):
            short = program.at({one.name: count})
            order = order_of(short)
            require_safe(short, hazards_of(short, order))
            feed = {**fed[0], one.name: np.full_like(fed[0][one.name], count)}
            wanted, (found,) = reference.run(feed), runner.run_fed([model_inputs(feed, pixels)])
            found, wanted = (cut(program.meta["lengths"], feed, made) for made in (found, wanted))
            for name, array in found.items():
                if not np.array_equal(array, wanted[name]):
                    raise BuildError(
                        f'"{name}" differs from the reference at {one.dim} = {count}', code="NF-SIM-020"
                    ).at(value=name)
            cycles = timeline_of(short, order).cycles
            yield f"{one.dim} = {count}: {cycles:,.0f} cycles, no hazards, all outputs equal"


def _at_indices(
    graph: Graph, program: Program, fed: Sequence[Mapping[str, Array]], numerics: Numerics
) -> Iterator[str]:
    """What a program that reads an index does at the samples' own; a fault is an error."""
    runner, pixels = ProgramRunner(program), of_program(program.meta)
    for one in program.meta.get("indices", ())[:1]:
        name, axes, reference = one["input"], one["axes"], Interpreter(graph, numerics)
        for index in sorted({0, one["most"] // 2}):
            part = program.at({name: index})
            order = order_of(part)
            require_safe(part, hazards_of(part, order))
            yield f"{name} = {index}: {timeline_of(part, order).cycles:,.0f} cycles, no hazards"
        for feed in (as_in_sequences(sample, program.meta) for sample in fed):
            index = int(np.max(feed[name]))
            wanted, (found,) = reference.run(feed), runner.run_many([model_inputs(feed, pixels)])
            for value, array in found.items():
                rows = index + one["new"]
                cut = (*(slice(None),) * axes[value], slice(0, rows)) if value in axes else ()
                if not np.array_equal(array[cut], wanted[value][cut]):
                    raise BuildError(
                        f'"{value}" differs from the reference at {name} = {index}', code="NF-SIM-021"
                    ).at(value=value)
            yield f"{name} = {index}: all outputs equal"


def simulated(
    graph: Graph, program: Program, fed: Sequence[Mapping[str, Array]], numerics: Numerics
) -> Simulation:
    """What the simulator finds of a program of this graph, on these samples; a fault is an error."""
    order = order_of(program)
    require_safe(program, hazards_of(program, order))
    checks = compare(graph, program, numerics, fed)
    require_equal(checks, program)
    RETURNED.give_back()                      # all tensors of all samples
    for line in chain(_shorter(graph, program, fed, numerics), _at_indices(graph, program, fed, numerics)):
        log(line)
    seen, unseen = sum(1 for c in checks if c.elements), sum(c.unseen for c in checks)
    rest = f", {counted(unseen, 'element')} not seen" if unseen else ""
    log(
        f"{len(order.sequence)} commands, no hazards; {seen} of {counted(len(checks), 'tensor')} equal on "
        f"{counted(len(fed), 'sample')}{rest}, those of the whole-tensor executor too"
    )
    if instances_of(program) > 1:
        fed_in = [model_inputs(feed, of_program(program.meta)) for feed in fed]
        many = require_same(program, fed_in) if fed_in else 0
        equal = f"{counted(many, 'tensor')} equal to those of each alone"
        log(f"{instances_of(program)} inferences at the same time: {equal}")
    rate = throughput(program)
    log(rate.text())
    found = profile(program)
    if found.host:
        log(f"NPU {found.cycles:,.0f} cycles; host {found.host.described(program.target)}")
    for row in (*compare_forms(found), *worst_groups(found, 1)):
        log(f"{row}" + ("" if row.within else f": more than {row.bar:.0%} apart"))
    totals = {**found.totals(), "throughput": rate.row(), "hazards": 0}       # else refused above
    return Simulation(checks, tuple(found.layers()), totals)
