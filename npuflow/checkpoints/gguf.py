"""Reads GGUF files: metadata, also in the words of config.json, and tensors that stay mapped, in blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.checkpoints.grouped import Grouped
from npuflow.checkpoints.mapped_file import MappedFile
from npuflow.checkpoints.tensors import FLOATS, FloatTensor, StoredTensor
from npuflow.ir.types import Array

MAGIC, VERSIONS = 0x46554747, (2, 3)
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of metadata by their number, as characters of `struct`."""
ARRAYS = {"B": "u1", "b": "i1", "H": "<u2", "h": "<i2", "I": "<u4", "i": "<i4", "f": "<f4", "?": "u1",
          "Q": "<u8", "q": "<i8", "d": "<f8"}
TEXT, ARRAY, DEEPEST, MOST_DIMENSIONS = 8, 9, 2, 4
KEYS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "value_dim": "attention.value_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "rotated": "rope.dimension_count",
    "max_position_embeddings": "context_length",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_local_experts": "expert_count",
}
"""Hugging Face's names of metadata, and GGUF's behind the name of the architecture."""
SCALING = {
    "rope_type": "type", "factor": "factor", "attention_factor": "attn_factor",
    "original_max_position_embeddings": "original_context_length",
    "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow",
}
"""The same of `rope_scaling`, behind `ARCHITECTURE.rope.scaling`."""


@dataclass(frozen=True)
class GgufFile:
    """Metadata by key, arrays of them as lists, and tensors by name."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def read(path: Path) -> GgufFile:
    """The file's header; data of tensors are checked to lie within the file, and not read."""
    file = MappedFile(path)
    if file.size < 24 or file.number("I", "the file's mark") != MAGIC:
        file.fail('it does not begin with "GGUF"', "is it a GGUF file?")
    version = file.number("I", "the version")
    if version not in VERSIONS:
        swapped = version >> 24 in VERSIONS and not version & 0xFFFFFF
        raise ModelError(
            f"{path.name} is of {'big-endian machines' if swapped else f'GGUF version {version}'}",
            because=f"versions {' and '.join(map(str, VERSIONS))}, little-endian, are read",
            hint="convert the checkpoint again with a recent llama.cpp", code="NF-MODEL-441",
        ).at(file=str(path))
    tensors, keys = file.number("Q", "the number of tensors"), file.number("Q", "the number of keys")
    metadata: dict[str, Any] = {}
    for _ in range(keys):
        key = file.text("a key of the metadata")
        if key in metadata:
            file.fail(f'the metadata has "{key}" twice')
        metadata[key] = _value(file, file.number("I", f'the type of "{key}"'), key)
    rows = [_row(file) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        file.fail(f"general.alignment is {alignment}, and no power of two")
    start = -(-file.at // alignment) * alignment
    found: dict[str, StoredTensor] = {}
    for row in rows:
        if row.name in found:
            file.fail(f'the tensor "{row.name}" is there twice')
        found[row.name] = _tensor(file, row, start)
    return GgufFile(metadata, found)


def _value(file: MappedFile, kind: int, key: str, depth: int = 0) -> Any:
    what = f'the value of "{key}"'
    if kind == TEXT:
        return file.text(what)
    if kind in NUMBERS:
        return file.number(NUMBERS[kind], what)
    if kind != ARRAY or depth >= DEEPEST:
        file.fail(f'"{key}" is of type {kind}, which GGUF does not have' if kind != ARRAY
                  else f'"{key}" is an array of arrays of arrays')
    inner = file.number("I", f'the type of the elements of "{key}"')
    count = file.number("Q", f'the length of "{key}"')
    if inner in NUMBERS:
        return file.array(ARRAYS[NUMBERS[inner]], count, what).tolist()
    if count * 8 > file.size - file.at:   # an element has eight bytes at least
        file.fail(f"{what} has {count:,} elements, and the file ends at byte {file.size:,}")
    return [_value(file, inner, key, depth + 1) for _ in range(count)]


@dataclass(frozen=True)
class _Row:
    """What the file says of a tensor; `shape`: the innermost dimension last."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


def _row(file: MappedFile) -> _Row:
    name = file.text("the name of a tensor")
    rank = file.number("I", f'the number of dimensions of "{name}"')
    if rank > MOST_DIMENSIONS:
        file.fail(f'the tensor "{name}" has {rank:,} dimensions, more than {MOST_DIMENSIONS}')
    sizes = file.array("<u8", rank, f'the shape of "{name}"').tolist()
    kind = file.number("I", f'the type of "{name}"')
    return _Row(name, tuple(reversed(sizes)), kind, file.number("Q", f'the place of "{name}"'))


def _tensor(file: MappedFile, row: _Row, start: int) -> StoredTensor:
    kind = TYPES.get(row.type)
    if kind is None:
        file.fail(f'the tensor "{row.name}" is of type {row.type}, which ggml does not have')
    if kind.name not in FLOATS and kind.unpack is None:
        file.unread(
            row.name, kind.name, ("F32", "F16", "BF16", *READ),
            "take a file of another type, such as Q4_0, Q4_K_M or Q8_0",
        )
    if not row.shape or min(row.shape) < 1:
        file.fail(f'the tensor "{row.name}" has the shape {list(row.shape)}')
    if row.shape[-1] % kind.elements:
        file.fail(
            f'rows of "{row.name}" have {row.shape[-1]:,} elements, and blocks of {kind.name} have '
            f"{kind.elements}"
        )
    data = file.part(
        start + row.offset, prod(row.shape) // kind.elements * kind.size, f'the tensor "{row.name}"'
    )
    if kind.unpack is None:
        return FloatTensor(row.name, kind.name, row.shape, data)
    return BlockTensor(row.name, kind, row.shape, data)


def config(metadata: Mapping[str, Any], file: str) -> CheckpointConfig:
    """What a file's metadata state of its network; what is the same for every layer as one number."""
    family = str(metadata.get("general.architecture", ""))
    called = {name: f"{family}.{key}" for name, key in KEYS.items()}
    values = {name: _one(metadata[key]) for name, key in called.items() if key in metadata}
    prefix = f"{family}.rope.scaling."
    scaling = {name: metadata[prefix + key] for name, key in SCALING.items() if prefix + key in metadata}
    if scaling.get("rope_type", "none") != "none":
        values["rope_scaling"] = scaling
    values["model_type"] = family
    return CheckpointConfig(values, file, {**called, "model_type": "general.architecture"})


def _one(value: Any) -> Any:
    """Of a number for every layer the one that all have."""
    same = isinstance(value, list) and value and all(one == value[0] for one in value)
    return value[0] if same else value


# --- blocks of quantised types as codes with scales, and minima or zero points


class BlockType(NamedTuple):
    """A type by ggml's number: elements and bytes of a block, and what makes codes of blocks [count, bytes];
    None: it is known by name only."""

    name: str
    elements: int
    size: int
    unpack: Callable[[Array], Unpacked] | None = None


class Unpacked(NamedTuple):
    """Of every block: codes [count, elements], and numbers of its groups [count, groups]."""

    codes: Array
    bits: int
    scales: Array
    zeros: Array | None = None
    minima: Array | None = None


def half(blocks: Array, at: int) -> Array:
    """The float16 at an offset of every block: [count, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")


def nibbles(packed: Array) -> Array:
    """All low halves of the bytes, then all high ones."""
    return np.concatenate((packed & 15, packed >> 4), axis=1)


def fifth_bits(packed: Array) -> Array:
    """32 bits of every block, as 16 each."""
    return np.unpackbits(packed, axis=1, bitorder="little") << 4


def middle(scales: Array, code: int) -> Array:
    return np.full(scales.shape, code, np.uint8)


def q4_0(b: Array) -> Unpacked:
    d = half(b, 0)
    return Unpacked(nibbles(b[:, 2:18]), 4, d, middle(d, 8))


def q4_1(b: Array) -> Unpacked:
    return Unpacked(nibbles(b[:, 4:20]), 4, half(b, 0), None, half(b, 2))


def q5_0(b: Array) -> Unpacked:
    d = half(b, 0)
    return Unpacked(nibbles(b[:, 6:22]) | fifth_bits(b[:, 2:6]), 5, d, middle(d, 16))


def q5_1(b: Array) -> Unpacked:
    return Unpacked(nibbles(b[:, 8:24]) | fifth_bits(b[:, 4:8]), 5, half(b, 0), None, half(b, 2))


def q8_0(b: Array) -> Unpacked:
    """Signed bytes, as codes around 128."""
    d = half(b, 0)
    return Unpacked(b[:, 2:34] ^ 128, 8, d, middle(d, 128))


def q4_k(b: Array) -> Unpacked:
    return Unpacked(_nibbles_of_64(b[:, 16:144]), 4, *_scales_of_8(b))


def q5_k(b: Array) -> Unpacked:
    """Bit g of the byte of a column is the fifth bit of that column in group g."""
    upper = (b[:, 16:48, None] >> np.arange(8, dtype=np.uint8)) & 1
    return Unpacked(
        _nibbles_of_64(b[:, 48:176]) | upper.transpose(0, 2, 1).reshape(-1, 256) << 4, 5, *_scales_of_8(b)
    )


def q6_k(b: Array) -> Unpacked:
    """16 groups of 16; two halves of 128, each of four runs of 32."""
    count = len(b)
    low, high = b[:, :128].reshape(count, 2, 2, 32), b[:, 128:192].reshape(count, 2, 1, 32)
    low = np.concatenate((low & 15, low >> 4), axis=2)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    codes = (low | ((high >> shifts) & 3) << 4).reshape(count, 256)
    scales = half(b, 208).astype(np.float32) * b[:, 192:208].view(np.int8).astype(np.float32)
    return Unpacked(codes, 6, scales, middle(scales, 32))


def _nibbles_of_64(packed: Array) -> Array:
    """Four runs of 32 bytes: of each the low halves, then the high ones."""
    runs = packed.reshape(len(packed), 4, 32)
    return np.stack((runs & 15, runs >> 4), axis=2).reshape(len(packed), 256)


def _scales_of_8(b: Array) -> tuple[Array, None, Array]:
    """Scales and minima of the eight groups of a K-block: integers of six bits times a float16 each."""
    low, high, rest = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scale = np.concatenate((low & 63, (rest & 15) | (low >> 6) << 4), axis=1)
    least = np.concatenate((high & 63, rest >> 4 | (high >> 6) << 4), axis=1)
    d, dmin = (half(b, at).astype(np.float32) for at in (0, 2))
    return d * scale.astype(np.float32), None, -(dmin * least.astype(np.float32))


TYPES = {
    0: BlockType("F32", 1, 4), 1: BlockType("F16", 1, 2), 28: BlockType("F64", 1, 8),
    30: BlockType("BF16", 1, 2), 24: BlockType("I8", 1, 1), 25: BlockType("I16", 1, 2),
    26: BlockType("I32", 1, 4), 27: BlockType("I64", 1, 8),
    2: BlockType("Q4_0", 32, 18, q4_0), 3: BlockType("Q4_1", 32, 20, q4_1),
    6: BlockType("Q5_0", 32, 22, q5_0), 7: BlockType("Q5_1", 32, 24, q5_1),
    8: BlockType("Q8_0", 32, 34, q8_0), 9: BlockType("Q8_1", 32, 36),
    10: BlockType("Q2_K", 256, 84), 11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144, q4_k), 13: BlockType("Q5_K", 256, 176, q5_k),
    14: BlockType("Q6_K", 256, 210, q6_k), 15: BlockType("Q8_K", 256, 292),
    16: BlockType("IQ2_XXS", 256, 66), 17: BlockType("IQ2_XS", 256, 74), 18: BlockType("IQ3_XXS", 256, 98),
    19: BlockType("IQ1_S", 256, 50), 20: BlockType("IQ4_NL", 32, 18), 21: BlockType("IQ3_S", 256, 110),
    22: BlockType("IQ2_S", 256, 82), 23: BlockType("IQ4_XS", 256, 136), 29: BlockType("IQ1_M", 256, 56),
    34: BlockType("TQ1_0", 256, 54), 35: BlockType("TQ2_0", 256, 66), 39: BlockType("MXFP4", 32, 17),
}
"""By ggml's number of the type (ggml.h)."""
READ = tuple(t.name for t in TYPES.values() if t.unpack is not None)


@dataclass(frozen=True, eq=False)
class BlockTensor:
    """A tensor of blocks, which run along its last dimension. `data`: bytes, mapped."""

    name: str
    type: BlockType
    shape: tuple[int, ...]
    data: Array

    @property
    def kind(self) -> str:
        return self.type.name

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def floats(self) -> Array:
        return self.grouped().floats().reshape(self.shape)

    def grouped(self) -> Grouped:
        """The matrix of all rows; of more than two dimensions all but the last count rows."""
        assert self.type.unpack is not None
        found = self.type.unpack(self.data.reshape(-1, self.type.size))
        columns = self.shape[-1]
        groups = found.scales.shape[1] * (columns // self.type.elements)

        def by_row(numbers: Array | None) -> Array | None:
            return None if numbers is None else numbers.reshape(-1, groups)

        return Grouped(
            found.codes.reshape(-1, columns), found.bits, columns // groups, found.scales.reshape(-1, groups),
            by_row(found.zeros), by_row(found.minima),
        )
