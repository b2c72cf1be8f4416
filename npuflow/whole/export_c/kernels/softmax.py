"""Exponentials from tables over their sum, along a dimension."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.base.errors import ModelError
from npuflow.whole.export_c.elementwise import whole
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements
from npuflow.whole.export_c.whole import TensorCommand

DIVIDED = r"""
/* floor((a * m + b) / d) for a < 2^33, m < 2^32, b < d < 2^62: by digits of one bit. */
static NN_UNUSED int64_t $NAME(uint64_t a, uint64_t m, uint64_t b, uint64_t d)
{
    uint64_t quotient = 0, rest = 0;
    const uint64_t low = (a & 0xffffffffu) * m, high = (a >> 32) * m + (low >> 32);
    const uint64_t ones = low & 0xffffffffu;
    int i;
    for (i = 95; i >= 0; i--) {
        const uint64_t bit = i >= 32 ? high >> (i - 32) & 1 : ones >> i & 1;
        rest = rest * 2 + bit;
        quotient = quotient >> 62 ? quotient : quotient * 2;
        if (rest >= d) {
            rest -= d;
            quotient++;
        }
    }
    return (int64_t)(quotient + (rest + b >= d));
}
"""
TEXT = r"""
static NN_KERNEL void $NAME(const $X *x, $Y *y, const int32_t *d, const nn_uint32 *low,
    const nn_uint32 *high, int32_t bits,
    int64_t m, int32_t zero, int32_t lo, int32_t hi)
{
    int32_t a, i, r, pass;
    for (a = 0; a < d[0]; a++)
        for (i = 0; i < d[2]; i++) {
            const $X *p = x + (a * d[3] + i * d[5]);
            $Y *q = y + (a * d[6] + i * d[8]);
            int32_t top = p[0];
            int64_t total = 0;
            for (r = 1; r < d[1]; r++)
                if (p[r * d[4]] > top)
                    top = p[r * d[4]];
            for (pass = 0; pass < 2; pass++)
                for (r = 0; r < d[1]; r++) {
                    const int32_t far = top - p[r * d[4]];
                    const int64_t e = $EXPONENTIAL;
                    if (pass == 0)
                        total += e;
                    else
                        q[r * d[7]] = ($Y)nn_clamp($QUOTIENT + zero, lo, hi);
                }
        }
}
"""


@KERNELS.entry
class SoftmaxKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        low, high = w.array_of(c["low"]), w.array_of(c["high"]) if "high" in c.fields else None
        if low is None or ("high" in c.fields and high is None):
            raise ModelError("SOFTMAX: its tables are no constants", code="NF-PROGRAM-046")
        most = int(low.max()) if high is None else int(low.max()) * int(high.max()) >> 15
        total = most * c["dims"][1]
        plain = 2 * most * c["multiplier"] + total < 1 << 62
        if not plain and (2 * most >= 1 << 33 or c["multiplier"] >= 1 << 32 or 2 * total >= 1 << 62):
            raise ModelError("SOFTMAX: its sums exceed 64 bits", code="NF-PROGRAM-047")
        quotient = "(2 * e * m + total) / (2 * total)"
        if not plain:
            divided = w.function("divided", DIVIDED)
            quotient = f"{divided}(2 * (uint64_t)e, (uint64_t)m, (uint64_t)total, 2 * (uint64_t)total)"
        exponential = (
            "low[far]"
            if high is None
            else ("(int64_t)((uint64_t)low[far & ((1 << bits) - 1)] * high[far >> bits] >> 15)")
        )
        text = TEXT.replace("$EXPONENTIAL", exponential).replace("$QUOTIENT", quotient)
        if high is None:
            text = text.replace(
                "    int32_t a, i, r, pass;", "    int32_t a, i, r, pass;\n    (void)high, (void)bits;"
            )
        name = f"softmax{1 if high is None else 2}{'' if plain else 'l'}"
        own = w.function(name, text, X=c["x_type"], Y=c["y_type"])
        w.call(
            own,
            *w.operands(c, [*c["dims"], *elements(c, "x"), *elements(c, "y")]),
            w.pointer(c["low"], "uint32"),
            "0" if high is None else w.pointer(c["high"], "uint32"),
            c["low_bits"],
            whole(c["multiplier"]),
            c["zero"],
            c["lo"],
            c["hi"],
        )
        return 1
