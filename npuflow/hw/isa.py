"""The instruction set: opcodes, their fields and their exact meaning. Encoders, disassembler and docs derive from `OPCODES`.

A command is 64 little-endian 32-bit words. Word 0: opcode (bits 0-7), queue index (8-15), core (16-23), flags (24-31).
Word 1: node index (op <-> command map). Words 2-9: `wait`, sixteen unsigned 16-bit counts, one per queue of the core:
start only after that queue has retired at least that many commands since program start (modulo 2^16). Words 10-63: fields.

Local memory is one byte array per core; external memory has two spaces: CONST (weights, tables; read only) and DATA
(activations). Addresses and strides are in bytes; strides are signed. Integers are little endian, two's complement.
"Container" dtypes: see DTYPES. All arithmetic is exact; R is the rounding mode in the command's `rounding` field.
A tensor operand `t[d0,d1,d2,d3]` is an address, a dtype and 4 byte strides; the extents are the command's.
"""

from __future__ import annotations

from dataclasses import dataclass

WORDS = 64
HEADER_WORDS = 10
WAIT_SLOTS = 16
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
NIBBLES = ("int4", "uint4")                # two codes a byte, the lower half first
WEIGHTS = (*DTYPES, *NIBBLES)
ROUNDINGS = ("half_up", "half_even", "half_away", "truncate")
SPACES = ("DATA", "CONST")
NONE = 0xFFFFFFFF  # an absent pointer


@dataclass(frozen=True)
class Field:
    """`width`: how many 32-bit words; `signed`: two's complement; `enum`: names by value."""

    name: str
    width: int = 1
    signed: bool = False
    enum: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opcode:
    code: int
    name: str
    queue: str  # LOAD, STORE, TENSOR, VECTOR or ANY
    fields: tuple[Field, ...]
    doc: str


def _ptr(name: str) -> tuple[Field, ...]:
    return (Field(name),)


def _tensor(name: str, rank: int = 4) -> tuple[Field, ...]:
    return (Field(f"{name}"), Field(f"{name}_type", enum=DTYPES), Field(f"{name}_strides", rank, signed=True))


def _f(text: str) -> tuple[Field, ...]:
    """'a b:4 c!' -> fields; `:n` a vector of n words, `!` signed."""
    out = []
    for word in text.split():
        signed = word.endswith("!")
        name, _, width = word.rstrip("!").partition(":")
        out.append(Field(name, int(width or 1), signed))
    return tuple(out)


_ROUND = (Field("rounding", enum=ROUNDINGS),)
_ACC = (Field("acc"), Field("acc_type", enum=DTYPES))
_DMA = (Field("space", enum=SPACES), *_f("external local element dims:6 external_strides:6! local_strides:6!"))
_CLAMP = _f("lo! hi!")

OPCODES: tuple[Opcode, ...] = (
    Opcode(
        1,
        "LOAD",
        "LOAD",
        (*_DMA, *_f("mask")),
        "local[i0..i5] = external[i0..i5] for i < dims; `element` bytes each (1, 2, 4 or 8).  mask 0: of this core alone. "
        "Else a shared load of the cores in the mask: the k-th LOAD with this mask in a queue is the same transfer on each of "
        "them, from the same external bytes to each core's own `local`; it starts when all have come to it, the bytes cross "
        "external memory's bus once, and it retires on all cores together.",
    ),
    Opcode(2, "STORE", "STORE", _DMA, "external[i0..i5] = local[i0..i5] for i < dims; `space` must be DATA."),
    Opcode(3, "FILL", "VECTOR", (*_tensor("y"), *_f("dims:4 value!")), "y[i] = value."),
    Opcode(
        4,
        "CONV",
        "TENSOR",
        (
            *_tensor("x"),
            *_f("x_dims:4 x_zero!"),
            *_ptr("w"),
            Field("w_type", enum=WEIGHTS),
            *_f("w_zero! w_zeros"),
            *_ACC,
            *_f("batch out_channels out_height out_width groups kernel:2 stride:2 dilation:2 origin:2! insert:2 accumulate"),
        ),
        "acc[n,o,y,x] (dense, (+)= when accumulate) = sum over c,i,j of (X[n, g*Cg+c, Y, X] - x_zero) * "
        "(w[o,c,i,j] - wz[o]).  "
        "x is [n, C, H, W] with x_dims extents and x_strides; Cg = C / groups; g = o / (out_channels / groups); w "
        "is dense "
        "[out_channels, Cg, kernel], of int4 and uint4 two elements a byte, the lower half first.  "
        "Y = y*stride + i*dilation + origin (origin = -pad in the tile's own rows).  "
        "With insert = s > 1 "
        "the input has s-1 virtual zeros between rows (transposed convolution): Y must be a multiple of s and row "
        "Y/s is read. "
        "Coordinates outside the tile or not a multiple contribute 0.  wz[o] = w_zero, or int32 at `w_zeros` when "
        "that is not NONE.",
    ),
    Opcode(
        5,
        "MATMUL",
        "TENSOR",
        (
            *_f("a"),
            Field("a_type", enum=DTYPES),
            *_f("a_strides:3! a_zero!"),
            *_f("b"),
            Field("b_type", enum=WEIGHTS),
            *_f("b_strides:3! b_zero! b_zeros"),
            *_ACC,
            *_f("batch m k n accumulate"),
        ),
        "acc[b,m,n] (dense, (+)= when accumulate) = sum over k of (a[b,m,k] - a_zero) * (b[b,k,n] - bz[n]); bz[n] "
        "= b_zero, or int32 "
        "at `b_zeros` when that is not NONE.  b_strides of int4 and uint4 count half bytes, of which a byte's lower one "
        "comes first.",
    ),
    Opcode(
        6,
        "REQUANT",
        "VECTOR",
        (
            *_ACC,
            *_tensor("y"),
            *_f("dims:4 channel_axis bias"),
            Field("bias_type", enum=DTYPES),
            *_f("bias_shift multiplier multipliers shift! "),
            *_f("zero!"),
            *_CLAMP,
            *_f("los his"),
            *_ROUND,
        ),
        "y[i] = clamp(R((acc[i] + (bias[c] << bias_shift)) * m[c] / 2^shift) + zero, lo[c], hi[c]).  acc is dense "
        "over dims; c = index along "
        "channel_axis.  bias NONE: 0.  m[c] = multiplier, or uint32 at `multipliers` when that is not NONE; lo/hi "
        "likewise from int32 at los/his.",
    ),
    Opcode(
        7,
        "ADD",
        "VECTOR",
        (
            *_tensor("a"),
            *_tensor("b"),
            *_tensor("y"),
            *_f("dims:4 a_zero! b_zero! a_multiplier! b_multiplier! shift! zero!"),
            *_CLAMP,
            *_ROUND,
        ),
        "y = clamp(R(((a - a_zero) * a_multiplier + (b - b_zero) * b_multiplier) / 2^shift) + zero, lo, hi); "
        "stride 0 broadcasts. "
        "Multipliers are signed (subtraction).",
    ),
    Opcode(
        8,
        "MUL",
        "VECTOR",
        (*_tensor("a"), *_tensor("b"), *_tensor("y"), *_f("dims:4 a_zero! b_zero! multiplier shift! zero!"), *_CLAMP, *_ROUND),
        "y = clamp(R((a - a_zero) * (b - b_zero) * multiplier / 2^shift) + zero, lo, hi).",
    ),
    Opcode(
        9,
        "DIV",
        "VECTOR",
        (*_tensor("a"), *_tensor("b"), *_tensor("y"), *_f("dims:4 a_zero! b_zero! multiplier shift! zero!"), *_CLAMP, *_ROUND),
        "y = clamp(R((a - a_zero) * multiplier / ((b - b_zero) * 2^shift)) + zero, lo, hi); R of an exact "
        "quotient; x / 0 saturates to the "
        "sign of x, 0 / 0 is zero (the quotient is +-2^40 or 0).",
    ),
    Opcode(
        10,
        "MINMAX",
        "VECTOR",
        (*_tensor("a"), *_tensor("b"), *_tensor("y"), *_f("dims:4 maximum"), *_CLAMP),
        "y = clamp(max(a, b) if maximum else min(a, b), lo, hi); all three share one scale.",
    ),
    Opcode(
        11,
        "PRELU",
        "VECTOR",
        (
            *_tensor("x"),
            *_tensor("slope"),
            *_tensor("y"),
            *_f("dims:4 x_zero! slope_zero! multiplier negative! shift! negative_shift! zero!"),
            *_CLAMP,
            *_ROUND,
        ),
        "v = x - x_zero; y = clamp(R(v >= 0 ? v * multiplier / 2^shift : v * (slope - slope_zero) * negative / 2^negative_shift) "
        "+ zero, lo, hi).",
    ),
    Opcode(
        12,
        "RESCALE",
        "VECTOR",
        (*_tensor("x"), *_tensor("y"), *_f("dims:4 x_zero! multiplier shift! zero!"), *_CLAMP, *_ROUND),
        "y = clamp(R((x - x_zero) * multiplier / 2^shift) + zero, lo, hi).",
    ),
    Opcode(
        13,
        "MAXPOOL",
        "VECTOR",
        (
            *_tensor("x"),
            *_f("x_dims:4"),
            *_tensor("y"),
            *_f("out_height out_width kernel:2 stride:2 dilation:2 origin:2!"),
            *_CLAMP,
        ),
        "y[n,c,y,x] = clamp(max of x[n,c,Y,X] over the window, lo, hi); Y = y*stride + i*dilation + origin; "
        "outside the tile is skipped; "
        "an empty window gives lo.  y is [x_dims[0], x_dims[1], out_height, out_width].",
    ),
    Opcode(
        14,
        "AVGPOOL",
        "VECTOR",
        (
            *_tensor("x"),
            *_f("x_dims:4 x_zero!"),
            *_tensor("y"),
            *_f("out_height out_width kernel:2 stride:2 dilation:2 origin:2! count_lo:2! count_hi:2! "),
            *_f("multipliers shift! zero!"),
            *_CLAMP,
            *_ROUND,
        ),
        "s = sum of (x - x_zero) over window positions inside the tile; k = number of window positions with "
        "count_lo <= coordinate < count_hi in both "
        "dimensions (tile coordinates); y = clamp(R(s * m[k] / 2^shift) + zero, lo, hi), m = uint32 table of "
        "kernel area + 1 entries.",
    ),
    Opcode(
        15,
        "REDUCE",
        "VECTOR",
        (*_f("x"), Field("x_type", enum=DTYPES), *_f("x_strides:3! x_zero! dims:3 maximum"), *_ACC, *_f("accumulate")),
        "x viewed as [A, R, I]; acc[a,i] (dense; combined with the old value when accumulate) = sum over r of (x -"
        " x_zero), or max over r of (x - x_zero).",
    ),
    Opcode(
        16,
        "LUT",
        "VECTOR",
        (*_tensor("x"), *_tensor("y"), *_f("dims:4 base! table bits entries fraction"), *_CLAMP),
        "T has `entries` entries; an index outside is a fault.  bits = 0: y = T[x - base], T of 8- or 16-bit y "
        "containers.  bits = s > 0: d = x - base, i = d >> s, f = d mod 2^s, T of int32 with g = `fraction` bits behind "
        "the point: y = clamp((T[i] * (2^s - f) + T[i+1] * f + 2^(s+g-1)) >> (s + g), lo, hi) (floor).",
    ),
    Opcode(
        17,
        "SOFTMAX",
        "VECTOR",
        (
            *_f("x"),
            Field("x_type", enum=DTYPES),
            *_f("x_strides:3!"),
            *_f("y"),
            Field("y_type", enum=DTYPES),
            *_f("y_strides:3! dims:3 low high low_bits entries multiplier zero!"),
            *_CLAMP,
        ),
        "x viewed as [A, R, I], over R: d = max - x; e = (low[d mod 2^low_bits] * high[d >> low_bits]) >> 15 with "
        "uint32 tables, 2^low_bits entries in low and `entries` in high (high NONE: e = low[d], `entries` in low); "
        "S = sum e (int64); y = clamp(floor((2 * e * multiplier + S) / (2 * S)) + zero, lo, hi).",
    ),
    Opcode(
        18,
        "RESIZE",
        "VECTOR",
        (
            *_tensor("x"),
            *_f("x_dims:4 x_zero!"),
            *_tensor("y"),
            *_f("out_height out_width rows columns origin:2! weight_bits multiplier shift! zero!"),
            *_CLAMP,
            *_ROUND,
        ),
        "rows: int32 [out_height, 4] = (i0, i1, w0, w1), i + origin[0] a row of the tile; columns likewise with "
        "origin[1]; "
        "s = sum over both rows and columns of w_row * w_col * (x - x_zero); y = clamp(R(s * multiplier / "
        "2^(2*weight_bits + shift)) + zero, lo, hi).",
    ),
    Opcode(
        19,
        "COPY",
        "VECTOR",
        _f("x y element dims:6 x_strides:6! y_strides:6!"),
        "Local to local: y[i0..i5] = x[i0..i5], `element` bytes each.",
    ),
    Opcode(20, "BARRIER", "ANY", _f("id mask"), "Retires when every core of the bit mask has reached the barrier with this id."),
)

BY_NAME = {o.name: o for o in OPCODES}
BY_CODE = {o.code: o for o in OPCODES}
