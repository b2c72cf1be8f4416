"""Loops over one or two operands, element by element, with broadcasting: what several kernels share."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.kernel import SourceWriter, elements, merged, scale, spread
from npuflow.whole.export_c.whole import TensorCommand

TWO = r"""
static NN_KERNEL void $NAME(const $A *restrict a, const $B *restrict b, $Y *restrict y, const int32_t *d,
    $PARAMETERS)
{
    int32_t i0, i1, i2, i;
    for (i0 = 0; i0 < d[0]; i0++)
        for (i1 = 0; i1 < d[1]; i1++)
            for (i2 = 0; i2 < d[2]; i2++) {
                const $A *p = a + (i0 * d[4] + i1 * d[5] + i2 * d[6]);
                const $B *q = b + (i0 * d[8] + i1 * d[9] + i2 * d[10]);
                $Y *r = y + (i0 * d[12] + i1 * d[13] + i2 * d[14]);
                if (d[7] == 1 && d[11] == 1 && d[15] == 1)
                    for (i = 0; i < d[3]; i++) {
                        const int32_t u = p[i], v = q[i];
                        r[i] = ($Y)($EXPRESSION);
                    }
                else
                    for (i = 0; i < d[3]; i++) {
                        const int32_t u = p[i * d[7]], v = q[i * d[11]];
                        r[i * d[15]] = ($Y)($EXPRESSION);
                    }
            }
}
"""
ONE = r"""
static NN_KERNEL void $NAME(const $A *restrict a, $Y *restrict y, const int32_t *d, $PARAMETERS)
{
    int32_t i0, i1, i2, i;
    for (i0 = 0; i0 < d[0]; i0++)
        for (i1 = 0; i1 < d[1]; i1++)
            for (i2 = 0; i2 < d[2]; i2++) {
                const $A *p = a + (i0 * d[4] + i1 * d[5] + i2 * d[6]);
                $Y *r = y + (i0 * d[8] + i1 * d[9] + i2 * d[10]);
                if (d[7] == 1 && d[11] == 1)
                    for (i = 0; i < d[3]; i++) {
                        const int32_t u = p[i];
                        r[i] = ($Y)($EXPRESSION);
                    }
                else
                    for (i = 0; i < d[3]; i++) {
                        const int32_t u = p[i * d[7]];
                        r[i * d[11]] = ($Y)($EXPRESSION);
                    }
            }
}
"""


def two(
    w: SourceWriter,
    c: TensorCommand,
    name: str,
    operands: tuple[str, str],
    parameters: str,
    expression: str,
    numbers: Sequence[int | str],
    tag: str = "",
) -> None:
    """y = expression of u and v, elements of two operands."""
    a, b = operands
    dims = merged(c["dims"], elements(c, a), elements(c, b), elements(c, "y"))
    text = TWO.replace("$PARAMETERS", parameters).replace("$EXPRESSION", expression)
    if c["y"] in (c[a], c[b]):
        text, tag = text.replace("*restrict ", "*"), f"{tag}_in_place"
    own = w.function(name + tag, text, A=c[f"{a}_type"], B=c[f"{b}_type"], Y=c["y_type"])
    w.call(
        own,
        w.pointer(c[a], c[f"{a}_type"]),
        w.pointer(c[b], c[f"{b}_type"]),
        w.pointer(c["y"], c["y_type"]),
        w.vector(dims),
        *numbers,
    )


def one(
    w: SourceWriter,
    c: TensorCommand,
    name: str,
    parameters: str,
    expression: str,
    numbers: Sequence[int | str],
    tag: str = "",
) -> None:
    """y = expression of u, an element of x."""
    dims = merged(c["dims"], elements(c, "x"), elements(c, "y"))
    text = ONE.replace("$PARAMETERS", parameters).replace("$EXPRESSION", expression)
    own = w.function(name + tag, text, A=c["x_type"], Y=c["y_type"])
    w.call(own, *w.operands(c, dims), *numbers)


def linear(w: SourceWriter, c: TensorCommand, name: str, around: str = "{0}") -> None:
    """y from the sum of two operands with multipliers of their own, rounded once. `around`: what is made of
    the sum before it is rounded, in C."""
    ma, mb = c["a_multiplier"], c["b_multiplier"]
    found = scale(spread(c, "a") * abs(ma) + spread(c, "b") * abs(mb), 1, c["shift"])
    ma, mb = ma * found.gain, mb * found.gain
    kind = "int32_t" if max(abs(ma), abs(mb)) < 1 << 31 else "int64_t"
    total = around.format("(int64_t)(u - za) * ma + (int64_t)(v - zb) * mb")
    scaled = (
        f"nn_wide({total}, 1, n)"
        if found.way == "w"
        else (f"nn_round{'32' if found.way == 'f' else ''}({total}, n)")
    )
    two(
        w,
        c,
        name,
        ("a", "b"),
        f"int32_t za, int32_t zb, {kind} ma, {kind} mb, int32_t n, int32_t zero, int32_t lo, int32_t hi",
        f"nn_clamp({scaled} + zero, lo, hi)",
        [c["a_zero"], c["b_zero"], whole(ma), whole(mb), found.shift, c["zero"], c["lo"], c["hi"]],
        found.way + ("" if kind == "int32_t" else "l"),
    )


def whole(number: int) -> str:
    """A number as a C constant of 64 bits."""
    return f"INT64_C({number})"
