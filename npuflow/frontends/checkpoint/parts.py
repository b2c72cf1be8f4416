"""Parts of a decoder's graph: operators, constants made once, tensors of the checkpoint, rotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.base.mapped import spilled
from npuflow.checkpoints import StoredTensor
from npuflow.checkpoints.ports import POSITION
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._roles import DecoderWeights
from npuflow.frontends.checkpoint.families._rope import Rope
from npuflow.frontends.checkpoint.stated import stated_type
from npuflow.ir.types import Array

KEPT = 1 << 20                            # bytes from which a weight is kept in a file


@dataclass(eq=False)
class DecoderParts:
    """The graph in the making. Rows of activations are tokens: [chunk, width]. `longest`: the longest chunk
    of all programs that share the caches; `held`: constants by name, each made once."""

    builder: NodeBuilder
    decoder: Decoder
    weights: DecoderWeights
    chunk: int
    context: int
    longest: int
    held: dict[str, str] = field(default_factory=dict)

    def op(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.builder.call(kind, inputs, [name], name, **attributes)
        return name

    def constant(self, name: str, array: Array) -> str:
        """Once for each name."""
        if name not in self.held:
            self.held[name] = self.builder.constant(self.builder.free(name), spilled(array, KEPT))
        return self.held[name]

    def number(self, value: float) -> str:
        return self.constant(f"real:{value:.9g}", np.asarray(value, np.float32))

    def reshaped(self, x: str, shape: Sequence[int], name: str) -> str:
        sizes = self.constant(f"shape:{'x'.join(map(str, shape))}", np.asarray(shape, np.int64))
        return self.op("Reshape", [x, sizes], name)

    def stored(self, tensor: StoredTensor, shift: float = 0.0) -> str:
        """A tensor of the checkpoint, under its own name."""
        if tensor.name not in self.held:
            floats = tensor.floats()
            self.constant(tensor.name, floats + np.float32(shift) if shift else floats)
        return self.held[tensor.name]

    def matrix(self, tensor: StoredTensor, name: str = "") -> str:
        """A tensor of the checkpoint that is multiplied with, under its own name or this one: its codes are
        stated where it has any."""
        name = name or tensor.name
        if name in self.held:
            return self.held[name]
        grouped = tensor.grouped()
        floats = tensor.floats() if grouped is None else grouped.floats()
        own = self.constant(name, floats)
        quant = stated_type(grouped, floats) if grouped is not None else None
        if quant is not None:
            self.builder.state(own, quant)
        return own

    def places(self) -> str:
        """The positions of the new tokens, [chunk]."""
        if self.chunk == 1:
            return POSITION
        if "places" not in self.builder.values:
            steps = self.constant("steps", np.arange(self.chunk, dtype=np.int32))
            self.op("Add", [POSITION, steps], "places")
        return "places"

    def angles(self, rope: Rope) -> list[str]:
        """Cosines and sines [context, half]; layers of one kind share them."""
        kind, tables = self.decoder.ropes.index(rope), rope.tables(self.context)
        names = ("cosines", "sines")
        return [self.constant(f"rope.{kind}:{n}", table) for n, table in zip(names, tables, strict=True)]

    def turned(self, x: str, rope: Rope) -> str:
        """[1, chunk, heads * size], rotated in simpler operators: halves times cosines and sines."""
        size, half = self.decoder.head_size, len(rope.frequencies)
        count = self.builder.type(x).shape[2] // size
        kind, y, around = self.decoder.ropes.index(rope), f"{x}:turned", []
        for table in self.angles(rope):
            rows = f"{table}:rows"
            if rows not in self.builder.values:
                self.op("Gather", [table, self.places()], f"{rows}.flat", axis=0)
                self.reshaped(f"{rows}.flat", (self.chunk, 1, half), rows)
            around.append(rows)
        wide = self.reshaped(x, (self.chunk, count, size), f"{x}:wide.{kind}")
        one, other = self.cut(wide, 0, half), self.cut(wide, half, 2 * half)
        cos, sin = around
        parts = {
            what: [self.op("Mul", list(pair), f"{y}:{what}{i}") for i, pair in enumerate(pairs)]
            for what, pairs in {"a": ((one, cos), (other, sin)), "b": ((other, cos), (one, sin))}.items()
        }
        pieces = [self.op("Sub", parts["a"], f"{y}:first"), self.op("Add", parts["b"], f"{y}:second")]
        pieces += [self.cut(wide, 2 * half, size)] if size > 2 * half else []
        whole = self.op("Concat", pieces, f"{y}:wide", axis=2)
        return self.reshaped(whole, (1, self.chunk, count * size), y)

    def cut(self, x: str, start: int, end: int) -> str:
        """A part of the last of three dimensions."""
        bounds = [self.constant(f"number:{n}", np.asarray([n], np.int64)) for n in (start, end, 2)]
        return self.op("Slice", [x, *bounds], f"{x}:{start}")
