"""Commands that are faster together, or in a layout of their own, than by the simulator's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npuflow.hw.command import Command, FieldValue
from npuflow.kernels.opcode import Step
from npuflow.whole.execute.bench import TensorBench

ALONG = ("SOFTMAX", "GATHER", "TOPK", "FTOPK")      # their dimensions have parts of their own


def fused(bench: TensorBench, commands: Sequence[Command]) -> tuple[int, Step | None]:
    """How many of the commands the step does; None: there is no such kernel for the first of them."""
    names = tuple(c.opcode for c in commands[:2])
    if names == ("CONV", "REQUANT"):
        from npuflow.whole.execute.dense import dense  # its kernels are slow to load

        return 2, dense(bench, commands[0], commands[1])
    if names == ("MATMUL", "REQUANT"):
        from npuflow.whole.execute.dense import product

        return 2, product(bench, commands[0], commands[1])
    return 0, None


def arranged(c: Command) -> Command:
    """An element-wise command with the dimensions in the order in which they lie in the result's memory."""
    if "dims" not in c.fields or "y_strides" not in c.fields or "acc" in c.fields:
        return c
    strides = {name: v for name, v in c.fields.items() if name.endswith("_strides")}
    steps = c.vector("y_strides")
    if {len(v) for v in strides.values() if isinstance(v, tuple)} != {len(c.vector("dims"))}:
        return c
    order = sorted(range(len(steps)), key=lambda d: -steps[d])
    if c.opcode in ALONG or order == list(range(len(steps))):
        return c

    def turned(v: FieldValue) -> FieldValue:
        return tuple(v[d] for d in order) if isinstance(v, tuple) else v

    fields = {name: turned(v) if name in strides or name == "dims" else v for name, v in c.fields.items()}
    return replace(c, fields=fields)
