"""What commands with indices mean, byte by byte: what is not in it cannot matter."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuflow.hw.command import NONE
from npuflow.hw.elements import ELEMENTS
from tests.sim.equivalence import RULES, Fields, Tables


def index_rule(opcode: str, f: Fields, tables: Tables) -> None:
    """Before the other rules: they take strides along axes that these commands do not have."""
    made = {"GATHER": _gather, "LOADROWS": _loadrows, "TOPK": _topk, "FTOPK": _ftopk}.get(opcode)
    if made is not None:
        found = made(f, tables)
        f.clear()
        f.update(found)


RULES.insert(0, index_rule)


def _places(f: Fields, name: str, dims: tuple[int, ...], strides: str = "") -> np.ndarray:
    """Addresses of an operand's elements, in the order of the dimensions."""
    at = np.full(dims, f[name], np.int64)
    steps = f[strides or f"{name}_strides"]
    for d, step in enumerate(steps if isinstance(steps, tuple) else (steps,)):
        at += np.arange(dims[d]).reshape([-1 if k == d else 1 for k in range(len(dims))]) * step
    return at


def _rows(f: Fields, codes: np.ndarray) -> np.ndarray:
    at = np.where(codes < 0, codes.astype(np.int64) + f["wrap"], codes.astype(np.int64))
    return np.where((at < 0) | (at >= f["entries"]), f["entries"] - 1, at)


def _chosen(f: Fields, at: np.ndarray, tables: Tables) -> tuple[str, Any]:
    """Which row each place reads: known numbers, or by every code that may be in its bytes."""
    kind = ELEMENTS[f["index_type"]]
    known = [(start, held) for start, held in tables.items() if start <= at.min()]
    inside = [(s, h) for s, h in known if at.max() + kind.bytes <= s + len(h)]
    if inside:
        start, held = inside[0]
        codes = [np.frombuffer(held, kind.numpy, 1, a - start)[0] for a in at.reshape(-1).tolist()]
        return "rows", _rows(f, np.array(codes)).reshape(at.shape)
    every = _rows(f, np.arange(1 << kind.bits).astype(f"u{kind.bytes}").view(kind.numpy))
    if (every == every[0]).all():
        return "rows", np.full(at.shape, every[0])
    return "codes", (kind.bytes, every.tobytes())


def _bytes(at: np.ndarray, size: int) -> np.ndarray:
    return at[..., None] + np.arange(size)


def _gather(f: Fields, tables: Tables) -> Fields:
    dims, size = f["dims"], ELEMENTS[f["x_type"]].bytes
    index, y = _places(f, "index", dims), _places(f, "y", dims)
    first = _places({**f, "x_strides": (f["x_strides"][0], 0, f["x_strides"][2])}, "x", dims)
    form, rows = _chosen(f, index, tables)
    if form == "rows":
        return {"copied": _pairs(_bytes(first + rows * f["x_strides"][1], size), _bytes(y, size))}
    step = f["x_strides"][1]
    copied = _pairs(_bytes(first, size), _bytes(y, size), index[..., None])
    return {"rows": rows, "step": step, "copied": copied}


def _loadrows(f: Fields, tables: Tables) -> Fields:
    (count, width), size = f["dims"], f["element"]
    index = _places(f, "index", (count,), "index_step")
    y, first = _places(f, "y", (count, width)), np.tile(f["external"] + np.arange(width) * size, (count, 1))
    form, rows = _chosen(f, index, tables)
    if form == "rows":
        first = first + rows[:, None] * f["row"]
        return {"space": f["space"], "copied": _pairs(_bytes(first, size), _bytes(y, size))}
    found = _pairs(_bytes(first, size), _bytes(y, size), index[:, None, None])
    return {"space": f["space"], "rows": rows, "step": f["row"], "copied": found}


def _topk(f: Fields, tables: Tables) -> Fields:
    """Of a single element the place is 0: where only places are written, it is not read."""
    dims = f["dims"]
    made, size = (dims[0], f["count"], dims[2]), ELEMENTS[f["x_type"]].bytes
    found: Fields = {}
    if dims[1] > 1 or f["y"] != NONE:
        found["x"] = _places(f, "x", dims).tolist()
        found["kind"] = f["x_type"] if dims[1] > 1 else size
    if dims[1] > 1:
        found["order"] = f["maximum"], f["last"] if f["at"] != NONE else 0
    for name in ("y", "at"):
        if f[name] != NONE:
            kind = ELEMENTS[f[f"{name}_type"]].bytes
            found[name] = kind, _places(f, name, made).tolist()
    return found


def _ftopk(f: Fields, tables: Tables) -> Fields:
    """Zeros of either sign are equal, and so are all NaN: which comes first shows in the elements, too."""
    found = _topk(f, tables)
    if f["dims"][1] > 1:
        found["order"] = f["maximum"], f["last"]
    return found


def _pairs(source: np.ndarray, sink: np.ndarray, *more: np.ndarray) -> list[tuple[int, ...]]:
    columns = [np.broadcast_to(a, sink.shape).reshape(-1).tolist() for a in (source, sink, *more)]
    return sorted(zip(*columns, strict=True))
