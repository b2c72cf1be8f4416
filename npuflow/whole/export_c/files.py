"""The files of a C program: source, header, Makefile, test vector, and weights where they are large.

Every source begins with types, rounding and products in two limbs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from npuflow.ir.types import Array
from npuflow.schedule.allocate import aligned
from npuflow.whole.export_c.program import ALIGN, CPort, CProgram
from npuflow.whole.export_c.sequence import COUNTERS, CLayer, CLoop
from npuflow.whole.export_c.testing import program_text

# what is added to a product p, biased by 2^63, before n bits are cut off; `half` is 2^(n-1)
ADDED = {
    "half_up": "(half)",
    "half_even": "((half) - 1 + (((p) >> (n)) & 1))",
    "half_away": "((half) - 1 + ((p) >> 63))",
    "truncate": "((((p) >> 63) - 1) & ((half) * 2 - 1))",
}
# whether a floor goes up: `more` is the sign of what was cut off compared with a half
UP = {
    "half_up": "more >= 0",
    "half_even": "more > 0 || (more == 0 && (value & 1))",
    "half_away": "more > 0 || (more == 0 && !negative)",
    "truncate": "negative && rest",
}

PRELUDE = r"""
#include <stdint.h>

#if defined(__AVX2__) && defined(__GNUC__) && !defined(NN_SCALAR)
#include <immintrin.h>
#define NN_AVX2
#elif defined(__ARM_NEON) && defined(__aarch64__) && !defined(NN_SCALAR)
#include <arm_neon.h>
#define NN_NEON
#endif

/* The arena holds elements of several types: accesses through these types may alias. */
#if defined(__GNUC__)
#define NN_ALIAS __attribute__((may_alias))
#define NN_UNUSED __attribute__((unused))
#else
#define NN_ALIAS
#define NN_UNUSED
#endif
/* Kernels are compiled without what is known of their calls. GCC 12 makes wrong code of a clamp behind a
   rounding once it knows both factors: its vectoriser takes the sum for one of 8 bits. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define NN_KERNEL __attribute__((noipa))
#elif defined(__GNUC__)
#define NN_KERNEL __attribute__((noinline))
#else
#define NN_KERNEL
#endif
typedef int8_t NN_ALIAS nn_int8;
typedef uint8_t NN_ALIAS nn_uint8;
typedef int16_t NN_ALIAS nn_int16;
typedef uint16_t NN_ALIAS nn_uint16;
typedef int32_t NN_ALIAS nn_int32;
typedef uint32_t NN_ALIAS nn_uint32;
typedef int64_t NN_ALIAS nn_int64;

#define NN_TOP ((uint64_t)1 << 63)
#define NN_ADDED(p, n, half) @ADDED@

static inline NN_UNUSED int32_t nn_clamp(int64_t v, int32_t lo, int32_t hi)
{
    return v < lo ? lo : v > hi ? hi : (int32_t)v;
}

/* R(v / 2^n): 1 <= n <= 62, |v| + 2^n < 2^62. */
static inline NN_UNUSED int64_t nn_round(int64_t v, int32_t n)
{
    const uint64_t half = (uint64_t)1 << (n - 1);
    uint64_t p = (uint64_t)v + NN_TOP;
    p = (p + NN_ADDED(p, n, half)) >> n;
    return (int64_t)p - (int64_t)(NN_TOP >> n);
}

/* The same where the result has 31 bits: a form that compilers vectorise. */
static inline NN_UNUSED int32_t nn_round32(int64_t v, int32_t n)
{
    const uint64_t half = (uint64_t)1 << (n - 1);
    uint64_t p = (uint64_t)v + NN_TOP;
    p = (p + NN_ADDED(p, n, half)) >> n;
    return (int32_t)((uint32_t)p - (uint32_t)(NN_TOP >> n));
}

/* R(acc * m / 2^n) for -32 <= n <= 62, |m| < 2^32: the product in two limbs; what no code reaches
   saturates. */
static NN_UNUSED int64_t nn_wide(int64_t acc, int64_t m, int32_t n)
{
    const int64_t large = (int64_t)1 << 40;
    const uint64_t sign = (uint64_t)((acc < 0) != (m < 0));
    const uint64_t a = acc < 0 ? ~(uint64_t)acc + 1 : (uint64_t)acc;
    const uint64_t f = m < 0 ? ~(uint64_t)m + 1 : (uint64_t)m;
    const uint64_t low = (a & 0xffffffffu) * f;
    const uint64_t high = (a >> 32) * f + (low >> 32);       /* below 2^64: (2^32-1)^2 + 2^32 */
    uint64_t ones = (uint32_t)low;                           /* |product| = high * 2^32 + ones */
    uint64_t floor, rest;
    int more;
    const int negative = sign && (high || ones);
    int64_t value;
    if (n <= 0) {
        if (high || ones >> 20)
            return negative ? -large : large;
        floor = ones << -n;
        return negative ? -(int64_t)floor : (int64_t)floor;
    }
    if (n <= 32) {
        if (high >> 24)
            return negative ? -large : large;
        floor = (high << (32 - n)) | (ones >> n);
        rest = ones & (((uint64_t)1 << n) - 1);
        more = rest > (uint64_t)1 << (n - 1) ? 1 : rest < (uint64_t)1 << (n - 1) ? -1 : 0;
    } else {
        const uint64_t cut = high & (((uint64_t)1 << (n - 32)) - 1);
        const uint64_t half = (uint64_t)1 << (n - 33);
        floor = high >> (n - 32);
        if (floor >> 40)
            return negative ? -large : large;
        rest = cut | ones;
        more = cut > half ? 1 : cut < half ? -1 : ones ? 1 : 0;
    }
    /* magnitudes are cut toward zero: of negative numbers the floor lies one lower */
    if (negative && rest) {
        floor = floor + 1;
        more = -more;
        value = -(int64_t)floor;
    } else {
        value = negative ? -(int64_t)floor : (int64_t)floor;
        if (!rest)
            more = -1;
    }
    return value + ((@UP@) ? 1 : 0);
}

#define NN_SCALE_f(v, m, n) nn_round32((int64_t)(v) * (m), n)
#define NN_SCALE_n(v, m, n) nn_round((int64_t)(v) * (m), n)
#define NN_SCALE_w(v, m, n) nn_wide(v, m, n)
"""


def prelude(rounding: str) -> str:
    return PRELUDE.replace("@ADDED@", ADDED[rounding]).replace("@UP@", UP[rounding])


LARGE = 4 << 20  # bytes of constants beyond which they are a file of their own
VECTORS = 2
Sample = tuple[Mapping[str, Array], Mapping[str, Array]]  # codes of inputs and outputs by the model's names


def write(program: CProgram, folder: Path, samples: Sequence[Sample], large: int = LARGE) -> tuple[Path, ...]:
    """All files; `samples` become the test vector."""
    folder.mkdir(parents=True, exist_ok=True)
    apart = program.constant_bytes > large
    files: dict[str, bytes] = {
        f"{program.name}.h": _header(program, apart).encode(),
        f"{program.name}.c": _source(program, apart).encode(),
        f"{program.name}_test.c": program_text(program, apart, len(samples)).encode(),
        "Makefile": _makefile(program).encode(),
        f"{program.name}_test.bin": _vector(program, samples),
    }
    if apart:
        files["weights.bin"] = _weights(program)
    for name, body in files.items():
        (folder / name).write_bytes(body)
    return tuple(folder / name for name in files)


def _upper(name: str) -> str:
    return name.upper()


def _arguments(program: CProgram, apart: bool) -> str:
    found = [f"const {p.ctype} *in_{p.ident}" for p in program.inputs]
    found += [f"{p.ctype} *out_{p.ident}" for p in program.outputs]
    found.append(f"void *{'arena'}")
    if apart:
        found.append("const void *weights")
    return ", ".join(found)


def _header(program: CProgram, apart: bool) -> str:
    top = _upper(program.name)
    lines = [
        f"/* {program.name}: a quantised network as integer C. Written by npuflow; do not edit. */",
        f"#ifndef {top}_H",
        f"#define {top}_H",
        "",
        "#include <stdint.h>",
        "",
        f"#define {top}_ARENA_BYTES {max(program.arena, ALIGN)}",
        f"#define {top}_ALIGN {ALIGN}  /* of the arena{' and the weights' if apart else ''}, in bytes */",
    ]
    if apart:
        lines.append(
            f"#define {top}_WEIGHTS_BYTES {program.constant_bytes}  /* of weights.bin, little endian */"
        )
    for side, ports in (("IN", program.inputs), ("OUT", program.outputs)):
        for p in ports:
            lines += _port(f"{top}_{side}_{p.ident.upper()}", p)
    lines += [
        "",
        "/* Codes in, codes out: real = scale * (code - zero). Tensors lie in C order. `arena` is memory of",
        f"   {top}_ARENA_BYTES bytes that nobody else uses meanwhile; nothing is kept between calls.",
        *(
            f"   State: what out_{made.ident} gets is in_{given.ident} of the next call; at first all of it "
            f"is {top}_IN_{given.ident.upper()}_ZERO."
            for made, given in program.state
        ),
        "*/",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"void {program.name}_run({_arguments(program, apart)});",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        *_helpers(program),
        "",
        f"#endif /* {top}_H */",
        "",
    ]
    return "\n".join(lines)


def _port(prefix: str, p: CPort) -> list[str]:
    quant = p.value.quant
    assert quant is not None
    shape = " x ".join(map(str, p.value.type.shape)) or "scalar"
    return [
        f"/* {_comment(p.name)}: {shape} */",
        f"#define {prefix}_SIZE {prod(p.value.type.shape)}",
        f"#define {prefix}_SCALE {quant.scale[0]!r}",
        f"#define {prefix}_ZERO ({quant.zero_point[0]})",
        f"#define {prefix}_LO ({quant.lo})",
        f"#define {prefix}_HI ({quant.hi})",
    ]


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


# Real numbers to codes and back, in double precision.
QUANTIZE = """\
static inline void $NET_quantize_$PORT(const float *real, $CODE *codes)
{
    int32_t i;
    for (i = 0; i < $TOP_SIZE; i++) {
        const double r = nearbyint((double)real[i] / $TOP_SCALE) + $TOP_ZERO;
        const double v = real[i] == real[i] ? r : $TOP_ZERO;
        codes[i] = ($CODE)(v < $TOP_LO ? $TOP_LO : v > $TOP_HI ? $TOP_HI : v);
    }
}"""
DEQUANTIZE = """\
static inline void $NET_dequantize_$PORT(const $CODE *codes, float *real)
{
    int32_t i;
    for (i = 0; i < $TOP_SIZE; i++)
        real[i] = (float)($TOP_SCALE * (codes[i] - $TOP_ZERO));
}"""


def _helpers(program: CProgram) -> list[str]:
    """Conversions at the Q/DQ boundary; only where they are asked for."""
    top = _upper(program.name)
    lines = [
        f"#ifdef {top}_FLOAT",
        "#include <math.h>",
        "/* Real numbers to codes: half to even (nearbyint by default), clamped; NaN is zero. */",
    ]
    ends = [(QUANTIZE, "IN", p) for p in program.inputs] + [(DEQUANTIZE, "OUT", p) for p in program.outputs]
    for text, side, p in ends:
        names = {"$NET": program.name, "$PORT": p.ident, "$CODE": p.ctype}
        for mark, name in {**names, "$TOP": f"{top}_{side}_{p.ident.upper()}"}.items():
            text = text.replace(mark, name)
        lines += text.splitlines()
    return [*lines, f"#endif /* {top}_FLOAT */"]


def _source(program: CProgram, apart: bool) -> str:
    parts = [
        f"/* {program.name}: a quantised network as integer C. Written by npuflow; do not edit. */\n",
        f'#include "{program.name}.h"\n',
        prelude(program.rounding),
        *program.functions,
        "\n",
        "\n".join(program.data),
        "\n\n",
    ]
    at = 0
    for name, array in program.constants:
        kind = array.dtype.name
        if apart:
            parts.append(f"#define NN_CONST_{name} ((const nn_{kind} *)(constants + {at}))\n")
            at += aligned(array.nbytes, ALIGN)
        else:
            parts.append(
                f"static const {_own(kind)} {name}[] = {{\n{_numbers(array)}}};\n"
                f"#define NN_CONST_{name} {name}\n"
            )
    arguments = _arguments(program, apart).replace("void *arena", "void *memory")
    parts.append(f"\nvoid {program.name}_run({arguments})\n{{\n")
    parts.append("    unsigned char *arena = (unsigned char *)memory;\n")
    if apart:
        parts.append("    const unsigned char *constants = (const unsigned char *)weights;\n")
    parts.append("    (void)arena;\n")
    for one in program.calls:
        parts += _called(one) if isinstance(one, CLayer) else _looped(one)
    parts.append("}\n")
    return "".join(parts)


def _called(layer: CLayer, indent: str = "    ") -> list[str]:
    return [f"{indent}{line}\n" for line in (f"/* {_comment(layer.name)} */", *layer.statements)]


def _looped(loop: CLoop, depth: int = 0) -> list[str]:
    indent, step = "        " * depth + "    ", COUNTERS[depth]
    head = (f"{indent}{{\n{indent}    int32_t {step};\n"
            f"{indent}    for ({step} = 0; {step} < {loop.steps}; {step}++) {{\n")
    within = indent + "        "
    layers = [
        line for one in loop.layers
        for line in (_called(one, within) if isinstance(one, CLayer) else _looped(one, depth + 1))
    ]
    comment = f"{indent}/* {_comment(loop.name)}: {loop.steps} steps */\n"
    return [comment, head, *layers, f"{indent}    }}\n{indent}}}\n"]


def _own(kind: str) -> str:
    return f"{kind}_t" if kind == "int64" else f"nn_{kind}"


def _numbers(array: Array, each: int = 24) -> str:
    flat = array.reshape(-1).tolist()
    suffix = {"uint32": "u"}.get(array.dtype.name, "")
    if array.dtype.name == "int64":
        words = [f"INT64_C({n})" for n in flat]
    elif array.dtype.name == "int32":
        words = [str(n) if n > -(1 << 31) else "(-2147483647 - 1)" for n in flat]
    else:
        words = [f"{n}{suffix}" for n in flat]
    return "".join(f"    {', '.join(words[i : i + each])},\n" for i in range(0, len(words), each))


def _weights(program: CProgram) -> bytes:
    out = bytearray()
    for _, array in program.constants:
        body = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        out += body + bytes(aligned(len(body), ALIGN) - len(body))
    return bytes(out)


def _vector(program: CProgram, samples: Sequence[Sample]) -> bytes:
    """Inputs and outputs of every sample behind each other, as the test program reads them."""
    out = bytearray()
    for given, made in samples:
        for ports, arrays in ((program.inputs, given), (program.outputs, made)):
            for p in ports:
                out += np.ascontiguousarray(
                    arrays[p.name], np.dtype(p.value.dtype).newbyteorder("<")
                ).tobytes()
    return bytes(out)


def _makefile(program: CProgram) -> str:
    n = program.name
    return (
        "CC ?= cc\nCFLAGS ?= -O3\n"
        "CFLAGS += -std=c99 -Wall -Wextra -pedantic\n\n"
        f"all: {n}.o\n\n"
        f"{n}.o: {n}.c {n}.h\n\t$(CC) $(CFLAGS) -ffreestanding -c -o $@ {n}.c\n\n"
        f"{n}_test: {n}_test.c {n}.o {n}.h\n\t$(CC) $(CFLAGS) -o $@ {n}_test.c {n}.o\n\n"
        f"test: {n}_test\n\t./{n}_test\n\n"
        f"size: {n}.o\n\tsize {n}.o\n\n"
        f"clean:\n\trm -f {n}.o {n}_test\n\n.PHONY: all test size clean\n"
    )
