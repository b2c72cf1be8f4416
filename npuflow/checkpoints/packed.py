"""Weights that quantised folders hold in several tensors (GPTQ, AWQ, compressed-tensors), as one each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.checkpoints.grouped import Grouped
from npuflow.checkpoints.safetensors import WholeTensor
from npuflow.checkpoints.tensors import FLOATS, FloatTensor, StoredTensor
from npuflow.ir.types import Array

WORD = 32                                 # bits of the words that codes are packed into
NIBBLES = (0, 2, 4, 6, 1, 3, 5, 7)        # AWQ: the column that each half byte of a word belongs to
BITS = (2, 4, 8)
Parts = Mapping[str, FloatTensor]


@dataclass(frozen=True, eq=False)
class PackedTensor:
    """A matrix whose codes, scales and zero points are tensors of their own, `parts` by what they are."""

    name: str
    kind: str
    shape: tuple[int, ...]
    parts: Parts
    unpack: Callable[[Parts], Grouped]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def grouped(self) -> Grouped:
        return self.unpack(self.parts)

    def floats(self) -> Array:
        return self.grouped().floats()


@dataclass(frozen=True)
class Method:
    """A way of storing: the suffix of the tensor that holds codes, suffixes of the others, and what makes one
    tensor of them."""

    codes: str
    others: tuple[str, ...]
    tensor: Callable[[str, Parts, CheckpointConfig], PackedTensor]


def tensors(stored: Mapping[str, FloatTensor], config: CheckpointConfig) -> dict[str, StoredTensor]:
    """The tensors of a folder, quantised matrices as one each, called `weight`."""
    if "quantization_config" not in config:
        return dict(stored)
    table = config.table("quantization_config")
    kind = table.text("quant_method", "")
    if kind not in METHODS:
        raise ModelError(
            f'weights quantised by "{kind}" are not read', because=f"known are {', '.join(METHODS)}",
            hint="take the checkpoint in bfloat16, or as a GGUF file", code="NF-MODEL-464",
        ).at(file=config.file)
    method, found = METHODS[kind], dict[str, StoredTensor](stored)
    for name in stored:
        stem = name.removesuffix(method.codes)
        if stem == name:
            continue
        parts = {end: stored[stem + end] for end in (method.codes, *method.others) if stem + end in stored}
        for end, part in parts.items():
            if (part.kind in FLOATS) != ("scale" in end) or part.kind not in (*FLOATS, "I32", "I64", "U32"):
                _unfit(f"{stem}weight", f"{end} stored as {part.kind}")
            del found[stem + end]
        found[f"{stem}weight"] = method.tensor(f"{stem}weight", parts, table)
    return found


def gptq(name: str, parts: Parts, table: CheckpointConfig) -> PackedTensor:
    """qweight [inputs / codes of a word, outputs], scales [groups, outputs], qzeros [groups, outputs / codes
    of a word], g_idx [inputs]: the group of every input. Zero points are stored less 1, but in format
    gptq_v2."""
    bits, more = _bits(table, "bits"), int(table.text("checkpoint_format", "gptq") != "gptq_v2")
    codes, scales, zeros = (_part(name, parts, end) for end in ("qweight", "scales", "qzeros"))
    inputs, outputs = codes.shape[0] * (WORD // bits), codes.shape[1]
    order = parts.get("g_idx")
    wanted = {
        "qzeros": (scales.shape[0], outputs * bits // WORD), "scales": (scales.shape[0], outputs),
        **({"g_idx": (inputs,)} if order is not None else {}),
    }
    _fits(name, parts, wanted, inputs)

    def unpack(_: Parts) -> Grouped:
        by_output = _unpacked(_numbers(zeros), bits).astype(np.int16) + more
        whole = _unpacked(_numbers(codes).T, bits)
        own = _order(name, order, inputs, scales.shape[0])
        return Grouped(
            whole, bits, inputs // scales.shape[0], _scales(scales).T.copy(), by_output.T.copy(), order=own
        )

    return PackedTensor(name, f"GPTQ {bits} bits", (outputs, inputs), parts, unpack)


def awq(name: str, parts: Parts, table: CheckpointConfig) -> PackedTensor:
    """qweight [inputs, outputs / 8], scales [groups, outputs], qzeros [groups, outputs / 8]; the half bytes
    of a word are outputs 0, 2, 4, 6, 1, 3, 5, 7."""
    version = table.text("version", "gemm").lower()
    if _bits(table, "bits") != 4 or version != "gemm":
        _unfit(name, f"AWQ of {table.whole('bits')} bits in the version {version}", "4 bits, gemm, is read")
    codes, scales, zeros = (_part(name, parts, end) for end in ("qweight", "scales", "qzeros"))
    inputs, outputs = codes.shape[0], codes.shape[1] * 8
    _fits(name, parts, {"qzeros": (scales.shape[0], outputs // 8), "scales": (scales.shape[0], outputs)},
          inputs)

    def unpack(_: Parts) -> Grouped:
        whole, by_output = (_unpacked(_numbers(part), 4, NIBBLES).T.copy() for part in (codes, zeros))
        return Grouped(whole, 4, inputs // scales.shape[0], _scales(scales).T.copy(), by_output)

    return PackedTensor(name, "AWQ 4 bits", (outputs, inputs), parts, unpack)


def compressed(name: str, parts: Parts, table: CheckpointConfig) -> PackedTensor:
    """weight_packed [outputs, inputs / codes of a word], weight_scale [outputs, groups], zero points packed
    along outputs, weight_g_idx [inputs]; codes and zero points are around the middle of their range."""
    form, weights = table.text("format", ""), _weights(table)
    bits = _bits(weights, "num_bits")
    if form != "pack-quantized" or weights.text("type", "int") != "int":
        _unfit(name, f"compressed-tensors of the form {form}", "pack-quantized integers are read")
    codes, scales = (_part(name, parts, end) for end in ("weight_packed", "weight_scale"))
    shape = _numbers(_part(name, parts, "weight_shape")).reshape(-1).tolist()
    if len(shape) != 2 or codes.shape != (shape[0], -(-shape[1] * bits // WORD)):
        _unfit(name, f"codes {list(codes.shape)} of a matrix {shape}")
    outputs, inputs = shape
    zeros, order = parts.get("weight_zero_point"), parts.get("weight_g_idx")
    groups = scales.shape[1] if len(scales.shape) == 2 else 0
    wanted = {"weight_scale": (outputs, groups), **({"weight_g_idx": (inputs,)} if order is not None else {})}
    if zeros is not None:
        wanted["weight_zero_point"] = (-(-outputs * bits // WORD), groups)
    _fits(name, parts, wanted, inputs)

    def unpack(_: Parts) -> Grouped:
        whole = _unpacked(_numbers(codes), bits)[:, :inputs]
        if zeros is None:
            by_row: Array = np.full((outputs, groups), 1 << (bits - 1), np.uint8)
        else:
            by_row = _unpacked(_numbers(zeros).T, bits).T[:outputs].copy()
        own = _order(name, order, inputs, groups)
        return Grouped(whole.copy(), bits, inputs // groups, _scales(scales), by_row, order=own)

    return PackedTensor(name, f"compressed {bits} bits", (outputs, inputs), parts, unpack)


METHODS = {
    "gptq": Method("qweight", ("qzeros", "scales", "g_idx"), gptq),
    "awq": Method("qweight", ("qzeros", "scales"), awq),
    "compressed-tensors": Method(
        "weight_packed", ("weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape"), compressed
    ),
}


def _weights(table: CheckpointConfig) -> CheckpointConfig:
    """What compressed-tensors says of weights, of its only group of layers."""
    groups = list(table.table("config_groups").values)
    if len(groups) != 1:
        table.wrong("config_groups", groups, "one group of layers is read")
    return table.table("config_groups").table(groups[0]).table("weights")


def _bits(table: CheckpointConfig, key: str) -> int:
    found = table.whole(key)
    if found not in BITS:
        table.wrong(key, found, f"codes of {', '.join(map(str, BITS))} bits are read")
    return found


def _part(name: str, parts: Parts, end: str) -> FloatTensor:
    found = parts.get(end)
    if found is None:
        _unfit(name, f'no tensor "{name.removesuffix("weight")}{end}"')
    if len(found.shape) != (1 if end == "weight_shape" else 2):
        _unfit(name, f"{end} of the shape {list(found.shape)}")
    return found


def _fits(name: str, parts: Parts, wanted: Mapping[str, tuple[int, ...]], inputs: int) -> None:
    for end, shape in wanted.items():
        if parts[end].shape != shape:
            _unfit(name, f"{end} of the shape {list(parts[end].shape)}", f"{list(shape)} goes with its codes")
    groups = next(shape for end, shape in wanted.items() if "scale" in end)
    count = groups[1] if "weight_scale" in wanted else groups[0]
    if count < 1 or inputs % count:
        _unfit(name, f"{count} groups of {inputs} inputs", "all groups have one size")


def _unfit(name: str, found: str, because: str = "is it whole, and of this version?") -> NoReturn:
    raise ModelError(
        f'the quantised weight "{name}" cannot be read', because=f"it has {found}; {because}",
        hint="download the checkpoint again, or take it in bfloat16", code="NF-MODEL-463",
    )


def _numbers(tensor: FloatTensor) -> Array:
    return tensor.numbers() if isinstance(tensor, WholeTensor) else tensor.floats()


def _scales(tensor: FloatTensor) -> Array:
    """float16 as stored; others as float32."""
    if tensor.kind == "F16":
        return tensor.data.view("<f2").reshape(tensor.shape)
    return tensor.floats()


def _unpacked(words: Array, bits: int, order: tuple[int, ...] = ()) -> Array:
    """Codes out of words along the last axis, the lowest bits first; `order`: where each of a word belongs.
    """
    held = words.astype(np.uint32)
    shifts = np.arange(0, WORD, bits, dtype=np.uint32)
    parted = ((held[..., None] >> shifts) & ((1 << bits) - 1)).astype(np.uint8)
    if order:
        placed = np.empty_like(parted)
        placed[..., list(order)] = parted
        parted = placed
    return parted.reshape(len(held), -1)


def _order(name: str, tensor: FloatTensor | None, inputs: int, groups: int) -> Array | None:
    """The group of every input; None where groups are neighbours."""
    if tensor is None:
        return None
    found = _numbers(tensor).astype(np.int64).reshape(-1)
    if found.size and (found.min() < 0 or found.max() >= groups):
        _unfit(name, f"inputs of group {int(found.max())}, of {groups}")
    if np.array_equal(found, np.arange(inputs) // (inputs // groups)):
        return None
    return found.astype(np.int32)
