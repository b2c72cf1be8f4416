"""A quotient of two operands, rounded once from the exact fraction."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import two, whole
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter
from npuflow.whole.export_c.whole import TensorCommand

# how a floor is corrected: `rest` of `den`, `num` the numerator
UP = {
    "half_up": "rest >= den - rest",
    "half_even": "rest > den - rest || (rest == den - rest && floor % 2 != 0)",
    "half_away": "rest > den - rest || (rest == den - rest && num >= 0)",
    "truncate": "num < 0 && rest != 0",
}
TEXT = r"""
/* R(num / (den * 2^shift)) for |num| < 2^50 and |den| < 2^18; x / 0 saturates, 0 / 0 is 0. */
static int64_t $NAME(int64_t num, int64_t den, int32_t shift)
{
    const int64_t large = (int64_t)1 << 40;
    int64_t floor, rest;
    if (den < 0) {
        num = -num;
        den = -den;
    }
    if (den == 0)
        return num > 0 ? large : num < 0 ? -large : 0;
    if (shift >= 0) {
        if (shift > 51 || den > (int64_t)1 << (62 - shift))
            return 0;
        den <<= shift;
    } else {
        const int64_t most = (int64_t)1 << (62 + shift);
        if (num >= most || num <= -most)
            return num > 0 ? large : -large;
        num *= (int64_t)1 << -shift;
    }
    floor = num / den;
    rest = num % den;
    if (rest < 0) {
        rest += den;
        floor--;
    }
    return floor + ((@UP@) ? 1 : 0);
}
"""


@KERNELS.entry
class DivKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        rounding = str(c["rounding"])  # of whole numbers towards zero, whatever the target's
        quotient = w.function(f"quotient_{rounding}", TEXT.replace("@UP@", UP[rounding]))
        two(
            w,
            c,
            f"div_{rounding}",
            ("a", "b"),
            "int32_t za, int32_t zb, int64_t m, int32_t shift, int32_t zero, int32_t lo, int32_t hi",
            f"nn_clamp({quotient}((int64_t)(u - za) * m, (int64_t)v - zb, shift) + zero, lo, hi)",
            [c["a_zero"], c["b_zero"], whole(c["multiplier"]), c["shift"], c["zero"], c["lo"], c["hi"]],
        )
        return 1
