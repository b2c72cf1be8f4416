"""What attention rules share: scores of queries and keys, masks, Softmax, product with values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from npuflow.ir.types import Array
from npuflow.rules._masks import MAKES as MASKS
from npuflow.rules._masks import NoMask, mask
from npuflow.rules._parts import Parts

MAKES = (
    *MASKS,
    "reshape",
    "transpose",
    "matmul",
    "mul",
    "div",
    "tanh",
    "add",
    "softmax",
    "concat",
    "gemm",
    "slice",
    "split",
)
LOWEST = -1e9                             # for -infinity in front of the Softmax: its exp is 0 as well


@dataclass(frozen=True)
class Attended:
    """[batch, heads, queries, size]; the products of queries and keys as they are, capped and masked; what
    the Softmax gave."""

    y: str
    products: str
    capped: str
    masked: str
    weights: str


def heads(parts: Parts, x: str, count: int) -> str:
    """[batch, length, count * size] as [batch, count, length, size]."""
    batch, length, width = parts.shape(x)
    return parts.transpose(parts.reshape(x, (batch, length, count, width // count)), (0, 2, 1, 3))


def joined(parts: Parts, x: str) -> str:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, count, length, size = parts.shape(x)
    return parts.reshape(parts.transpose(x, (0, 2, 1, 3)), (batch, length, count * size))


def attended(
    parts: Parts, q: str, k: str, v: str, scale: float, masks: Sequence[str] = (), softcap: float = 0.0
) -> Attended:
    """Several heads of queries share one of keys by standing below each other in its
    product. `scale` 0: by the size."""
    batch, count, length, size = parts.shape(q)
    shared, keys = parts.shape(k)[1:3]
    rows = count // shared * length
    factor = scale or 1.0 / sqrt(size)
    q = parts.mul(q, factor, "query") if factor != 1.0 else q
    products = parts.matmul(parts.reshape(q, (batch, shared, rows, size)), parts.swapped(k), "product")
    products = scores = parts.reshape(products, (batch, count, length, keys))
    if softcap:
        scores = parts.mul(parts.op("tanh", (parts.mul(scores, 1.0 / softcap),)), softcap, "capped")
    capped = scores
    for added in masks:
        scores = parts.add(scores, added, "masked")
    weights = parts.op("softmax", (scores,), axis=3)
    y = parts.matmul(parts.reshape(weights, (batch, shared, rows, keys)), v, "attended")
    y = parts.reshape(y, (batch, count, length, parts.shape(v)[3]))
    return Attended(y, products, capped, scores, weights)


def added(parts: Parts, given: str, keys: int) -> str | NoMask:
    """A mask as numbers to add: of truth values (true: attend), or numbers as they
    are but for infinite ones."""
    held, shape = parts.array(given), parts.shape(given)
    if shape and shape[-1] != keys:
        return NoMask(f"a mask of {shape[-1]} keys for {keys}")
    if parts.type(given).dtype == "bool":
        if held is None:
            found = mask(parts, given)
            return found if isinstance(found, NoMask) else parts.mul(parts.sub(found, 1.0), -LOWEST, "mask")
        held = np.where(held, 0.0, -np.inf)
    elif held is None:
        return (
            given if parts.type(given).dtype == "float32" else NoMask(f"a mask of {parts.type(given).dtype}")
        )
    return constant_mask(parts, held)


def constant_mask(parts: Parts, held: Array) -> str | NoMask:
    if np.isneginf(held).all(-1).any():
        return NoMask("a query that attends to no key")
    return parts.const(np.maximum(held, LOWEST), "mask")


def window(
    parts: Parts, queries: int, keys: int, offset: Array, valid: Array | None, left: int, right: int
) -> str | NoMask:
    """Query i stands at i + offset, an offset for each sample or one for all. It attends to keys from `left`
    before it to `right` behind it (-1: to all), of which the first `valid` are keys."""
    at = np.arange(queries)[None, :, None] + offset.reshape(-1, 1, 1)
    key = np.arange(keys)[None, None, :]
    seen = np.ones((len(at), queries, keys), bool)
    if left >= 0:
        seen &= key >= at - left
    if right >= 0:
        seen &= key <= at + right
    if valid is not None:
        seen = seen & (key < valid.reshape(-1, 1, 1))
    return constant_mask(parts, np.where(seen if len(seen) == 1 else seen[:, None], 0.0, -np.inf))


def with_past(parts: Parts, past: str, x: str) -> str:
    return parts.concat((past, x), 2, "present") if past else x


def rotated(parts: Parts, x: str, cos: str, sin: str, interleaved: bool) -> str:
    """[batch, heads, length, size] by cosines and sines [batch, 1, length, size / 2]."""
    batch, count, length, size = shape = parts.shape(x)
    half = size // 2
    if interleaved:  # pairs of neighbours
        pairs = parts.reshape(x, (batch, count, length * half, 2))
        real, imaginary = (
            parts.reshape(parts.slice(pairs, 3, k, k + 1), (batch, count, length, half)) for k in range(2)
        )
    else:
        real, imaginary = parts.slice(x, 3, 0, half), parts.slice(x, 3, half, size)
    first = parts.sub(parts.mul(real, cos), parts.mul(imaginary, sin), "real")
    second = parts.add(parts.mul(real, sin), parts.mul(imaginary, cos), "imaginary")
    if not interleaved:
        return parts.concat((first, second), 3)
    parted = [parts.reshape(v, (batch, count, length * half, 1)) for v in (first, second)]
    return parts.reshape(parts.concat(parted, 3), shape)
