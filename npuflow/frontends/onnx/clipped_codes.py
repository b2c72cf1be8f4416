"""Reads Clips of codes between QuantizeLinear and DequantizeLinear as fewer bits or a narrow range.
Brevitas' QCDQ writes them where codes have fewer bits than the integers that hold them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence

import numpy as np
import onnx

from npuflow.ir.types import Array, QuantType

Ends = tuple[int, int]
ROUNDING, BACK = "QuantizeLinear", "DequantizeLinear"


def unclipped(
    nodes: Sequence[onnx.NodeProto], consts: MutableMapping[str, Array], outputs: Collection[str]
) -> tuple[list[onnx.NodeProto], dict[str, Ends]]:
    """The nodes without such Clips, those of constants computed, and the lowest and highest code by the name
    of the codes. A Clip to ends that no width has stays, unless it is of a constant."""
    maker = {o: node for node in nodes for o in node.output if o}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    kept, found = [], dict[str, Ends]()
    for node in nodes:
        ends = _ends(node, consts)
        back = readers.get(node.output[0], []) if node.output else []
        if ends is None or not back or any(n.op_type != BACK or n.domain for n in back):
            kept.append(node)
            continue
        source, result = node.input[0], node.output[0]
        held, rounding = consts.get(source), maker.get(source)
        if held is not None and held.dtype.kind in "iu":
            consts[result] = np.clip(held, *ends).astype(held.dtype)
            if width(ends, held.dtype.kind == "i") is not None:
                found[result] = ends
            continue
        signed = _signed(rounding, consts) if rounding is not None else None
        alone = len(readers[source]) == 1 and not {source, result} & set(outputs)
        if signed is None or not alone or width(ends, signed) is None:
            kept.append(node)
            continue
        found[source] = ends
        for one in back:
            one.input[0] = source
    return kept, found


def width(ends: Ends, signed: bool) -> tuple[int, bool] | None:
    """Bits, and whether the most negative code is left out; None where no width ends there."""
    lo, hi = ends
    bits = (hi + 1).bit_length() - (0 if signed else 1)
    if hi < 0 or hi + 1 != 1 << (bits - 1 if signed else bits) or not 1 <= bits <= 16:
        return None
    if signed and bits > 1 and lo in (-hi - 1, -hi):
        return bits, lo == -hi
    return (bits, False) if not signed and lo == 0 else None


def ended(quant: QuantType, ends: Ends | None) -> QuantType:
    """The type with the width that its codes are clipped to."""
    made = width(ends, quant.signed) if ends is not None else None
    if made is None or made[0] > quant.bits:
        return quant
    fewer = quant.with_(bits=made[0], narrow=made[1])
    return fewer if all(fewer.lo <= zero <= fewer.hi for zero in quant.zero_point) else quant


def _ends(node: onnx.NodeProto, consts: Mapping[str, Array]) -> Ends | None:
    """Of a Clip of whole numbers between constants."""
    if node.op_type != "Clip" or node.domain or len(node.input) != 3:
        return None
    found = [consts.get(name) for name in node.input[1:]]
    if any(one is None or one.size != 1 or one.dtype.kind not in "iu" for one in found):
        return None
    lo, hi = (int(one.reshape(())) for one in found if one is not None)
    return lo, hi


def _signed(rounding: onnx.NodeProto, consts: Mapping[str, Array]) -> bool | None:
    """Whether the codes of a QuantizeLinear are signed; None for what is none."""
    if rounding.op_type != ROUNDING or rounding.domain:
        return None
    zero = consts.get(rounding.input[2]) if len(rounding.input) > 2 else np.zeros(1, np.uint8)
    return None if zero is None or zero.dtype.kind not in "iu" else zero.dtype.kind == "i"
