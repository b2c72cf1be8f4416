"""One factor from zero on, another times a slope below."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import two, whole
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, scale, spread
from npuflow.whole.export_c.whole import TensorCommand


@KERNELS.entry
class PReluKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        above = scale(spread(c, "x"), c["multiplier"], c["shift"])
        below = scale(spread(c, "x") * spread(c, "slope"), c["negative"], c["negative_shift"])
        ways = ["n" if s.way == "f" else s.way for s in (above, below)]
        two(
            w,
            c,
            "prelu",
            ("x", "slope"),
            "int32_t zx, int32_t zs, int64_t m, int32_t n, int64_t k, int32_t s, int32_t zero, int32_t lo, "
            "int32_t hi",
            f"nn_clamp((u >= zx ? NN_SCALE_{ways[0]}((int64_t)(u - zx), m, n) : "
            f"NN_SCALE_{ways[1]}((int64_t)(u - zx) * (v - zs), k, s)) + zero, lo, hi)",
            [
                c["x_zero"],
                c["slope_zero"],
                whole(above.factor),
                above.shift,
                whole(below.factor),
                below.shift,
                c["zero"],
                c["lo"],
                c["hi"],
            ],
            "".join(ways),
        )
        return 1
