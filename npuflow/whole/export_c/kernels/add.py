"""A sum of two scaled operands, rounded once."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import two, whole
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, scale, spread
from npuflow.whole.export_c.whole import TensorCommand


@KERNELS.entry
class AddKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        ma, mb = c["a_multiplier"], c["b_multiplier"]
        found = scale(spread(c, "a") * abs(ma) + spread(c, "b") * abs(mb), 1, c["shift"])
        ma, mb = ma * found.gain, mb * found.gain
        kind = "int32_t" if max(abs(ma), abs(mb)) < 1 << 31 else "int64_t"
        total = "(int64_t)(u - za) * ma + (int64_t)(v - zb) * mb"
        scaled = (
            f"nn_wide({total}, 1, n)"
            if found.way == "w"
            else (f"nn_round{'32' if found.way == 'f' else ''}({total}, n)")
        )
        two(
            w,
            c,
            "add",
            ("a", "b"),
            f"int32_t za, int32_t zb, {kind} ma, {kind} mb, int32_t n, int32_t zero, int32_t lo, int32_t hi",
            f"nn_clamp({scaled} + zero, lo, hi)",
            [c["a_zero"], c["b_zero"], whole(ma), whole(mb), found.shift, c["zero"], c["lo"], c["hi"]],
            found.way + ("" if kind == "int32_t" else "l"),
        )
        return 1
