"""Operators on constants, as far as sizes, and counters and conditions of loops need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npuflow.frontends.tflite.schema import Operator, TfliteTensor
from npuflow.ir.types import Array

PLAIN: dict[str, Callable[..., Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "NEG": np.negative,
    "MINIMUM": np.minimum,
    "MAXIMUM": np.maximum,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "LOGICAL_NOT": np.logical_not,
    "SELECT_V2": np.where,
}
SHAPED = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


def known(operator: Operator, held: Sequence[Array], result: TfliteTensor) -> Array | None:
    """What an operator on constants without scales gives; None where it is none of these."""
    if not result.dtype or result.codes is not None or operator.options.get("FusedActivationFunction"):
        return None
    found = _found(operator, held, result)
    return None if found is None else np.asarray(found, result.dtype)


def _found(operator: Operator, held: Sequence[Array], result: TfliteTensor) -> Array | None:
    name, options = operator.name, operator.options
    if name in PLAIN:
        return PLAIN[name](*held)
    if name in SHAPED:
        return held[0].reshape(result.shape) if held[0].size == np.prod(result.shape) else None
    if name == "CAST":
        return held[0]
    if name == "CONCATENATION":
        return np.concatenate(held, axis=options["Axis"])
    if name == "PACK":
        return np.stack(held, axis=options["Axis"])
    if name == "GATHER" and not options.get("BatchDims"):
        return np.take(held[0], held[1], axis=options.get("Axis", 0))
    if name == "FILL":
        return np.full(held[0].reshape(-1).tolist(), held[1])
    if name == "REDUCE_PROD":
        axes = tuple(held[1].reshape(-1).tolist())
        return np.asarray(np.prod(held[0], axes, keepdims=bool(options.get("KeepDims"))))
    if name == "RANGE":
        return np.arange(*(one.item() for one in held))
    if name == "SLICE":
        begins, sizes = held[1].reshape(-1).tolist(), held[2].reshape(-1).tolist()
        return held[0][tuple(slice(b, None if s < 0 else b + s) for b, s in zip(begins, sizes, strict=True))]
    if name == "STRIDED_SLICE":
        begins, ends, steps = (one.reshape(-1).tolist() for one in held[1:4])
        return np.asarray(held[0][strided(options, begins, ends, steps)])
    return None


def strided(
    options: Mapping[str, Any], begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> tuple[Any, ...]:
    """What a STRIDED_SLICE takes, as an index of numpy."""
    def has(name: str, place: int) -> bool:
        return bool(options.get(name, 0) >> place & 1)

    found: list[Any] = []
    for i, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        if has("EllipsisMask", i):
            found.append(...)
        elif has("NewAxisMask", i):
            found.append(None)
        elif has("ShrinkAxisMask", i):
            found.append(begin)
        else:
            last = begin + end if options.get("Offset") else end
            ends_at = None if has("EndMask", i) else last
            found.append(slice(None if has("BeginMask", i) else begin, ends_at, step))
    return tuple(found)
