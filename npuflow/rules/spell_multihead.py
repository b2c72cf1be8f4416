"""onnxruntime's Attention and MultiHeadAttention as Gemm, MatMul, Softmax, MatMul."""

from __future__ import annotations

from math import sqrt

import numpy as np

from npuflow.ir.queries import kind
from npuflow.rules import RULES
from npuflow.rules._attention import MAKES, added, attended, constant_mask, heads, joined, window, with_past
from npuflow.rules._masks import NoMask
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellMultihead(Decomposition):
    """The first projects its input by constant weights; the second takes queries, keys and
    values, and a bias of them."""

    triggers = ("host:attention", "host:multiheadattention")
    makes = MAKES

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        if getattr(parts.node.op, "family", "") != "com.microsoft":
            return None
        if parts.integer("do_rotary", 0) or parts.integer("past_present_share_buffer", 0):
            return "rotary embedding, or a buffer shared with its past"
        fused = kind(parts.node) == "host:attention"
        taken = _projected(parts) if fused else _given(parts)
        if isinstance(taken, str):
            return taken
        q, k, v = taken
        if fused and parts.input(4):
            return "a packed past"
        if not fused:
            k, v = with_past(parts, parts.input(6), k), with_past(parts, parts.input(7), v)
        queries, keys = parts.shape(q)[2], parts.shape(k)[2]
        masks = []
        if padding := parts.input(3 if fused else 4):
            masks.append(_padding(parts, padding, keys))
        if bias := parts.input(5):
            masks.append(added(parts, bias, keys))
        if parts.integer("unidirectional", 0):
            masks.append(window(parts, queries, keys, np.array([keys - queries]), None, -1, 0))
        for one in masks:
            if isinstance(one, NoMask):
                return str(one)
        scale = 1.0 if fused else parts.real("scale", 0.0)       # it is in the weights of the first
        y = joined(parts, attended(parts, q, k, v, scale, masks).y)
        if fused:
            return (y,) if not parts.output(1) else "a packed present"
        return y, k, v


def _projected(parts: Parts) -> tuple[str, str, str] | str:
    """Queries, keys and values of one input: three Gemms, each with weights of its own."""
    weights, bias = parts.number(1), parts.number(2)
    if weights is None or (parts.input(2) and bias is None):
        return "its weights are not constants"
    batch, length, inner = parts.shape(parts.input(0))
    sizes = parts.attribute("qkv_hidden_sizes")
    widths = [int(s) for s in sizes] if isinstance(sizes, tuple) else [weights.shape[1] // 3] * 3
    rows = parts.reshape(parts.input(0), (batch * length, inner))
    count, found, at = parts.integer("num_heads", 1), [], 0
    scale = parts.real("scale", 0.0) or 1.0 / sqrt(widths[0] // count)
    for width, name, factor in zip(widths, ("query", "key", "value"), (scale, 1.0, 1.0), strict=True):
        more = () if bias is None else (parts.const(factor * bias[at : at + width], f"{name}_b"),)
        weight = parts.const(factor * weights[:, at : at + width], f"{name}_w")
        y = parts.op("gemm", (rows, weight, *more), f"{name}_rows")
        found.append(heads(parts, parts.reshape(y, (batch, length, width)), count))
        at += width
    return found[0], found[1], found[2]


def _given(parts: Parts) -> tuple[str, str, str] | str:
    """Queries, keys and values as inputs, [batch, length, width]; keys and values may have
    heads of their own already."""
    count, bias, at, found = parts.integer("num_heads", 1), parts.number(3), 0, []
    if (parts.input(3) and bias is None) or not parts.input(1) or not parts.input(2):
        return "queries, keys and values in one tensor, or a bias that is not a constant"
    for index in range(3):
        x = parts.input(index)
        if len(parts.shape(x)) == 4:
            found.append(x)
            continue
        width = parts.shape(x)[-1]
        if bias is not None:
            x = parts.add(x, parts.const(bias[at : at + width], "bias"), "biased")
            at += width
        found.append(heads(parts, x, count))
    return found[0], found[1], found[2]


def _padding(parts: Parts, given: str, keys: int) -> str | NoMask:
    """Keys that are padding, [batch, keys] of 0 and 1 or [batch] of lengths, as a mask."""
    held = parts.array(given)
    if held is None:
        return NoMask("a padding mask that is not a constant")
    if held.ndim == 1 and len(held) == parts.shape(parts.input(0))[0]:
        held = np.arange(keys)[None, :] < held[:, None]
    if held.ndim != 2 or held.shape[1] != keys:
        return NoMask(f"a padding mask of shape {held.shape}")
    return constant_mask(parts, np.where(held != 0, 0.0, -np.inf)[:, None, None, :])
