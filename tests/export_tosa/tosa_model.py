"""TOSA networks run: by the reference model where it is installed, and by a model of its rules in numpy.

The numpy model follows the specification of TOSA 1.0, integer profile, and checks what it requires: ranges of
RESCALE, products and sums within 32 bits, indices within their table, shapes that are as stated.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.export_tosa.file import OPERATORS, TosaNetwork, TosaOperator, written

Array = np.ndarray
TOOL = shutil.which("tosa_reference_model")
NUMBERS = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "bool": np.bool_}


def by_reference_model(network: TosaNetwork, feeds: Mapping[str, Array]) -> list[Array]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "net.tosa").write_bytes(written(network))
        for k, name in enumerate(network.inputs):
            np.save(place / f"i{k}.npy", feeds[name])
        files = [",".join(f"{s}{k}.npy" for k in range(n)) for s, n in
                 (("i", len(network.inputs)), ("o", len(network.outputs)))]
        words = [
            str(TOOL), "--tosa_file", "net.tosa", "--flatbuffer_dir", folder, "--output_dir", folder,
            "--ifm_name", ",".join(network.inputs), "--ifm_file", files[0],
            "--ofm_name", ",".join(network.outputs), "--ofm_file", files[1],
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return [np.load(place / f"o{k}.npy") for k in range(len(network.outputs))]


def by_rules(network: TosaNetwork, feeds: Mapping[str, Array]) -> list[Array]:
    values: dict[str, Any] = {shape.name: shape.numbers for shape in network.shapes}
    kinds = {tensor.name: tensor for tensor in network.tensors}
    values |= {t.name: t.data for t in network.tensors if t.data is not None}
    values |= dict(feeds)
    for one in network.operators:
        if one.name.startswith("CONST"):
            continue
        (result,) = one.outputs
        assert "nan_mode" not in OPERATORS[one.name][1] or one.attributes["nan_mode"] in (1, 2)
        made = np.asarray(RULES[one.name](one, *(values[name] for name in one.inputs)))
        kind = kinds[result]
        assert made.shape == kind.shape, (one.name, made.shape, kind.shape)
        values[result] = _stored(made, kind.dtype)
    return [values[name] for name in network.outputs]


def _stored(made: Array, dtype: str) -> Array:
    """A result in its type, which must have room for it."""
    kept = made.astype(NUMBERS[dtype])
    assert np.array_equal(kept.astype(np.int64), made.astype(np.int64)), f"a result leaves {dtype}"
    return kept


def _wide(*arrays: Array) -> list[Array]:
    return [np.asarray(a).astype(np.int64) for a in arrays]


def _rescale(one: TosaOperator, x: Array, m: Array, n: Array, zero: Array, out: Array) -> Array:
    assert one.attributes["scale32"] and one.attributes["rounding_mode"] == 1 and m.dtype == np.int32
    assert zero.dtype == x.dtype and (x.dtype == np.int8 or not zero.any())
    assert one.attributes["per_channel"] == (m.size > 1) and m.size in (1, x.shape[-1])
    value, factor, shift = *_wide(x - zero.astype(np.int64), m), n.astype(np.int64)
    assert ((shift >= 2) & (shift <= 62)).all() and (factor >= 0).all()
    reach = np.int64(1) << (shift - 1)
    assert ((value >= -reach) & (value < reach)).all(), "RESCALE: a number beyond its shift"
    found = (value * factor + reach) >> shift
    assert (np.abs(found) < 1 << 31).all()
    if out.dtype == np.int32:
        assert not out.any()
        return found
    ends = np.iinfo(out.dtype)
    return np.clip(found + out.astype(np.int64), ends.min, ends.max)


def _windows(x: Array, kernel: Sequence[int], one: TosaOperator, fill: int) -> tuple[Array, int, int]:
    """Of [n, h, w, c] padded, [kernel, n, out, out, c]; the last window must end where the image does."""
    (top, bottom, left, right), stride = one.attributes["pad"], one.attributes["stride"]
    dilation = one.attributes.get("dilation", (1, 1))
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    sizes = [d - (k - 1) * e - 1 for d, k, e in zip(x.shape[1:3], kernel, dilation, strict=True)]
    assert all(size % s == 0 for size, s in zip(sizes, stride, strict=True)), "windows leave a rest"
    h, w = (size // s + 1 for size, s in zip(sizes, stride, strict=True))
    rows = [
        x[:, i * dilation[0] :, j * dilation[1] :][:, :: stride[0], :: stride[1]][:, :h, :w]
        for i in range(kernel[0]) for j in range(kernel[1])
    ]
    return np.stack(rows), h, w


def _conv(one: TosaOperator, x: Array, w: Array, bias: Array, x_zero: Array, w_zero: Array) -> Array:
    x, w, bias = _wide(x - x_zero.astype(np.int64), w - w_zero.astype(np.int64), bias)
    out, kh, kw, channels = w.shape
    assert channels == x.shape[3]
    seen, _, _ = _windows(x, (kh, kw), one, 0)
    return np.einsum("knhwc,okc->nhwo", seen, w.reshape(out, kh * kw, channels)) + bias


def _depthwise(one: TosaOperator, x: Array, w: Array, bias: Array, x_zero: Array, w_zero: Array) -> Array:
    x, w, bias = _wide(x - x_zero.astype(np.int64), w - w_zero.astype(np.int64), bias)
    kh, kw, channels, many = w.shape
    seen, rows, columns = _windows(x, (kh, kw), one, 0)
    found = np.einsum("knhwc,kcm->nhwcm", seen, w.reshape(kh * kw, channels, many))
    return found.reshape(x.shape[0], rows, columns, channels * many) + bias


def _matmul(one: TosaOperator, a: Array, b: Array, a_zero: Array, b_zero: Array) -> Array:
    return np.matmul(a - a_zero.astype(np.int64), b - b_zero.astype(np.int64))


def _maxpool(one: TosaOperator, x: Array) -> Array:
    assert all(p < one.attributes["kernel"][k // 2] for k, p in enumerate(one.attributes["pad"]))
    return _windows(x, one.attributes["kernel"], one, np.iinfo(x.dtype).min)[0].max(0)


def _gather(one: TosaOperator, table: Array, index: Array) -> Array:
    assert index.dtype == np.int32 and ((index >= 0) & (index < table.shape[1])).all()
    return np.take_along_axis(table, index[:, :, None].astype(np.int64), 1)


def _clamp(one: TosaOperator, x: Array) -> Array:
    ends = [np.frombuffer(one.attributes[name], x.dtype)[0] for name in ("min_val", "max_val")]
    return np.clip(x, *ends)


def _mul(one: TosaOperator, a: Array, b: Array, shift: Array) -> Array:
    assert not shift.any() and a.dtype == b.dtype == np.int32 and a.ndim == b.ndim
    return np.multiply(*_wide(a, b))


def _two(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(one: TosaOperator, a: Array, b: Array) -> Array:
        assert a.dtype == b.dtype == np.int32 and a.ndim == b.ndim
        return function(*_wide(a, b))

    return run


def _shifted(one: TosaOperator, a: Array, n: Array) -> Array:
    assert not one.attributes["round"] and ((n >= 0) & (n <= 31)).all()
    return np.right_shift(*_wide(a, n))


def _slice(one: TosaOperator, x: Array, start: Sequence[int], size: Sequence[int]) -> Array:
    assert all(s >= 0 and s + n <= d for s, n, d in zip(start, size, x.shape, strict=True))
    return x[tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))]


RULES: dict[str, Callable[..., Any]] = {
    "RESCALE": _rescale, "CONV2D": _conv, "DEPTHWISE_CONV2D": _depthwise, "MATMUL": _matmul,
    "MAX_POOL2D": _maxpool, "GATHER": _gather, "CLAMP": _clamp, "MUL": _mul, "SLICE": _slice,
    "ARITHMETIC_RIGHT_SHIFT": _shifted,
    "ADD": _two(np.add), "SUB": _two(np.subtract),
    "MAXIMUM": _two(np.maximum), "MINIMUM": _two(np.minimum),
    "GREATER": _two(np.greater), "GREATER_EQUAL": _two(np.greater_equal),
    "ABS": lambda one, x: np.abs(*_wide(x)),
    "BITWISE_NOT": lambda one, x: ~x,
    "TABLE": lambda one, x, t: t[x.astype(np.int64) + 128],
    "SELECT": lambda one, c, a, b: np.where(c, a, b),
    "CAST": lambda one, x: x,
    "IDENTITY": lambda one, x: x,
    "ARGMAX": lambda one, x: x.argmax(one.attributes["axis"]),
    "REDUCE_MAX": lambda one, x: x.max(one.attributes["axis"], keepdims=True),
    "REDUCE_SUM": lambda one, x: _wide(x)[0].sum(one.attributes["axis"], keepdims=True),
    "CONCAT": lambda one, *parts: np.concatenate(parts, one.attributes["axis"]),
    "PAD": lambda one, x, p, c: np.pad(x, np.reshape(p, (-1, 2)), constant_values=c[0]),
    "RESHAPE": lambda one, x, shape: x.reshape(shape),
    "REVERSE": lambda one, x: np.flip(x, one.attributes["axis"]),
    "TILE": lambda one, x, times: np.tile(x, times),
    "TRANSPOSE": lambda one, x: x.transpose(one.attributes["perms"]),
}
