"""Attention of the standard as MatMul, Softmax, MatMul, with its masks as constants or sums."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._attention import MAKES, added, attended, causal, heads, joined, with_past
from npuflow.rules._masks import Refused
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
        if parts.output(3) and mode not in (0, 3):
            return f"its products after step {mode} are used"
        if (
            parts.input(6)
            or parts.integer("left_window_size", -1) >= 0
            or parts.integer("right_window_size", -1) >= 0
        ):
            return "a window, or numbers of keys that are not padding"
        q, k, v = (parts.input(i) for i in range(3))
        flat = len(parts.shape(q)) == 3
        if flat:
            own, shared = parts.integer("q_num_heads", 1), parts.integer("kv_num_heads", 1)
            q, k, v = heads(parts, q, own), heads(parts, k, shared), heads(parts, v, shared)
        k, v = with_past(parts, parts.input(4), k), with_past(parts, parts.input(5), v)
        queries, keys = parts.shape(q)[2], parts.shape(k)[2]
        masks = [added(parts, parts.input(3), keys)] if parts.input(3) else []
        if parts.integer("is_causal", 0):
            masks.append(causal(parts, queries, keys, keys - queries if parts.input(4) else 0))
        for one in masks:
            if isinstance(one, Refused):
                return str(one)
        found = attended(parts, q, k, v, parts.real("scale", 0.0), masks, parts.real("softcap", 0.0))
        y = joined(parts, found.y) if flat else found.y
        return y, k, v, found.products if mode == 0 else found.weights
