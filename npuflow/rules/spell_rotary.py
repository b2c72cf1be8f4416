"""RotaryEmbedding as halves times cosines and sines; at computed positions too."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._attention import rotated
from npuflow.rules._numbers import number
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellRotary(Decomposition):
    triggers = ("host:rotaryembedding",)
    makes = ("reshape", "transpose", "slice", "mul", "sub", "add", "concat", "lookup", "host")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        own = bool(getattr(parts.node.op, "family", ""))  # onnxruntime's
        if own and (parts.real("scale", 1.0) != 1.0 or parts.integer("is_packed_batching", 0)):
            return "a scale, or packed batches"
        x, shape = parts.input(0), parts.shape(parts.input(0))
        if len(shape) == 3:
            turned = parts.integer("rotary_embedding_dim", 0)
            width = 2 * parts.shape(parts.input(2))[-1] if own and not turned else 0
            count = parts.integer("num_heads", 0) or (shape[2] // width if width else 1)
            x = parts.transpose(parts.reshape(x, (*shape[:2], count, shape[2] // count)), (0, 2, 1, 3))
        size = parts.shape(x)[3]
        turned = parts.integer("rotary_embedding_dim", 0) or size
        angles = []
        for index in (2, 3) if own else (1, 2):
            found = self.angle(parts, index, 1 if own else 3, (shape[0], parts.shape(x)[2]))
            if not found:
                return "caches that are not constants, with positions"
            batch, length, half = parts.shape(found)
            angles.append(parts.reshape(found, (batch, 1, length, half)))
        cos, sin = angles
        y = rotated(parts, parts.slice(x, 3, 0, turned), cos, sin, bool(parts.integer("interleaved", 0)))
        if turned < size:
            y = parts.concat((y, parts.slice(x, 3, turned, size)), 3)
        if len(shape) == 3:
            y = parts.reshape(parts.transpose(y, (0, 2, 1, 3)), shape)
        return (y,)

    def angle(self, parts: Parts, index: int, at: int, rows: tuple[int, int]) -> str:
        """Cosines or sines, [batch, length, half]; "" where they are not known."""
        if not parts.input(at):
            return parts.input(index)
        held, positions, given = parts.number(index), parts.number(at), parts.shape(parts.input(at))
        if held is None or (positions is None and len(given) != 2):
            return ""
        if positions is not None and positions.size == 1 and len(given) == 1:  # of the first row
            positions = np.broadcast_to(positions + np.arange(rows[1]), rows)
        if positions is not None:
            return parts.const(held[positions.astype(np.int64)], "angle")
        flat = parts.reshape(number(parts, parts.input(at)), (rows[0] * rows[1],))
        return parts.reshape(
            parts.op("lookup", (parts.const(held[None], "cache"), flat)), (*rows, held.shape[1])
        )
