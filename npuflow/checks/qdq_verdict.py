"""Program and QDQ model in a sentence: the same codes, apart by rounding that layers
amplify, or by a bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from npuflow.base.wording import counted
from npuflow.checks.qdq_check import BIAS, TensorParting
from npuflow.hw.target import Numerics

Kind = Literal["nothing", "rounding", "bias"]


@dataclass(frozen=True)
class QdqVerdict:
    """What they differ by, in words too; shares of equal codes of all tensors and of the
    outputs, the worst output's SQNR."""

    kind: Kind
    text: str
    equal: float
    outputs_equal: float
    sqnr: float | None
    biased: tuple[str, ...] = ()


def verdict(tensors: Mapping[str, TensorParting], outputs: Sequence[str], numerics: Numerics) -> QdqVerdict:
    """Judge all tensors of a network."""
    codes = {name: one for name, one in tensors.items() if one.levels}
    last = [tensors[name] for name in outputs if name in tensors]
    equal, outputs_equal = _equal(list(codes.values())), _equal(last)
    sqnr = min((one.sqnr for one in last if one.sqnr is not None), default=None)
    biased = tuple(name for name, one in codes.items() if one.biased)
    kind: Kind = (
        "bias"
        if biased
        else "rounding"
        if any(t.different or t.fed_different for t in tensors.values())
        else "nothing"
    )
    text = {"nothing": _same, "rounding": _rounding, "bias": _bias}[kind](codes, numerics)
    if kind != "nothing":
        away = f" ({sqnr:.1f} dB)" if sqnr is not None else ""
        text += (
            f"; run on its own, {_share(equal)} of all codes and {_share(outputs_equal)} of the outputs are "
            f"equal{away}"
        )
    return QdqVerdict(kind, text, equal, outputs_equal, sqnr, biased)


def _equal(tensors: Sequence[TensorParting]) -> float:
    count = sum(one.elements for one in tensors)
    return 1 - sum(one.different for one in tensors) / count if count else 1.0


def _same(codes: Mapping[str, TensorParting], numerics: Numerics) -> str:
    many = f"all of {len(codes)} tensors" if len(codes) > 1 else counted(len(codes), "tensor")
    return f"program and QDQ model give the same codes in {many}"


def _rounding(codes: Mapping[str, TensorParting], numerics: Numerics) -> str:
    total = sum(one.elements for one in codes.values())
    apart = {name: one for name, one in codes.items() if one.fed_different}
    mean = max((abs(one.mean) for one in apart.values()), default=0.0)
    start = "program and QDQ model differ by rounding, not by a bias"
    if any(abs(one.mean) >= BIAS * one.room for one in apart.values()):
        target = f"multipliers of {numerics.multiplier_bits} bits, {numerics.rounding}"
        start = (
            f"program and QDQ model differ in rounding mode (ONNX: float32, half_even; the target: {target})"
        )
    start += ": on the program's codes, every layer gives "
    if not apart:
        return f"{start}the same {total} codes"
    fed, near = sum(one.fed_different for one in apart.values()), sum(one.rounding for one in apart.values())
    most = max(apart, key=lambda name: apart[name].fed_different)
    half = "half-way between two codes"
    what = (
        f"values {half}"
        if near == fed
        else f"{near} values {half} and {fed - near} others"
        if near
        else f"not {half}"
    )
    where = (
        f'{apart[most].fed_different} of them in "{most}", mean difference at most {mean:.1g} of a code in '
        'any tensor'
    )
    return f"{start}{total - fed} of {total} codes, the rest are {what} ({where})"


def _bias(codes: Mapping[str, TensorParting], numerics: Numerics) -> str:
    name, one = next((name, one) for name, one in codes.items() if one.biased)
    count = sum(other.biased for other in codes.values())
    more = f", and so in {counted(count - 1, 'more tensor')}" if count > 1 else ""
    return (
        f'program and QDQ model differ by a bias: on the program\'s codes, "{name}" of "{one.layer}" is '
        f'{one.mean:+.2f} of a '
        f"code off on average ({one.rms:.2f} root mean square, {_share(one.fed_different / one.elements)} "
        f"of its codes){more}"
    )


def _share(part: float) -> str:
    """Per cent that say 100 only of all."""
    return (
        "100 %" if part == 1 else f"{min(100 * part, 99.99):.2f} %" if part > 0.99 else f"{100 * part:.1f} %"
    )
