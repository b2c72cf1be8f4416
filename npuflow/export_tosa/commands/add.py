"""A sum of two scaled tensors, rounded once."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import INT32, TosaRefusal, TosaValue
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def add(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c = run[0]
    b.views.write(c, b.t.codes(rounded_sum(b, c), c["zero"], c["lo"], c["hi"], c["y_type"]))
    return 1


def rounded_sum(b: TosaBuilder, c: TensorCommand) -> TosaValue:
    """R((a * ma + b * mb) / 2^n): multipliers in two limbs where a product leaves 32 bits, the lower one of
    `k` bits. With H and L the sums of the limbs' products, the floor of (H * 2^k + L) / 2^n is that of
    (H + floor(L / 2^k)) / 2^(n - k)."""
    t, n = b.t, c["shift"]
    ma, mb = c["a_multiplier"], c["b_multiplier"]
    pa, pb = b.peak(c, "a"), b.peak(c, "b")
    one, other = b.centred(c, "a"), b.centred(c, "b")
    while n > 0 and not (ma & 1 or mb & 1):
        ma, mb, n = ma >> 1, mb >> 1, n - 1
    if n <= 0:
        ma, mb, n = ma << -n, mb << -n, 0
    if pa * abs(ma) + pb * abs(mb) + (1 << n) < INT32:
        total = t.add(t.mul(one, ma), t.mul(other, mb))
        if n == 0:
            return total
        if c["rounding"] == "half_up":
            return t.down(t.add(total, 1 << (n - 1)), n)
        return t.scaled(total, 1, n, pa * abs(ma) + pb * abs(mb), c["rounding"])
    if c["rounding"] != "half_up":
        raise TosaRefusal(f"rounding {c['rounding']} of a sum beyond 32 bits")
    k = next((k for k in range(min(n - 1, 20), 3, -1) if (pa + pb) << k < INT32), 0)
    high = pa * (abs(ma >> k) + 1) + pb * (abs(mb >> k) + 1) + (1 << max(n - 1 - k, 0)) + pa + pb
    if not k or high >= INT32 or n - k > 31:
        raise TosaRefusal("a sum whose limbs leave 32 bits")
    mask = (1 << k) - 1
    low = t.add(t.mul(one, ma & mask), t.mul(other, mb & mask))
    upper = t.add(t.add(t.mul(one, ma >> k), t.mul(other, mb >> k)), 1 << (n - 1 - k))
    return t.down(t.add(upper, t.down(low, k)), n - k)
