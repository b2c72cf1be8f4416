"""Compiles usual kernels in a process of its own beside the first long build on a machine.

A compiler of one process takes one processor, whatever the number of threads: without this the first build
waits for it, kernel after kernel. What both compile at the same time is kept once; nothing depends on who was
first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from npuflow import __version__
from npuflow.base.memo_file import user_folder

if TYPE_CHECKING:
    from npuflow.ir.graph import Graph
    from npuflow.ir.types import Array

NICE = 5                                  # the build itself comes first


def compile_beside() -> None:
    """Start that process, once for every version of npuflow and Python. Not where one processor is all there
    is, where NUMBA_CACHE_DIR says that the user keeps kernels elsewhere, or where nothing can be kept."""
    if (os.cpu_count() or 1) < 2 or "NUMBA_CACHE_DIR" in os.environ:
        return
    try:
        folder = user_folder("npuflow-kernels")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"usual-{__version__}-{sys.implementation.cache_tag}").open("x").close()
        nothing = subprocess.DEVNULL
        line = [sys.executable, "-m", __name__]
        subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except (OSError, RuntimeError):       # it was started before, or nothing can be written there
        return


def compile_usual() -> None:
    """Compile what a network of convolutions needs to be computed whole and to be simulated, by running one
    of 8 bits and its program."""
    import numpy as np

    from npuflow.hw.target import Target
    from npuflow.place.place import place
    from npuflow.program.codegen.generate import generate
    from npuflow.quantise.candidate import Candidate
    from npuflow.quantise.config import Quantize
    from npuflow.quantise.graph import build
    from npuflow.rewrite.rewrite import rewrite
    from npuflow.runner.simulated import ProgramRunner
    from npuflow.schedule.machine import Machine
    from npuflow.search.plan import plan_network
    from npuflow.whole.execute.executor import Executor

    target = Target()
    graph = rewrite(_network()).graph
    ranges = dict.fromkeys(graph.values, (-4.0, 4.0))
    made = build(Candidate(graph, place(graph, target), Quantize(), target.numerics, ranges)).graph
    feed = {name: np.zeros(made.type(name).shape, np.float32) for name in made.inputs}
    Executor(made, target.numerics).run_many([feed] * 8)
    plan = plan_network(made, Machine(target.compute, target.memory, target.dma), target.numerics)
    ProgramRunner(generate(made, plan, target)).run_many([feed])


def _network() -> Graph:
    """Convolutions with a window, of a place and of a channel each; a sum, pools, and a product."""
    import numpy as np

    from npuflow import lang

    rng = np.random.default_rng(1)

    def weights(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32) / 4

    x = lang.input("x", (1, 3, 32, 32))
    a = lang.relu(lang.conv(x, weights(16, 3, 3, 3), weights(16), pads=(1, 1, 1, 1), strides=(2, 2)))
    b = lang.relu(lang.conv(a, weights(16, 1, 3, 3), weights(16), pads=(1, 1, 1, 1), group=16))
    c = lang.maxpool(lang.add(a, lang.conv(b, weights(16, 16, 1, 1), weights(16))), kernel_shape=(2, 2),
                     strides=(2, 2))
    d = lang.flatten(lang.globalaveragepool(c))
    return lang.graph(lang.gemm(d, weights(16, 10), weights(10)))


if __name__ == "__main__":
    os.nice(NICE)
    compile_usual()
