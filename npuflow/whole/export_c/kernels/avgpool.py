"""The mean of a window, by a multiplier for each number of elements that count."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuflow.base.errors import ModelError
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, codes, scale, spread, window
from npuflow.whole.export_c.whole import TensorCommand

# d: as of the maximum; then the first and the end of the coordinates that count (two each)
TEXT = r"""
static NN_KERNEL void $NAME(const $X *restrict x, $Y *restrict y, const int32_t *d, const nn_uint32 *m,
    int32_t gain, int32_t n,
    int32_t zx, int32_t zero, int32_t lo, int32_t hi)
{
    int32_t b, oy, ox, i, j, c, k;
    for (b = 0; b < d[0]; b++)
        for (oy = 0; oy < d[4]; oy++)
            for (ox = 0; ox < d[5]; ox++) {
                int32_t rows = 0, columns = 0;
                for (i = 0; i < d[6]; i++) {
                    const int32_t sy = oy * d[8] + i * d[10] + d[12];
                    rows += sy >= d[22] && sy < d[24];
                }
                for (j = 0; j < d[7]; j++) {
                    const int32_t sx = ox * d[9] + j * d[11] + d[13];
                    columns += sx >= d[23] && sx < d[25];
                }
                for (c = 0; c < d[1]; c += 16) {
                    const int32_t some = d[1] - c < 16 ? d[1] - c : 16;
                    int32_t sums[16] = {0};
                    for (i = 0; i < d[6]; i++) {
                        const int32_t sy = oy * d[8] + i * d[10] + d[12];
                        if (sy < 0 || sy >= d[2])
                            continue;
                        for (j = 0; j < d[7]; j++) {
                            const int32_t sx = ox * d[9] + j * d[11] + d[13];
                            if (sx < 0 || sx >= d[3])
                                continue;
                            for (k = 0; k < some; k++)
                                sums[k] += x[b * d[14] + (c + k) * d[15] + sy * d[16] + sx * d[17]] - zx;
                        }
                    }
                    for (k = 0; k < some; k++)
                        y[b * d[18] + (c + k) * d[19] + oy * d[20] + ox * d[21]] = ($Y)nn_clamp(
                            $SCALED(sums[k], (int64_t)m[rows * columns] * gain, n) + zero, lo, hi);
                }
            }
}
"""


@KERNELS.entry
class AvgPoolKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        table = w.array_of(c["multipliers"])
        if table is None:
            raise ModelError("AVGPOOL: its multipliers are no constant", code="NF-PROGRAM-042")
        peak = spread(c, "x") * prod(c["kernel"])
        found = scale(peak, int(table.max()), c["shift"])
        way = "n" if found.way == "f" else found.way
        text = TEXT.replace("$SCALED", f"NN_SCALE_{way}")
        own = w.function(f"avgpool{way}", text, X=c["x_type"], Y=c["y_type"])
        ends = w.operands(c, [*window(c), *c["count_lo"], *c["count_hi"]])
        w.call(own, *ends, w.pointer(c["multipliers"], "uint32"), found.gain, found.shift, *codes(c))
        return 1
