"""Matrices packed as GPTQ, AWQ and compressed-tensors store them, number by number, and folders of such."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.ir.types import Array
from tests.checkpoints.gguf_files import stored

safetensors = pytest.importorskip("safetensors.numpy")

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Packed = tuple[dict[str, Array], Array]
"""Tensors by what they are, and the floats that they stand for."""


def words(codes: Array, bits: int, order: tuple[int, ...] = ()) -> Array:
    """Codes packed along the last axis, the lowest bits first."""
    many = 32 // bits
    made = np.zeros((codes.shape[0], codes.shape[1] // many), np.uint32)
    for column in range(made.shape[1]):
        for place in range(many):
            own = codes[:, column * many + (order[place] if order else place)].astype(np.uint32)
            made[:, column] |= own << np.uint32(bits * place)
    return made.view(np.int32)


def drawn(rng: np.random.Generator, shape: tuple[int, int], group: int, bits: int) -> tuple[Array, ...]:
    """Codes, scales and zero points of a matrix [outputs, inputs], the two last [outputs, groups]."""
    groups = (shape[0], shape[1] // group)
    scales = (0.01 + 0.1 * rng.random(groups)).astype(np.float16)
    return rng.integers(0, 1 << bits, shape), scales, rng.integers(1, 1 << bits, groups)


def gptq(
    rng: np.random.Generator, shape: tuple[int, int], bits: int = 4, ordered: bool = False, less: int = 1
) -> Packed:
    """`ordered`: groups of inputs that are no neighbours; `less`: what stored zero points lack."""
    group = 16
    codes, scales, zeros = drawn(rng, shape, group, bits)
    order = rng.permutation(np.arange(shape[1]) // group) if ordered else np.arange(shape[1]) // group
    real = (codes - zeros[:, order]).astype(np.float32) * scales[:, order].astype(np.float32)
    return {
        "qweight": np.ascontiguousarray(words(codes, bits).T),
        "qzeros": words(np.ascontiguousarray((zeros - less).T), bits),
        "scales": np.ascontiguousarray(scales.T), "g_idx": order.astype(np.int32),
    }, real


def awq(rng: np.random.Generator, shape: tuple[int, int]) -> Packed:
    group = 16
    codes, scales, zeros = drawn(rng, shape, group, 4)
    at = np.arange(shape[1]) // group
    real = (codes - zeros[:, at]).astype(np.float32) * scales[:, at].astype(np.float32)
    return {
        "qweight": words(np.ascontiguousarray(codes.T), 4, AWQ_ORDER),
        "qzeros": words(np.ascontiguousarray(zeros.T), 4, AWQ_ORDER),
        "scales": np.ascontiguousarray(scales.T),
    }, real


def compressed(rng: np.random.Generator, shape: tuple[int, int], ordered: bool = False) -> Packed:
    """Symmetric: zero is code 8."""
    group = 16
    codes, scales, _ = drawn(rng, shape, group, 4)
    order = rng.permutation(np.arange(shape[1]) // group) if ordered else np.arange(shape[1]) // group
    real = (codes - 8).astype(np.float32) * scales[:, order].astype(np.float32)
    more = {"weight_g_idx": order.astype(np.int32)} if ordered else {}
    packed = {
        "weight_packed": words(codes, 4), "weight_scale": scales,
        "weight_shape": np.array(shape, np.int64), **more,
    }
    return packed, real


WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 16}
COMPRESSED = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS}},
}
METHODS: Mapping[str, tuple[Callable[..., Packed], dict[str, Any], dict[str, Any]]] = {
    "gptq": (gptq, {}, {"quant_method": "gptq", "bits": 4, "group_size": 16}),
    "gptq-ordered": (gptq, {"ordered": True}, {"quant_method": "gptq", "bits": 4, "desc_act": True}),
    "gptq-v2": (gptq, {"less": 0}, {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}),
    "gptq-8": (gptq, {"bits": 8}, {"quant_method": "gptq", "bits": 8}),
    "awq": (awq, {}, {"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}),
    "compressed": (compressed, {}, COMPRESSED),
    "compressed-ordered": (compressed, {"ordered": True}, COMPRESSED),
}


def folders(source: Path, path: Path, method: str) -> tuple[Path, Path]:
    """The checkpoint with quantised matrices of its layers, and one with the floats that these stand for."""
    make, options, table = METHODS[method]
    rng = np.random.default_rng(5)
    packed, plain = {}, {}
    for name, array in stored(source).items():
        packed[name] = plain[name] = array
        if ".layers." in name and array.ndim == 2:
            parts, real = make(rng, array.shape, **options)
            del packed[name]
            packed |= {f"{name.removesuffix('weight')}{end}": held for end, held in parts.items()}
            plain[name] = real
    made = []
    for folder, tensors in (("packed", packed), ("plain", plain)):
        shutil.copytree(source, path / folder, ignore=shutil.ignore_patterns("*.safetensors*"))
        safetensors.save_file(tensors, path / folder / "model.safetensors")
        made.append(path / folder)
    config = json.loads((source / "config.json").read_text())
    (path / "packed" / "config.json").write_text(json.dumps({**config, "quantization_config": table}))
    return made[0], made[1]
