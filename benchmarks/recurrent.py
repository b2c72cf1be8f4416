"""What long recurrent layers take to compile: an LSTM of 16 on inputs of 8, one step more after the other.

    python benchmarks/recurrent.py [STEPS ...]

Seconds of processor time for the rewrites, the quantiser, the search and the code generator on edge-4t, with
16 bits, and the program's commands. `--check` simulates each program too, and compares it with the integer
reference. Writes its study when no steps are given.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import study
from onnx import numpy_helper, parser
from shapes import target_named

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import Hardware
from npuflow.run.interpret import host_session
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.op import check_program
from npuflow.testing.quantised import quantize_graph

Made = TypeVar("Made")
STEPS = (128, 256, 512, 1024)
HIDDEN, INPUTS = 16, 8
HEAD = """# What long recurrent layers take to compile

An LSTM of 16 on inputs of 8, 16 bits, edge-4t, in
seconds of processor time (`python benchmarks/recurrent.py`). Before the gates of a step were cut in local
memory, 128 and 1,024 steps took 59,594 and 457,646 cycles, 5.1 and 47.6 s.

| steps | nodes | rewrites | quantiser | search | code generator | in all | commands | cycles |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def model(steps: int) -> bytes:
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{steps},1,{INPUTS}] x) '
        f"=> (float[{steps},1,1,{HIDDEN}] y) {{ y, h, c = LSTM<hidden_size={HIDDEN}>(x, w, r) }}"
    )
    for name, width in (("w", INPUTS), ("r", HIDDEN)):
        drawn = np.random.default_rng(width).normal(size=(1, 4 * HIDDEN, width)) * 0.3
        proto.graph.initializer.append(numpy_helper.from_array(drawn.astype(np.float32), name))
    return bytes(proto.SerializeToString())


def measured(steps: int, check: bool) -> list[str]:
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
    placed = place(graph, target)
    assert not placed.reasons(), placed.reasons()
    wanted = [o for n in graph.nodes for o in n.outputs if o]
    given = {"x": np.random.default_rng(7).normal(size=(steps, 1, INPUTS)).astype(np.float32)}
    found = zip(wanted, host_session(export_model(graph, wanted)).run(wanted, given), strict=True)
    ranges = {name: (float(a.min()), float(a.max())) for name, a in (*given.items(), *found)}
    scheme = Quantize(activations=Activations(bits=16))
    coded = timed(lambda: quantize_graph(graph, placed.on_npu, ranges, scheme, target.numerics).graph)
    machine = Machine(target.compute, target.memory, target.dma)
    plan = timed(lambda: plan_network(coded, machine, target.numerics))
    program = timed(lambda: generate(coded, plan, target))
    if check:
        check_program(coded, given, target, f"LSTM of {steps} steps")
    counts = [str(steps), str(len(graph.nodes)), *(f"{s:.1f}" for s in seconds), f"{sum(seconds):.1f}"]
    return [*counts, str(sum(map(len, program.commands))), f"{plan.cycles:,.0f}"]


def main() -> None:
    given = [int(a) for a in sys.argv[1:] if not a.startswith("-")]
    rows = []
    for steps in given or STEPS:
        rows.append("| " + " | ".join(measured(steps, "--check" in sys.argv)) + " |")
        print(rows[-1], flush=True)
    if not given:
        study.write(__file__, HEAD + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
