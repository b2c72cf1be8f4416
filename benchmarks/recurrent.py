"""What long recurrent layers take to compile: an LSTM of 16 on inputs of 8, one step more after the other.

    python benchmarks/recurrent.py [STEPS ...]
    python benchmarks/recurrent.py --where
    python benchmarks/recurrent.py --cores [--check]
    python benchmarks/recurrent.py --nested [INNER ...]
    python benchmarks/recurrent.py --build OUT STEPS ... [--set KEY=VALUE ...]

Seconds of processor time for the rewrites, the quantiser, the search and the code generator on edge-4t, with
16 bits, and the program's commands. `--check` simulates each program too, and compares it with the integer
reference. Writes its study when no steps are given. `--where` prints where the cycles of two LSTM(256) go,
200 steps of 64 features and 8 bits: stretches of the clock, and what each engine is busy in them. `--cores`
prints cycles of both directions of an LSTM on targets of several cores. `--nested` prints the rows of nested
loops that docs/explanation/loops.md has: an LSTM(4) in a Scan of 12 steps, on the tests' machine. `--build`
prints rows of default builds of these two layers over STEPS steps: 48 samples that wander calibrate them, 16
others are for the SQNR.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import study
from builds import COLUMNS, columns, figures_of, measured
from onnx import numpy_helper, parser
from shapes import target_named

from npuflow.base.errors import TargetError
from npuflow.checks.agreement import compare
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.ir.unroll import rolled
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.order import order_of
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import Hardware
from npuflow.run.floats import FloatRun
from npuflow.schedule.machine import Machine
from npuflow.schedule.per_step import made_by_step
from npuflow.search.plan import plan_network
from npuflow.search.tilings import DEFAULT_LEVEL
from npuflow.search.unfit import PlanRequest
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import LoopForms, best_plan
from npuflow.testing.quantised import quantize_graph

Made = TypeVar("Made")
DIRECTIONS, LENGTH = (16, 64, 128), 64    # states of layers of both directions, and their steps
WIDER, LONGER = (64, 256), 100            # the same on targets of several cores
SEVERAL = ("server-32t", "xdna2", "aries", "zhouyi-x2")
TENSOR, VECTOR = 2, 3                     # queues
STEPS = (128, 256, 512, 1024, 2048)
HIDDEN, INPUTS = 16, 8
HEAD = """# What long recurrent layers take to compile

An LSTM of 16 on inputs of 8, 16 bits, edge-4t, in
seconds of processor time (`python benchmarks/recurrent.py --check`). Written out step after step, 1,024 steps
were 14,336 nodes and 19,524 commands, and took 59 s and 282,379 cycles.
Commands: in the file, and those of all rounds. Bound: see [bounds](../explanation/bounds.md).

| steps | nodes | rewrites | quantiser | search | codegen | in all | commands | of all rounds | cycles | gap |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


TWO = """
Both directions of an LSTM on inputs of 8 over 64 steps, 8 bits, edge-4t: cycles of one loop after the other,
and of both as one.

| states | one after the other | as one |
| --- | --- | --- |
"""

CORES = """
Both directions of an LSTM on inputs of 8 over 100 steps, 8 bits, products in front of the loops, on targets
of several cores (`--cores`): cycles of one loop after the other, of both as one, and of each on a core of its
own.

| target | states | one after the other | as one | each on a core | bound |
| --- | ---: | ---: | ---: | ---: | ---: |
"""

WHERE = """
Two LSTM(256), 200 steps of 64 features, a Gemm to 128 of the last state, 8 bits, edge-4t (`--where`): cycles
of the clock, and how long array, vector unit and bus (all bytes at its full width) are busy in each stretch.

| | cycles | array | vector | bus |
| --- | ---: | ---: | ---: | ---: |
"""


def model(steps: int, hidden: int = HIDDEN, directions: int = 1) -> bytes:
    way = ', direction="bidirectional"' if directions == 2 else ""
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{steps},1,{INPUTS}] x) => '
        f"(float[{steps},{directions},1,{hidden}] y) {{ y, h, c = LSTM<hidden_size={hidden}{way}>(x, w, r) }}"
    )
    for name, width in (("w", INPUTS), ("r", hidden)):
        drawn = np.random.default_rng(width).normal(size=(directions, 4 * hidden, width)) * 0.3
        proto.graph.initializer.append(numpy_helper.from_array(drawn.astype(np.float32), name))
    return bytes(proto.SerializeToString())


def two_layers(steps: int) -> bytes:
    """Two LSTM(256) on 64 features, and a Gemm to 128 of the last state; weights are uniform within 1/16."""
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{steps},1,64] x) => (float[1,128] y) {{
        rows, h, c = LSTM<hidden_size=256>(x, wa, ra, ba) next = Squeeze(rows, one)
        all, last, d = LSTM<hidden_size=256>(next, wb, rb, bb) flat = Squeeze(last, zero)
        y = Gemm<transB=1>(flat, w, b) }}"""
    )
    rng, rows = np.random.default_rng(0), (1, 1024)
    first = {"wa": (*rows, 64), "ra": (*rows, 256), "ba": (1, 2048)}
    second = {"wb": (*rows, 256), "rb": (*rows, 256), "bb": (1, 2048), "w": (128, 256), "b": (128,)}
    held = {n: rng.uniform(-1 / 16, 1 / 16, of).astype(np.float32) for n, of in {**first, **second}.items()}
    held |= {"one": np.array([1]), "zero": np.array([0])}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in held.items())
    return bytes(proto.SerializeToString())


def observed(graph: Graph, steps: int) -> tuple[dict[str, Array], dict[str, tuple[float, float]]]:
    """An input, and the ranges of all values."""
    wanted = [o for n in graph.nodes for o in n.outputs if o]
    given = {"x": np.random.default_rng(7).normal(size=(steps, 1, INPUTS)).astype(np.float32)}
    found = {**given, **FloatRun.of(graph, wanted).run(given)}
    return given, {name: (float(a.min()), float(a.max())) for name, a in found.items()}


def beside(name: str, hidden: int, steps: int, check: bool) -> str:
    """One row of both directions of a layer on a target."""
    target = target_named(name)
    source = FRONTENDS["onnx"]().read(model(steps, hidden, 2), Bindings()).graph
    graph = rewrite(source, hardware=Hardware.of(target.compute, target.memory, target.dma)).graph
    given, ranges = observed(graph, steps)
    coded = quantize_graph(graph, place(graph, target).on_npu, ranges, Quantize(), target.numerics).graph
    counts, machine = [str(hidden)], Machine(target.compute, target.memory, target.dma)
    cores = machine.compute.cores
    bound = 0.0
    for paired, own in ((False, 1), (True, 1), *[(False, cores)] * (cores > 1)):
        few = rolled(coded, paired, own)
        try:
            plan = plan_network(few, machine, target.numerics)
        except TargetError:
            counts.append("none")
            continue
        bound = plan.bounds.cycles
        if check:
            program = generate(few, plan, target)
            assert not hazards_of(program, order_of(program))
            found = compare(coded, program, target.numerics, [given])
            assert not [c for c in found if c.different or c.executor]
        counts.append(f"{plan.cycles:,.0f}")
    counts = [name, *counts, f"{bound:,.0f}"] if cores > 1 else counts
    return "| " + " | ".join(counts) + " |"


def on_cores(check: bool) -> Iterator[str]:
    """Rows of targets of several cores."""
    for name in SEVERAL:
        yield from (beside(name, hidden, LONGER, check) for hidden in WIDER)


def row(steps: int, check: bool) -> list[str]:
    """One row of the table."""
    seconds: list[float] = []

    def timed(f: Callable[[], Made]) -> Made:
        start = time.process_time()
        result = f()
        seconds.append(time.process_time() - start)
        return result

    target = target_named("edge-4t")
    source = FRONTENDS["onnx"]().read(model(steps), Bindings()).graph
    hardware = Hardware.of(target.compute, target.memory, target.dma)
    graph = timed(lambda: rewrite(source, hardware=hardware).graph)
    given, ranges = observed(graph, steps)
    placed = place(graph, target)
    assert not placed.reasons(), placed.reasons()
    scheme = Quantize(activations=Activations(bits=16))
    coded = timed(lambda: quantize_graph(graph, placed.on_npu, ranges, scheme, target.numerics).graph)
    machine = Machine(target.compute, target.memory, target.dma)
    few = rolled(coded)
    plan = timed(lambda: plan_network(few, machine, target.numerics))
    program = timed(lambda: generate(few, plan, target))
    if check:
        assert not hazards_of(program, order_of(program))
        assert not [c for c in compare(coded, program, target.numerics, [given]) if c.different or c.executor]
    counts = [str(steps), str(len(graph.nodes)), *(f"{s:.1f}" for s in seconds), f"{sum(seconds):.1f}"]
    commands = (sum(map(len, words)) for words in (program.stored, program.commands))
    return [*counts, *map(str, commands), f"{plan.cycles:,.0f}", f"{plan.gap:.2f}"]


def where(steps: int = 200) -> list[str]:
    """Rows of stretches: in front of the loops, each loop, between and behind them."""
    target = target_named("edge-4t")
    source = FRONTENDS["onnx"]().read(two_layers(steps), Bindings()).graph
    graph = rewrite(source, hardware=Hardware.of(target.compute, target.memory, target.dma)).graph
    wanted = [o for n in graph.nodes for o in n.outputs if o]
    drawn = np.random.default_rng(7).normal(size=(steps, 1, 64)).cumsum(0) * 0.2
    found = {"x": drawn.astype(np.float32)}
    found |= FloatRun.of(graph, wanted).run(found)
    ranges = {name: (float(a.min()), float(a.max())) for name, a in found.items()}
    coded = quantize_graph(graph, place(graph, target).on_npu, ranges, Quantize(), target.numerics).graph
    machine = Machine(target.compute, target.memory, target.dma)

    wanted_plan = PlanRequest(rolled(coded), machine, target.numerics, DEFAULT_LEVEL)
    plan = best_plan(LoopForms(wanted_plan, Quantized(coded)))
    few = rolled(made_by_step(coded, plan.by_step))
    program = generate(few, plan, target)
    order = order_of(program)
    time, width = timeline_of(program, order), target.memory.external_bandwidth
    node = np.array([program.decoded[core][index].node for core, index in order.sequence])
    queue, busy = np.asarray(order.queue), time.end - time.start
    edges = [0.0]
    for roll in few.rolls:
        inner = np.isin(node, [n for step in roll.steps for n in step])
        edges += [time.start[inner & (queue == TENSOR)].min(), time.end[inner & (queue == VECTOR)].max()]
    names, rows = ("in front", "first loop", "between", "second loop", "behind"), []
    for name, low, high in zip(names, edges, [*edges[1:], time.cycles], strict=True):
        mine = (time.start >= low) & (time.start < high)
        engines = [busy[mine & (queue == q)].sum() for q in (TENSOR, VECTOR)]
        cells = (high - low, *engines, time.moved[mine].sum() / width)
        rows.append(f"| {name} | " + " | ".join(f"{c:,.0f}" for c in cells) + " |")
    whole = f"| in all, {plan.gap:.2f} times the bound of {plan.bounds.cycles:,.0f} | {time.cycles:,.0f} |"
    return [*rows, f"{whole} | | |", "", f"Made in loops: {', '.join(plan.by_step) or 'none'}."]


# --- default builds
def wandering(steps: int, count: int, seed: int) -> Array:
    """Cumulated normals times .2, [count, steps, 1, 64]."""
    drawn = np.random.default_rng(seed).normal(size=(count, steps, 1, 64))
    return (drawn.cumsum(1) * 0.2).astype(np.float32)


def build(out: Path, steps: int, settings: list[str]) -> list[str]:
    """A row of a default build of two layers: columns of `builds`, bytes of the file's commands, SQNR."""
    import onnxruntime

    import npuflow

    folder = (out / f"{steps}-{'-'.join(settings) or 'default'}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    network = two_layers(steps)
    (folder / "net.onnx").write_bytes(network)
    np.savez(folder / "samples.npz", x=wandering(steps, 48, 0))
    recipe = folder / "net.toml"
    recipe.write_text('target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "samples.npz"\n')
    events, spent = measured(recipe, folder / "out", folder / "cache", settings)
    program = npuflow.load_program(next((folder / "out").rglob("model.npu")))
    runner, session = npuflow.Runner(program), onnxruntime.InferenceSession(network)
    noise = signal = 0.0
    for x in wandering(steps, 16, 1):
        (real,) = session.run(None, {"x": x})
        signal += float((real**2).sum())
        noise += float(((real - runner.run({"x": x})["y"]) ** 2).sum())
    held = sum(words.nbytes for words in program.stored or program.commands)
    decibels = f"{10 * np.log10(signal / noise):.1f}"
    return [str(steps), *columns(figures_of(events), spent), f"{held:,}", decibels]


def nested(inner: int) -> Iterator[str]:
    """A program that repeats both loops, and one with one of them written out: nodes, commands that are
    stored, and cycles, which are the plan's and the clock's."""
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from npuflow.report.profile import profile
    from tests.frontends.test_nested_loops import layer_in_scan
    from tests.networks.looped import program_of, quantised
    from tests.program.test_repeats import TARGET

    graph, _ = quantised(layer_in_scan("LSTM", 4, 12, inner), TARGET)
    yield str(inner)
    for both in (True, False):
        program = program_of(graph, TARGET, nested=both, level=2)
        words, cycles = program.stored or program.commands, profile(program).cycles
        assert abs(program.meta["plan"]["cycles"] / cycles - 1) < 0.01
        yield from (f"{n:,.0f}" for n in (len(program.meta["nodes"]), len(words[0]), cycles))


def main() -> None:
    if "--build" in sys.argv:
        out, *words = sys.argv[sys.argv.index("--build") + 1 :]
        at = words.index("--set") if "--set" in words else len(words)
        print(f"| steps | {' | '.join(COLUMNS)} | bytes of commands | SQNR, dB |")
        print("| --- |" + " ---: |" * (len(COLUMNS) + 2))
        for word in words[:at]:
            print(f"| {' | '.join(build(Path(out), int(word), words[at + 1 :]))} |", flush=True)
        return
    if "--where" in sys.argv:
        print("| | cycles | array | vector | bus |", "| --- |" + " ---: |" * 4, *where(), sep="\n")
        return
    if "--cores" in sys.argv:
        for line in on_cores("--check" in sys.argv):
            print(line, flush=True)
        return
    if "--nested" in sys.argv:
        print("| inner steps |" + " nodes | commands | cycles |" * 2, "| --- |" + " ---: |" * 6, sep="\n")
        for word in sys.argv[sys.argv.index("--nested") + 1 :] or ("8", "12", "64", "256"):
            print(f"| {' | '.join(nested(int(word)))} |", flush=True)
        return
    given = [int(a) for a in sys.argv[1:] if not a.startswith("-")]
    rows = []
    for steps in given or STEPS:
        rows.append("| " + " | ".join(row(steps, "--check" in sys.argv)) + " |")
        print(rows[-1], flush=True)
    if not given:
        two = [beside("edge-4t", hidden, LENGTH, "--check" in sys.argv) for hidden in DIRECTIONS]
        several = [*on_cores("--check" in sys.argv)]
        parts = ("\n".join([*lines, ""]) for lines in (rows, two, several, where()))
        study.write(__file__, "".join(a + b for a, b in zip((HEAD, TWO, CORES, WHERE), parts, strict=True)))


if __name__ == "__main__":
    main()
