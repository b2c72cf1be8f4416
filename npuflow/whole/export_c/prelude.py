"""The head of every generated source: types, rounding, products in two limbs."""

from __future__ import annotations

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
