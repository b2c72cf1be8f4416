"""Reads GGUF files: metadata, also in the words of config.json, and tensors that stay mapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.checkpoints.config import CheckpointConfig
from npuflow.checkpoints.gguf_blocks import READ, TYPES, BlockTensor
from npuflow.checkpoints.mapped_file import MappedFile
from npuflow.checkpoints.tensors import FLOATS, FloatTensor, StoredTensor

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
