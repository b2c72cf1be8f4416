"""GroupQueryAttention (com.microsoft) as MatMul, Softmax, MatMul: attention of a decoder with kept keys."""

from __future__ import annotations

import numpy as np

from npuflow.ir.types import Array
from npuflow.rules import RULES
from npuflow.rules._attention import LOWEST, MAKES, attended, heads, joined, rotated
from npuflow.rules._numbers import INTEGERS, found, moved_indices, number
from npuflow.rules._parts import Decomposition, Parts

_PLAIN = {
    "smooth_softmax": 0,
    "qk_output": 0,
    "causal": 1,
    "sliding_window_cache": 0,
    "kv_cache_bit_width": 0,
}
_TAKEN = 9  # inputs: queries to cosines and sines
PLACES = 1 << 24  # elements of a table that has a row for every position


@RULES.entry
class SpellGroupQuery(Decomposition):
    """Queries stand behind the keys of the past: their number, which is that of all keys less the new ones,
    may be computed. New keys are put into the cache at that place, by a product with rows that have a 1
    there. Keys behind the end of a prompt are padding. Where the place of a single sample comes from
    outside, rows that depend on it are looked up: no float type need tell its numbers apart."""

    triggers = ("host:groupqueryattention",)
    makes = (*MAKES, "abs", "sign", "clip", "max", "lookup", "host")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        if getattr(parts.node.op, "family", "") != "com.microsoft":
            return None
        other = [name for name, usual in _PLAIN.items() if parts.integer(name, usual) not in (usual, -1)]
        total = parts.number(6)
        if other or any(parts.input(i) for i in range(_TAKEN, len(parts.node.inputs))) or parts.output(3):
            return f"{', '.join(other) or 'more inputs or outputs'} than plain attention has"
        if total is None:
            return "the number of all keys (total_sequence_length) is not a constant"
        if parts.integer("do_rotary", 0) and (parts.number(7) is None or parts.number(8) is None):
            return "cosines and sines that are not constants"
        q, k, v = _heads(parts)
        prompt = parts.shape(q)[2] == int(total.reshape(-1)[0])
        length = max(int(total.reshape(-1)[0]), parts.shape(parts.input(3))[2] if parts.input(3) else 0)
        if not prompt and _by_row(parts, length):
            return _looked_up(parts, (q, k, v), length)
        past, known = _past(parts, parts.shape(q)[2])
        if parts.integer("do_rotary", 0):
            angles = [_angle(parts, index, "" if prompt else past, parts.shape(q)) for index in (7, 8)]
            turned = bool(parts.integer("rotary_interleaved", 0))
            q, k = (_turned(parts, x, angles, turned) for x in (q, k))
        if prompt:
            k, v = (_lengthened(parts, x, length) for x in (k, v))
        else:
            k, v = (_cached(parts, parts.input(i), x, past, length) for i, x in ((3, k), (4, v)))
        seen = _seen(parts, past if known is None else known, parts.shape(q)[2], length, prompt)
        made = attended(parts, q, k, v, parts.real("scale", 0.0), [seen], parts.real("softcap", 0.0))
        return joined(parts, made.y), k, v


def _heads(parts: Parts) -> tuple[str, str, str]:
    """Queries, keys and values with heads of their own, from three tensors or one."""
    own, shared = parts.integer("num_heads", 1), parts.integer("kv_num_heads", 1)
    q, k, v = (parts.input(i) for i in range(3))
    if not k:
        size = parts.shape(q)[2] // (own + 2 * shared)
        ends = (own * size, (own + shared) * size, (own + 2 * shared) * size)
        starts = (0, *ends)
        q, k, v = (parts.slice(q, 2, start, end) for start, end in zip(starts, ends, strict=False))
    return heads(parts, q, own), heads(parts, k, shared), heads(parts, v, shared)


def _by_row(parts: Parts, length: int) -> bool:
    """Whether a table holds what depends on the place of the only sample, which comes from outside."""
    given = parts.type(parts.input(5))
    alone = parts.number(5) is None and given.size == 1 and given.dtype in INTEGERS
    return alone and not found(parts, parts.input(5)) and length * length <= PLACES


def _looked_up(parts: Parts, heads_: tuple[str, str, str], length: int) -> tuple[str, ...]:
    """Queries behind the past, with rows of tables for where they stand: [1, new, length]."""
    (q, k, v), new = heads_, parts.shape(heads_[0])[2]
    places = parts.input(5)
    if new > 1:
        places = moved_indices(parts, places, np.arange(1 - new, 1))
    at = parts.reshape(number(parts, places), (new,))

    def rows(table: Array, index: str, what: str) -> str:
        held = parts.const(table[None], f"{what} rows")
        y = parts.op("lookup", (held, index), what)
        return parts.reshape(y, (1, 1, parts.shape(index)[0], table.shape[1]))

    if parts.integer("do_rotary", 0):
        tables = [parts.number(index) for index in (7, 8)]
        angles = [rows(table, at, "angle") for table in tables if table is not None]
        turned = bool(parts.integer("rotary_interleaved", 0))
        q, k = (_turned(parts, x, angles, turned) for x in (q, k))
    here = rows(np.eye(length), at, "here")
    before = np.tril(np.ones((length, length)), -1)
    kept = rows(before, parts.slice(at, 0, 0, 1), "kept") if parts.input(3) else ""
    k, v = (_placed(parts, parts.input(i), x, here, kept) for i, x in ((3, k), (4, v)))
    window = parts.integer("local_window_size", -1)
    seen = np.tril(np.ones((length, length)))
    seen = seen - np.tril(seen, -window) if window >= 0 else seen
    mask = parts.mul(parts.sub(rows(seen, at, "seen"), 1.0), -LOWEST, "mask")
    y = attended(parts, q, k, v, parts.real("scale", 0.0), [mask], parts.real("softcap", 0.0)).y
    return joined(parts, y), k, v


def _placed(parts: Parts, past: str, x: str, here: str, kept: str) -> str:
    """The past as far as rows are kept, the new keys in theirs."""
    moved = parts.matmul(parts.swapped(here), x, "moved")
    if not past:
        return moved
    length = parts.shape(here)[3]
    old = parts.mul(_lengthened(parts, past, length), parts.reshape(kept, (1, 1, length, 1)), "old")
    return parts.add(old, moved, "present")


def _past(parts: Parts, new: int) -> tuple[str, Array | None]:
    """How many keys were there before `new` ones, [batch, 1, 1] in float32; the same where it is known."""
    size, held = parts.type(parts.input(5)).size, parts.number(5)
    known = None if held is None else held.reshape(size, 1, 1).astype(np.float32) + (1 - new)
    if known is not None:
        return parts.const(known, "past"), known
    return parts.add(parts.reshape(number(parts, parts.input(5)), (size, 1, 1)), 1.0 - new, "past"), None


def _angle(parts: Parts, index: int, past: str, shape: tuple[int, ...]) -> str:
    """Cosines or sines of the positions of new keys, [batch or 1, 1, length, half]."""
    (batch, _, length, _), held = shape, parts.number(index)
    assert held is not None
    if not past:
        return parts.const(held[None, None, :length], "angle")
    at = parts.add(past, parts.const(np.arange(length)[None, :, None], "steps"), "positions")
    at = parts.reshape(at, (batch * length,))
    rows = parts.op("lookup", (parts.const(held[None], "cache"), at), "angle")
    return parts.reshape(rows, (batch, 1, length, held.shape[1]))


def _turned(parts: Parts, x: str, angles: list[str], interleaved: bool) -> str:
    """As far as there are angles; the rest of a head stays."""
    size, part = parts.shape(x)[3], 2 * parts.shape(angles[0])[3]
    cos, sin = angles
    y = rotated(parts, parts.slice(x, 3, 0, part), cos, sin, interleaved)
    return y if part == size else parts.concat((y, parts.slice(x, 3, part, size)), 3)


def _lengthened(parts: Parts, x: str, length: int) -> str:
    batch, count, own, size = parts.shape(x)
    if own == length:
        return x
    return parts.concat((x, parts.const(np.zeros((batch, count, length - own, size)), "rest")), 2, "present")


def _cached(parts: Parts, past: str, x: str, at: str, length: int) -> str:
    """The first keys of the past, the new ones behind them, zeros behind those."""
    batch, _, new, _ = parts.shape(x)
    rows = np.arange(length)[None, :, None]
    place = parts.add(at, parts.const(np.arange(new)[None, None, :], "steps"), "places")
    away = parts.op("abs", (parts.sub(place, parts.const(rows, "rows"), "away"),))
    here = parts.reshape(_unit(parts, parts.sub(1.0, away), "here"), (batch, 1, length, new))
    moved = parts.matmul(here, x, "moved")
    if not past:
        return moved
    kept = _unit(parts, parts.sub(at, parts.const(rows, "rows")), "kept")
    old = _lengthened(parts, past, length)
    return parts.add(parts.mul(old, parts.reshape(kept, (batch, 1, length, 1)), "old"), moved, "present")


def _seen(parts: Parts, past: str | Array, new: int, length: int, prompt: bool) -> str:
    """The mask of a query of the new ones to each key: [batch or 1, 1, new, length]. Of a prompt a query
    attends up to itself, and to no padding; else up to itself behind the past."""
    key, query = np.arange(length)[None, None, :], np.arange(new)[None, :, None]
    window = parts.integer("local_window_size", -1)
    reach = window if window >= 0 else length
    if not isinstance(past, str):
        at = query if prompt else past + query
        seen = (key <= at) & (key < past + new) & (key > at - reach)
        return parts.const(np.where(seen, 0.0, LOWEST)[:, None], "mask")
    if prompt:  # `past` + `new` is the prompt's own length
        own = parts.const((key <= query) & (key > query - reach), "own")
        flags = parts.mul(
            _unit(parts, parts.sub(past, parts.const(key - new, "keys")), "inside"), own, "seen"
        )
    else:
        flags = _unit(parts, parts.sub(past, parts.const(key - query - 1.0, "keys")), "seen")
        if window >= 0:
            near = parts.sub(parts.const(key - query + window, "keys"), past)
            flags = parts.mul(flags, _unit(parts, near, "near"), "seen")
    flags = parts.reshape(flags, (parts.shape(flags)[0], 1, new, length))
    return parts.mul(parts.sub(flags, 1.0), -LOWEST, "mask")


def _unit(parts: Parts, whole: str, what: str) -> str:
    """1 where a whole number is above 0, else 0."""
    return parts.clip(whole, 0.0, 1.0, what)
