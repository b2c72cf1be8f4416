"""Attention over a window whose cache is a ring: the token at position p lies in row p mod R.

A run writes positions P to P + C - 1, and its query at q attends to the W positions up to q. The earliest is
P - W + 1. It is still held behind the new rows, which replace positions up to P + C - 1 - R, where
R >= W + C - 1. The same bound serves a run that begins earlier, over tokens that the ring holds already:
its last token is as late as any that was written, so that it replaces nothing that its own queries attend
to. Nor does a filling behind the last token: row p mod R of a filling at p <= P + C - 1 held the position
p - R <= P - W, to which no query from P on attends.

So of every position in a query's window the ring holds that very position, and which rows these are follows
from q alone: tables that a position picks rows of say where new rows go, which rows stay, and which are seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from npuflow.checkpoints.ports import NEXT, POSITION, cache_name
from npuflow.frontends.checkpoint.parts import DecoderParts
from npuflow.ir.types import Array

WHOLE = 16                                # R is a multiple of it, as vectors and arrays have it
MOST = 1 << 24                            # elements of a table that has a row for every position
HIDDEN = 1e9                              # by which a score is lowered that does not count


def ring_rows(window: int, chunk: int, context: int) -> int:
    """Rows of the ring of a layer with such a window, where runs take up to `chunk` tokens; 0 where its cache
    is whole: it has no window, the ring would be no smaller, or tables of the positions would be too large.
    """
    rows = -(-(window + chunk - 1) // WHOLE) * WHOLE
    return rows if window > 0 and rows < context and rows * context <= MOST else 0


def placed(rows: int, context: int) -> Array:
    """[position, row]: 1 where the token of a position lies."""
    return np.eye(rows, dtype=np.float32)[np.arange(context) % rows]


def kept(rows: int, context: int, chunk: int) -> Array:
    """[position, row]: 0 where a run of so many tokens writes that begins there, else 1."""
    away = (np.arange(rows) - np.arange(context)[:, None]) % rows
    return (away >= chunk).astype(np.float32)


def seen(rows: int, context: int, window: int) -> Array:
    """[position, row]: 1 where a query attends to what the row holds, one of the last `window` positions."""
    at = np.arange(context)[:, None]
    back = (at - np.arange(rows)) % rows
    return ((back < window) & (back <= at)).astype(np.float32)


class RingAttention:
    """Attention of one layer, in operators of ONNX alone. `rows`: of its ring."""

    def __init__(self, net: DecoderParts, layer: int, rows: int) -> None:
        self.net, self.rows, self.layer = net, rows, layer
        self.name, self.window = f"layers.{layer}", net.decoder.windows[layer]

    def attended(self, heads: Sequence[str]) -> str:
        """[1, chunk, heads * size] of queries, keys and values that are alike, and the next cache."""
        net, d, name = self.net, self.net.decoder, self.name
        rope, size, each = d.ropes[self.layer], d.head_size, d.heads // d.key_heads * net.chunk
        if rope is not None:
            heads = [*(net.turned(x, rope) for x in heads[:2]), heads[2]]
        q, k, v = (
            self.wide(x, count) for x, count in zip(heads, (d.heads, d.key_heads, d.key_heads), strict=True)
        )
        keys, values = self.written("key", k), self.written("value", v)
        q = net.op("Mul", [q, net.number(d.scale or 1 / math.sqrt(size))], f"{name}.query:scaled")
        q = net.reshaped(q, (1, d.key_heads, each, size), f"{name}.query:grouped")
        turned = net.op("Transpose", [keys], f"{name}.keys:turned", perm=[0, 1, 3, 2])
        x = net.op("MatMul", [q, turned], f"{name}.product")
        x = net.reshaped(x, (1, d.heads, net.chunk, self.rows), f"{name}.scores")
        if d.cap:
            x = net.op("Tanh", [net.op("Mul", [x, net.number(1 / d.cap)], f"{name}.low")], f"{name}.tanh")
            x = net.op("Mul", [x, net.number(d.cap)], f"{name}.capped")
        x = net.op("Add", [x, self.mask()], f"{name}.masked")
        x = net.op("Softmax", [x], f"{name}.weights", axis=3)
        x = net.reshaped(x, (1, d.key_heads, each, self.rows), f"{name}.weights:grouped")
        x = net.op("MatMul", [x, values], f"{name}.sums")
        x = net.reshaped(x, (1, d.heads, net.chunk, size), f"{name}.sums:wide")
        x = net.op("Transpose", [x], f"{name}.sums:turned", perm=[0, 2, 1, 3])
        return net.reshaped(x, (1, net.chunk, d.heads * size), f"{name}.heads")

    def wide(self, x: str, count: int) -> str:
        """[1, heads, chunk, size] of [1, chunk, heads * size]."""
        shape = (1, self.net.chunk, count, self.net.decoder.head_size)
        wide = self.net.reshaped(x, shape, f"{x}:split")
        return self.net.op("Transpose", [wide], f"{x}:heads", perm=[0, 2, 1, 3])

    def written(self, what: str, new: str) -> str:
        """The ring with new rows in their places: the next run's."""
        net, past = self.net, cache_name(self.layer, what)
        moved = net.op("MatMul", [self.places(), new], f"{past}:moved")
        old = net.op("Mul", [past, self.stays()], f"{past}:old")
        return net.op("Add", [old, moved], f"{past}{NEXT}")

    def places(self) -> str:
        """[1, 1, rows, chunk]: where new rows go. Rings of as many rows share it, as they do all tables."""
        net, own = self.net, f"ring.{self.rows}.here"
        if own not in net.builder.values:
            table = net.constant(f"{own}:table", placed(self.rows, net.context))
            rows = net.op("Gather", [table, net.places()], f"{own}:flat", axis=0)
            rows = net.reshaped(rows, (1, 1, net.chunk, self.rows), f"{own}:rows")
            net.op("Transpose", [rows], own, perm=[0, 1, 3, 2])
        return own

    def stays(self) -> str:
        """[1, 1, rows, 1]: which rows stay."""
        net, own = self.net, f"ring.{self.rows}.kept"
        if own not in net.builder.values:
            table = net.constant(f"{own}:table", kept(self.rows, net.context, net.chunk))
            rows = net.op("Gather", [table, POSITION], f"{own}:flat", axis=0)
            net.reshaped(rows, (1, 1, self.rows, 1), own)
        return own

    def mask(self) -> str:
        """[1, 1, chunk, rows]: 0 where a query attends."""
        net, own = self.net, f"ring.{self.rows}.{self.window}.mask"
        if own not in net.builder.values:
            table = net.constant(f"{own}:table", seen(self.rows, net.context, self.window))
            rows = net.op("Gather", [table, net.places()], f"{own}:flat", axis=0)
            rows = net.reshaped(rows, (1, 1, net.chunk, self.rows), f"{own}:rows")
            away = net.op("Sub", [rows, net.number(1.0)], f"{own}:away")
            net.op("Mul", [away, net.number(HIDDEN)], own)
        return own
