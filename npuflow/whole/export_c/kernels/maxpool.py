"""The largest of a window; channels innermost."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, window
from npuflow.whole.export_c.whole import TensorCommand

# d: n, c, h, w; oh, ow; kernel, stride, dilation, origin (two each); strides of x, of y (four each)
TEXT = r"""
static NN_KERNEL void $NAME(const $X *restrict x, $Y *restrict y, const int32_t *d, int32_t lo, int32_t hi)
{
    int32_t b, oy, ox, i, j, c;
    for (b = 0; b < d[0]; b++)
        for (oy = 0; oy < d[4]; oy++)
            for (ox = 0; ox < d[5]; ox++) {
                $Y *to = y + (b * d[18] + oy * d[20] + ox * d[21]);
                int some = 0;
                for (i = 0; i < d[6]; i++) {
                    const int32_t sy = oy * d[8] + i * d[10] + d[12];
                    if (sy < 0 || sy >= d[2])
                        continue;
                    for (j = 0; j < d[7]; j++) {
                        const int32_t sx = ox * d[9] + j * d[11] + d[13];
                        const $X *from;
                        if (sx < 0 || sx >= d[3])
                            continue;
                        from = x + (b * d[14] + sy * d[16] + sx * d[17]);
                        if (!some)
                            for (c = 0; c < d[1]; c++)
                                to[c * d[19]] = ($Y)from[c * d[15]];
                        else if (d[15] == 1 && d[19] == 1)
                            for (c = 0; c < d[1]; c++)
                                to[c] = ($Y)(to[c] > from[c] ? to[c] : from[c]);
                        else
                            for (c = 0; c < d[1]; c++)
                                if (from[c * d[15]] > to[c * d[19]])
                                    to[c * d[19]] = ($Y)from[c * d[15]];
                        some = 1;
                    }
                }
                for (c = 0; c < d[1]; c++)
                    to[c * d[19]] = ($Y)(some ? nn_clamp(to[c * d[19]], lo, hi) : lo);
            }
}
"""


@KERNELS.entry
class MaxPoolKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        own = w.function("maxpool", TEXT, X=c["x_type"], Y=c["y_type"])
        w.call(own, *w.operands(c, window(c)), c["lo"], c["hi"])
        return 1
