"""A quantised ONNX model as the float model that it rounds, and the codes that it rounds to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import onnx

from npuflow.base.wording import counted
from npuflow.frontends._nodes.microsoft import MICROSOFT
from npuflow.frontends._nodes.tensors import array
from npuflow.frontends.onnx import blocks
from npuflow.frontends.onnx.bodies import with_bodies
from npuflow.frontends.onnx.clipped_codes import Ends, ended, unclipped
from npuflow.frontends.onnx.dynamic import settled
from npuflow.frontends.onnx.qonnx import QonnxLifter, is_qonnx
from npuflow.frontends.onnx.qoperators import Expander
from npuflow.frontends.onnx.saturation import LINEAR, saturated
from npuflow.frontends.onnx.tables import floats_first
from npuflow.ir.types import Array, GroupedType, QuantType, span
from npuflow.onnx.nodes import captured, rename

ROUNDING, BACK = "QuantizeLinear", "DequantizeLinear"
MARKS = ("QLinear", "QGemm", "MatMulNBits")
DYNAMIC = (
    "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
)
WIDTHS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 4, 2)}
NEAR = 1e-3                               # of a step, that the end of a Clip is off the end of the codes
Key = tuple[bytes, bytes, str, int | None, Ends | None]


@dataclass(frozen=True)
class Lifted:
    """The model without its rounding, the codes of its values by name, and notes for the user."""

    model: onnx.ModelProto
    stated: dict[str, QuantType] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    blocked: int = 0                          # weights whose scales change within a channel
    spelled: bool = False                     # whether roundings of QONNX were spelled out

    @property
    def changed(self) -> bool:
        """Whether the model computes other numbers than the file, or runs only like this."""
        return bool(self.stated or self.blocked or self.spelled)


def lifted(model: onnx.ModelProto, tensors: Mapping[str, Array] = MappingProxyType({})) -> Lifted:
    """Pairs of QuantizeLinear and DequantizeLinear become the codes of the value between them; weights become
    floats. What does not come in such pairs stays, and runs on the host. `tensors`: those kept apart from the
    model."""
    done = _of_the_graph(model, tensors)

    def lift(body: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, QuantType]]:
        found = lifted(body, tensors)
        return found.model, found.stated

    whole, stated = with_bodies(done.model, lift)
    return replace(done, model=whole, stated={**done.stated, **stated}) if stated else done


def _of_the_graph(model: onnx.ModelProto, tensors: Mapping[str, Array]) -> Lifted:
    """The roundings between nodes of the graph itself."""
    if any(is_qonnx(node) for node in model.graph.node):
        return _qonnx(model, tensors)
    kinds = {node.op_type for node in model.graph.node}
    if not any(k in (ROUNDING, BACK, *DYNAMIC) or k.startswith(MARKS) for k in kinds):
        return Lifted(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return _Lifter(copy, tensors).result()


def _qonnx(model: onnx.ModelProto, tensors: Mapping[str, Array]) -> Lifted:
    """A model with roundings of QONNX, and maybe others."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    lifter = QonnxLifter(copy, tensors)
    notes = lifter.run()
    rest = lifted(copy, tensors)
    return Lifted(rest.model, {**lifter.stated, **rest.stated}, (*notes, *rest.notes), rest.blocked, True)


class _Lifter:
    """One model being lifted, in place."""

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, Array]) -> None:
        self.model, self.graph = model, model.graph
        # some exporters list constants among the inputs: they are the values of these, as everywhere
        consts = {t.name: array(t, tensors) for t in self.graph.initializer}
        for node in self.graph.node:
            value = next((a for a in node.attribute if a.name == "value"), None)
            if node.op_type == "Constant" and value is not None and node.output:
                consts[node.output[0]] = array(value.t)
        expander, outputs = Expander(consts), {o.name for o in self.graph.output}
        self.nodes, self.dynamic = settled(expander, expander.all(self.graph.node), outputs)
        self.consts = expander.consts
        self.nodes, self.ends = unclipped(self.nodes, self.consts, outputs)
        self.nodes = floats_first(self.nodes, self.consts, outputs)
        self.added = dict(expander.added)
        self.stated: dict[str, QuantType] = {}
        self.renamed: dict[str, str] = {}
        self.kept: list[str] = []
        self.clips: dict[str, tuple[float, float]] = {}
        self.dropped: set[int] = set()               # Clips that fewer bits stand for, Transposes of weights
        self.blocked: list[str] = []                 # weights whose scales change within a channel
        self.nodes = [part for node in self.nodes for part in self.products(node)]
        self.version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)

    def result(self) -> Lifted:
        maker = {o: node for node in self.nodes for o in node.output if o}
        pairs: dict[str, list[tuple[onnx.NodeProto, onnx.NodeProto]]] = {}
        gone: set[int] = set()
        for node in self.nodes:
            if node.op_type != BACK or len(node.input) < 2 or not node.output:
                continue
            source = maker.get(node.input[0])
            if node.input[0] in self.consts:
                if self.weight(node, self.consts[node.input[0]]):
                    gone.add(id(node))
            elif source is not None and self.same(source, node):
                if source.input[0] in self.consts:
                    codes = self.coded(source)
                    if codes is not None and self.weight(node, codes):
                        gone.add(id(node))
                else:
                    pairs.setdefault(source.input[0], []).append((source, node))
        for value, found in pairs.items():
            if self.activation(value, found, maker):
                gone.update(id(back) for _, back in found)
        return self.rebuilt([n for n in self.nodes if id(n) not in gone | self.dropped])

    def rebuilt(self, nodes: Iterable[onnx.NodeProto]) -> Lifted:
        kept = []
        for node in nodes:
            made = onnx.NodeProto()
            made.CopyFrom(node)
            rename(made, {name: self.final(name) for name in captured(made)})
            for i, name in enumerate(made.input):
                made.input[i] = self.final(name)
            kept.append(made)
            for i, name in enumerate(made.output):
                made.output[i] = self.final(name)
                if made.output[i] in self.clips:
                    name, made.output[i] = made.output[i], f"{made.output[i]}:all"
                    kept.append(saturated(made.output[i], name, self.clips[name], self.version, self.added))
        del self.graph.node[:]
        self.graph.node.extend(kept)
        self.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in self.added.items())
        said = f"the model states the codes of {counted(len(self.stated), 'tensor')}; their scales are kept"
        notes = [said] if self.stated else []
        if self.dynamic:
            notes.append(
                f"products that the model quantises while it runs ({self.dynamic}) are read as floats, with "
                "the codes of their weights; ranges of activations come from calibration"
            )
        if left := sorted({n.op_type for n in kept} & set(DYNAMIC)):
            notes.append(
                f"{', '.join(left)}: quantised while it runs, with scales that are not known before; it runs "
                "on the host"
            )
        if self.blocked:
            what = (
                f"scales by blocks within a channel of {counted(len(self.blocked), 'weight')} are not kept"
            )
            notes.append(
                f"{what}: read as floats, with scales of their own, {self.blocked[0]} the first"
            )
        if self.kept:
            shown = ", ".join(self.kept[:3]) + (", ..." if len(self.kept) > 3 else "")
            notes.append(
                f"stay as they are: {counted(len(self.kept), 'tensor')} rounded in several ways or at the "
                f"network's ends: {shown}"
            )
        return Lifted(self.model, self.stated, tuple(notes), len(self.blocked))

    def final(self, name: str) -> str:
        while name in self.renamed:
            name = self.renamed[name]
        return name

    # --- parameters
    def same(self, rounding: onnx.NodeProto, back: onnx.NodeProto) -> bool:
        """Whether one undoes the other."""
        if rounding.op_type != ROUNDING or len(rounding.input) < 2:
            return False
        key = self.key(rounding)
        return key is not None and key == self.key(back)

    def key(self, node: onnx.NodeProto) -> Key | None:
        """What makes two roundings the same; None where a parameter is computed or has blocks."""
        params = self.params(node)
        if params is None:
            return None
        scale, zero, dtype, axis = params
        return scale.tobytes(), zero.astype(np.int64).tobytes(), dtype, axis, self.clipped(node)

    def clipped(self, node: onnx.NodeProto) -> Ends | None:
        """The ends that the codes of a rounding, or of its reverse, are clipped to."""
        return self.ends.get(node.output[0] if node.op_type == ROUNDING else node.input[0])

    def params(self, node: onnx.NodeProto) -> tuple[Array, Array, str, int | None] | None:
        if any(i not in self.consts for i in node.input[1:] if i) or any(
            a.name == "block_size" and a.i for a in node.attribute
        ):
            return None
        scale = self.consts.get(node.input[1])
        if scale is None or scale.dtype.kind != "f" or scale.ndim > 1:
            return None
        if len(node.input) > 2 and node.input[2]:
            zero = self.consts[node.input[2]]
            dtype = zero.dtype.name
            if zero.size != scale.size or not (zero.dtype.kind in "iu" or dtype in WIDTHS):
                return None
        else:
            held = self.consts.get(node.input[0])
            dtype = held.dtype.name if node.op_type == BACK and held is not None else "uint8"
            zero = np.zeros(scale.shape, np.int64)
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1) if scale.size > 1 else None
        return scale.astype(np.float32).reshape(-1), zero.reshape(-1), dtype, axis

    def along(self, params: tuple[Array, Array, str, int | None], held: Array) -> tuple[Array, Array] | None:
        """Scale and zero point in a shape that goes with an array; None where their
        number is not that of the axis."""
        scale, zero, _, axis = params
        if axis is None:
            return scale.reshape(()), zero.astype(np.int64).reshape(())
        if not -held.ndim <= axis < held.ndim or held.shape[axis] != scale.size:
            return None
        shape = [-1 if d == axis % held.ndim else 1 for d in range(held.ndim)]
        return scale.reshape(shape), zero.astype(np.int64).reshape(shape)

    def quant(self, node: onnx.NodeProto, rank: int | None) -> QuantType | None:
        """The codes as a type; None for widths that no network computes with (32-bit biases, floats)."""
        params = self.params(node)
        if params is None or params[2] not in WIDTHS or not all(0 < s < np.inf for s in params[0].tolist()):
            return None
        scale, zero, dtype, axis = params
        if axis is not None and axis < 0:
            axis = axis + rank if rank is not None else None
        zeros = tuple(int(z) for z in zero)
        made = QuantType(WIDTHS[dtype], not dtype.startswith("u"), tuple(scale.tolist()), zeros, axis)
        return ended(made, self.clipped(node))

    # --- values
    def products(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A MatMulNBits as MatMul with its weight, and Add of its bias."""
        if (
            node.op_type != "MatMulNBits"
            or node.domain != MICROSOFT
            or not all(node.output[:1])
            or len(node.input) < 3
        ):
            return [node]
        made = blocks.matmul(node, self.consts)
        if made is None:
            return [node]
        out, weight = node.output[0], f"{node.output[0]}:weight"
        self.consts[weight] = self.added[weight] = made.real
        if made.quant is None:
            self.blocked.append(node.name or out)
        else:
            self.stated[weight] = made.quant
        bias = node.input[5] if len(node.input) > 5 else ""
        product = onnx.helper.make_node(
            "MatMul", [node.input[0], weight], [f"{out}:product" if bias else out], node.name
        )
        return (
            [product, onnx.helper.make_node("Add", [product.output[0], bias], [out])] if bias else [product]
        )

    def blocks(self, node: onnx.NodeProto, codes: Array) -> bool:
        """The constant behind a DequantizeLinear with blocks as floats."""
        given = {a.name: a.i for a in node.attribute}
        held = [self.consts.get(name) for name in node.input[1:] if name]
        if not given.get("block_size") or any(one is None for one in held) or codes.dtype.name not in WIDTHS:
            return False
        scale, zero = (*held, None)[:2]
        real = (
            None
            if scale is None
            else blocks.spread(codes, scale, zero, given.get("axis", 1), given["block_size"])
        )
        if real is None or scale is None:
            return False
        out, form = node.output[0], (WIDTHS[codes.dtype.name], not codes.dtype.name.startswith("u"))
        self.consts[out] = self.added[out] = real
        found = blocks.stated(codes, scale, zero, given.get("axis", 1), given["block_size"], form)
        if found is None:
            self.blocked.append(out)
        else:
            self.stated[out] = found
            self.transposed(out, real, found)
        return True

    def transposed(self, name: str, real: Array, quant: GroupedType) -> None:
        """Transposes of a matrix with codes in blocks, as matrices of their own."""
        for node in self.nodes:
            if node.op_type != "Transpose" or node.domain or list(node.input) != [name]:
                continue
            perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), [1, 0])
            if perm == [1, 0]:
                out = node.output[0]
                self.consts[out] = self.added[out] = np.ascontiguousarray(real.T)
                self.stated[out] = blocks.turned(quant)
                self.dropped.add(id(node))

    def weight(self, node: onnx.NodeProto, codes: Array) -> bool:
        """The constant behind a DequantizeLinear as floats, with its codes stated."""
        if self.blocks(node, codes):
            return True
        params = self.params(node)
        fitting = (
            self.along(params, codes)
            if params is not None and codes.dtype.name in (*WIDTHS, "int32")
            else None
        )
        if fitting is None:
            return False
        scale, zero = fitting
        real = (codes.astype(np.int64) - zero).astype(np.float32) * scale
        self.consts[node.output[0]] = self.added[node.output[0]] = real
        quant = self.quant(node, codes.ndim)
        if quant is not None:
            self.stated[node.output[0]] = quant
        return True

    def coded(self, node: onnx.NodeProto) -> Array | None:
        """The codes of a float constant that is rounded while the model runs."""
        params, real = self.params(node), self.consts[node.input[0]]
        fitting = self.along(params, real) if params is not None and real.dtype.kind == "f" else None
        if params is None or fitting is None or params[2] not in WIDTHS:
            return None
        (scale, zero), dtype = fitting, params[2]
        bits, signed = WIDTHS[dtype], not dtype.startswith("u")
        lo = -(1 << (bits - 1)) if signed else 0
        with np.errstate(all="ignore"):
            codes = np.clip(np.rint(real / scale) + zero, lo, lo + (1 << bits) - 1)
        if not np.isfinite(codes).all():
            return None
        return codes.astype(f"{'' if signed else 'u'}int{max(bits, 8)}")

    def activation(
        self, value: str, found: list[tuple[onnx.NodeProto, onnx.NodeProto]], maker: dict[str, onnx.NodeProto]
    ) -> bool:
        """One value and its roundings: with a single kind of them its codes are stated, and
        readers read the value itself."""
        quant = self.quant(found[0][0], None)
        clip = maker.get(value)
        narrower = self.narrowed(clip, quant, len(found))
        if clip is not None and narrower is not None:
            self.dropped.add(id(clip))
            self.renamed[value] = clip.input[0]
            quant, value = narrower, clip.input[0]
        keys = {self.key(rounding) for rounding, _ in found}
        others = {
            self.key(n)
            for n in self.nodes
            if n.op_type == ROUNDING and len(n.input) > 1 and n.input[0] == value
        }
        outputs = {o.name for o in self.graph.output}
        last = [back.output[0] for _, back in found if back.output[0] in outputs]
        if quant is None or quant.axis is not None or len(keys | others) > 1 or len(last) > 1:
            self.kept.append(value)
            return False
        if last and (value not in maker or value in outputs):
            self.kept.append(value)
            return False
        name = last[0] if last else value
        self.renamed.update({o: name for o in (value, *(back.output[0] for _, back in found)) if o != name})
        self.stated[name] = quant
        if value in maker and maker[value].op_type in LINEAR:
            self.clips[name] = span(quant)
        return True

    def narrowed(self, clip: onnx.NodeProto | None, quant: QuantType | None, n: int) -> QuantType | None:
        """The codes of fewer bits that a Clip before `n` roundings leaves, if such codes end so."""
        if clip is None or quant is None or quant.axis is not None or clip.op_type != "Clip" or clip.domain:
            return None
        ends = [self.consts.get(name) for name in clip.input[1:]]
        value, source = clip.output[0], clip.input[0]
        read = [sum(name in n.input for n in self.nodes) for name in (value, source)]
        outputs = {o.name for o in self.graph.output}
        if len(ends) != 2 or read != [n, 1] or {value, source} & outputs or source in self.consts:
            return None
        if any(end is None or end.size != 1 for end in ends):
            return None
        wanted = [float(np.asarray(end).reshape(())) for end in ends]
        for bits, narrow in ((b, n) for b in range(2, quant.bits) for n in (False, quant.signed)):
            made = quant.with_(bits=bits, narrow=narrow)
            off = [abs(a - b) for a, b in zip(wanted, span(made), strict=True)]
            if max(off) <= NEAR * quant.scale[0] and made.lo <= quant.zero_point[0] <= made.hi:
                return made
        return None
