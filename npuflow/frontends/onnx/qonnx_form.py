"""What a Quant, BipolarQuant or Trunc of QONNX computes: as codes, as numbers, and as standard operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from npuflow.base.errors import ModelError
from npuflow.frontends._nodes.shapes import label
from npuflow.ir.types import Array, QuantType

FEWEST = {"Quant": 4, "IntQuant": 4, "BipolarQuant": 2, "Trunc": 5}
NEAREST = ("ROUND", "HALF_EVEN")
# The operator of a rounding mode; of others that of the magnitude, and what is added before it.
PLAIN: Mapping[str, str] = {"ROUND": "Round", "HALF_EVEN": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}
MAGNITUDE: Mapping[str, tuple[str, float]] = {
    "DOWN": ("Floor", 0.0), "UP": ("Ceil", 0.0), "HALF_UP": ("Floor", 0.5), "HALF_DOWN": ("Ceil", -0.5),
}
NUMPY: Mapping[str, Callable[[Array], Array]] = {"Round": np.rint, "Ceil": np.ceil, "Floor": np.floor}


@dataclass(frozen=True)
class QuantForm:
    """mode(clip(x / scale + zero point, lo, hi)), then back. `scale` and `zero`: None where the network
    computes them. BipolarQuant has the mode SIGN. Trunc divides whole codes by `divisor` before it rounds.
    """

    names: tuple[str, str]                # of scale and zero point ("": 0)
    scale: Array | None
    zero: Array | None
    bits: int
    signed: bool
    narrow: bool
    mode: str
    divisor: float = 1.0
    saturates: bool = True

    @property
    def nearest(self) -> bool:
        return self.mode in NEAREST and self.divisor == 1

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest code."""
        top = (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1 - int(self.narrow)
        return (-(1 << (self.bits - 1)) + int(self.narrow) if self.signed else 0), top

    def quant(self, rank: int | None) -> QuantType | None:
        """The codes as a type; of several scales only those along one axis of a tensor of that rank. None
        where no type says it."""
        if self.scale is None or self.zero is None or self.divisor != 1 or not self.saturates:
            return None
        try:
            scale, zero = np.broadcast_arrays(self.scale, self.zero)
        except ValueError:
            return None
        known = np.isfinite(scale).all() and (scale > 0).all() and (zero == np.rint(zero)).all()
        lo, hi = self.ends
        if not known or not ((zero >= lo) & (zero <= hi)).all():
            return None
        wide = [d for d, size in enumerate(scale.shape) if size > 1]
        if len(wide) > 1 or (wide and rank is None) or scale.size < 1:
            return None
        axis = None if not wide or rank is None else wide[0] + rank - scale.ndim
        if axis is not None and axis < 0:
            return None
        return QuantType(
            self.bits, self.signed, tuple(map(float, scale.astype(np.float32).reshape(-1))),
            tuple(map(int, zero.reshape(-1))), axis, narrow=self.signed and self.narrow,
        )


def form_of(node: onnx.NodeProto, consts: Mapping[str, Array]) -> QuantForm:
    """What the node says; ModelError where it is not QONNX, or its width is not known before it runs."""
    if node.op_type == "FloatQuant":
        raise ModelError(
            f"node {label(node)} rounds to floats of a few bits, which no target computes with",
            hint="export the model with integer quantisers", code="NF-MODEL-231",
        ).at(node=label(node))
    if len(node.input) < FEWEST[node.op_type] or not all((*node.input[:2], *node.output[:1])):
        raise ModelError(
            f"node {label(node)} is not valid QONNX",
            because=f"it has {len(node.input)} inputs", code="NF-MODEL-232",
        ).at(node=label(node))
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    scale = _numbers(consts, node.input[1])
    if node.op_type == "BipolarQuant":
        return QuantForm((node.input[1], ""), scale, np.zeros(()), 2, True, True, "SIGN")
    signed, narrow = bool(given.get("signed", 1)), bool(given.get("narrow", 0))
    trunc = node.op_type == "Trunc"
    said = given.get("rounding_mode", b"FLOOR" if trunc else b"ROUND")
    mode = (said.decode(errors="replace") if isinstance(said, bytes) else str(said)).upper()
    if mode not in (*PLAIN, *MAGNITUDE):
        raise ModelError(
            f'node {label(node)} has the rounding mode "{mode}", which QONNX does not define',
            because=f"it defines {', '.join((*PLAIN, *MAGNITUDE))}", code="NF-MODEL-233",
        ).at(node=label(node))
    names, zero = (node.input[1], node.input[2]), _numbers(consts, node.input[2])
    bits = _width(node, 3, consts)
    if not trunc:
        if bits == 1 and signed:                         # how QONNX reads it
            return QuantForm(names, scale, zero, 2, True, True, "SIGN")
        return QuantForm(names, scale, zero, bits, signed, narrow, mode)
    if len(node.input) > 5:
        raise ModelError(
            f"node {label(node)} is a Trunc of version 2; only version 1 is read",
            hint="export the model with a QONNX of version 0.4 or older", code="NF-MODEL-234",
        ).at(node=label(node))
    divisor = 2.0 ** (bits - _width(node, 4, consts))
    return QuantForm(names, scale, zero, bits, signed, narrow, mode, divisor, saturates=False)


def _numbers(consts: Mapping[str, Array], name: str) -> Array | None:
    held = consts.get(name)
    return held if held is not None and held.dtype.kind in "fiu" else None


def _width(node: onnx.NodeProto, place: int, consts: Mapping[str, Array]) -> int:
    held = _numbers(consts, node.input[place])
    found = set() if held is None else {float(b) for b in np.asarray(held, np.float64).reshape(-1)}
    width = found.pop() if len(found) == 1 else 0.0
    if not 1 <= width <= 64 or width != int(width):
        raise ModelError(
            f"node {label(node)} has no width in bits that is known before the model runs",
            because="it is computed" if held is None else f"it is {held.reshape(-1)[:4].tolist()}",
            hint="one whole constant from 1 to 64 is read", code="NF-MODEL-235",
        ).at(node=label(node))
    return int(width)


def rounded(form: QuantForm, x: Array, name: str) -> Array:
    """What the node makes of a constant."""
    try:
        real = _real(form, x, name)
    except ValueError:                                   # shapes that do not broadcast
        real = np.zeros((0,))
    if real.shape != x.shape or not np.isfinite(real).all():
        raise ModelError(
            f"node {name} makes no numbers of its constant",
            because=f"its scales do not go with the shape {list(x.shape)}"
            if real.shape != x.shape
            else "a scale is 0, or the constant is not finite",
            code="NF-MODEL-237",
        ).at(node=name)
    return real


def _real(form: QuantForm, x: Array, name: str) -> Array:
    if form.scale is None or form.zero is None:
        raise ModelError(
            f"node {name} rounds a constant with a scale that the network computes",
            hint="fold the constants of the model before", code="NF-MODEL-236",
        ).at(node=name)
    scale, zero = form.scale.astype(np.float32), form.zero.astype(np.float32)
    with np.errstate(all="ignore"):
        codes = x / scale + zero
        if form.mode == "SIGN":
            codes = np.where(codes >= 0, 1, -1)
            return np.asarray((codes - zero) * scale, np.float32)
        if form.saturates:
            codes = np.clip(codes, *form.ends)
        if form.divisor != 1:
            codes = np.rint(codes) / form.divisor
        if form.mode in PLAIN:
            codes = NUMPY[PLAIN[form.mode]](codes)
        else:
            kind, more = MAGNITUDE[form.mode]
            codes = np.sign(codes) * NUMPY[kind](np.abs(codes) + more)
        return np.asarray((codes - zero) * np.where(scale == 0, np.nan, scale), np.float32)


def spelled(node: onnx.NodeProto, form: QuantForm, added: dict[str, Array]) -> list[onnx.NodeProto]:
    """The node as standard operators of opset 11 and later."""
    chain = _Chain(node, added)
    scale, zero = form.names
    shifts = bool(zero) and (form.zero is None or bool(form.zero.any()))
    chain.add("Div", [scale])
    if shifts:
        chain.add("Add", [zero])
    if form.mode == "SIGN":
        chain.add("Sign").add("Add", [chain.number(0.5)]).add("Sign")    # 0 counts as positive
    else:
        if form.saturates:
            chain.add("Clip", [chain.number(end) for end in form.ends])
        if form.divisor != 1:
            chain.add("Round").add("Div", [chain.number(form.divisor)])
        if form.mode in PLAIN:
            chain.add(PLAIN[form.mode])
        else:
            kind, more = MAGNITUDE[form.mode]
            before = chain.last
            chain.add("Sign")
            sign, chain.last = chain.last, before
            chain.add("Abs").add("Add", [chain.number(more)]).add(kind).add("Mul", [sign])
    if shifts:
        chain.add("Sub", [zero])
    chain.add("Mul", [scale])
    chain.made[-1].output[0] = node.output[0]
    return chain.made


class _Chain:
    """Operators one after another, in the place of a node."""

    def __init__(self, node: onnx.NodeProto, added: dict[str, Array]) -> None:
        self.name, self.last, self.added = node.output[0], node.input[0], added
        self.made: list[onnx.NodeProto] = []

    def add(self, kind: str, more: Sequence[str] = ()) -> _Chain:
        out = f"{self.name}:{len(self.made)}"
        self.made.append(onnx.helper.make_node(kind, [self.last, *more], [out]))
        self.last = out
        return self

    def number(self, value: float) -> str:
        name = f"{self.name}:number{len(self.added)}"
        self.added[name] = np.array(value, np.float32)
        return name
