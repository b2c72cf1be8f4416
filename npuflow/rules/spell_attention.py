"""Attention of the standard as MatMul, Softmax, MatMul, with its masks as constants or sums."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._attention import LOWEST, MAKES, added, attended, heads, joined, window, with_past
from npuflow.rules._masks import NoMask
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellAttention(Decomposition):
    """Of three or four dimensions, with fewer heads of keys than of queries, past
    and present, a cap and masks."""

    triggers = ("host:attention",)
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        if getattr(parts.node.op, "family", ""):
            return None
        mode = parts.integer("qk_matmul_output_mode", 0)
        valid = parts.number(6) if parts.input(6) else None
        if parts.input(6) and valid is None:
            return "the numbers of keys that are not padding are not a constant"
        q, k, v = (parts.input(i) for i in range(3))
        flat = len(parts.shape(q)) == 3
        if flat:
            own, shared = parts.integer("q_num_heads", 1), parts.integer("kv_num_heads", 1)
            q, k, v = heads(parts, q, own), heads(parts, k, shared), heads(parts, v, shared)
        k, v = with_past(parts, parts.input(4), k), with_past(parts, parts.input(5), v)
        queries, keys = parts.shape(q)[2], parts.shape(k)[2]
        masks = [added(parts, parts.input(3), keys)] if parts.input(3) else []
        left, right = (parts.integer(f"{side}_window_size", -1) for side in ("left", "right"))
        if parts.integer("is_causal", 0):
            right = 0
        if valid is not None or left >= 0 or right >= 0:
            past = parts.shape(parts.input(4))[2] if parts.input(4) else 0
            offset = np.array([past]) if valid is None else valid - queries
            masks.append(window(parts, queries, keys, offset, valid, left, right))
        for one in masks:
            if isinstance(one, NoMask):
                return str(one)
        held = [parts.array(str(one)) for one in masks]
        if parts.output(3) and mode == 2 and any(a is not None and a.min() <= LOWEST for a in held):
            return "its masked products are used, and are infinite"
        found = attended(parts, q, k, v, parts.real("scale", 0.0), masks, parts.real("softcap", 0.0))
        y = joined(parts, found.y) if flat else found.y
        return y, k, v, (found.products, found.capped, found.masked, found.weights)[mode]
