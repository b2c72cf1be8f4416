"""Sums or maxima along dimensions, into sums that a later command makes codes of."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements, spread
from npuflow.whole.export_c.whole import TensorCommand

TEXT = r"""
static NN_KERNEL void $NAME(const $X *restrict x, $S *restrict acc, const int32_t *d, int32_t zx,
    int32_t largest, int32_t keep)
{
    int32_t a, r, i, k;
    for (a = 0; a < d[0]; a++)
        for (i = 0; i < d[2]; i += 16) {
            const int32_t some = d[2] - i < 16 ? d[2] - i : 16;
            $S sums[16] = {0};
            for (r = 0; r < d[1]; r++)
                for (k = 0; k < some; k++) {
                    const int32_t v = x[a * d[3] + r * d[4] + (i + k) * d[5]] - zx;
                    sums[k] = !largest ? sums[k] + v : !r || v > sums[k] ? v : sums[k];
                }
            for (k = 0; k < some; k++) {
                $S *to = acc + (a * d[2] + i + k);
                *to = !keep ? sums[k] : !largest ? *to + sums[k] : *to > sums[k] ? *to : sums[k];
            }
        }
}
"""


@KERNELS.entry
class ReduceKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        sums = w.storage(c["acc"])
        keep = bool(c["accumulate"])
        peak = spread(c, "x") * (1 if c["maximum"] else c["dims"][1])
        before = w.peaks.get(sums.number, 0)
        w.peaks[sums.number] = before + peak if keep else max(before, peak)
        own = w.function("reduce", TEXT, X=c["x_type"], S=c["acc_type"])
        w.call(
            own,
            w.pointer(c["x"], c["x_type"]),
            w.pointer(c["acc"], c["acc_type"]),
            w.vector([*c["dims"], *elements(c, "x")]),
            c["x_zero"],
            c["maximum"],
            int(keep),
        )
        return 1
