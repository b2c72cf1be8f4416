"""Blocks of GGUF's quantised types as codes with scales, and minima or zero points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from npuflow.checkpoints.grouped import Grouped
from npuflow.ir.types import Array


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
