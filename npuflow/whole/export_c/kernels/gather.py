"""Elements picked along a dimension by indices."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements
from npuflow.whole.export_c.whole import TensorCommand

TEXT = r"""
static NN_KERNEL void $NAME(const $X *x, $X *y, const int32_t *d, const $I *index, int32_t entries,
    int32_t wrap)
{
    int32_t a, j, i;
    for (a = 0; a < d[0]; a++)
        for (j = 0; j < d[1]; j++)
            for (i = 0; i < d[2]; i++) {
                int32_t row = index[a * d[9] + j * d[10] + i * d[11]];
                if (row < 0)
                    row += wrap;
                if (row < 0 || row >= entries)
                    row = entries - 1;
                y[a * d[6] + j * d[7] + i * d[8]] = x[a * d[3] + row * d[4] + i * d[5]];
            }
}
"""


@KERNELS.entry
class GatherKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        own = w.function("gather", TEXT, X=c["x_type"], I=c["index_type"])
        steps = [n for name in ("x", "y", "index") for n in elements(c, name)]
        index = w.pointer(c["index"], c["index_type"])
        w.call(own, *w.operands(c, [*c["dims"], *steps]), index, c["entries"], c["wrap"])
        return 1
