"""A TFLite network in the making: values of the integer graph as tensors, in the layouts that layers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npuflow.frontends.tflite.schema import Codes, Operator, TfliteNetwork, TfliteTensor
from npuflow.hw.numerics import quantize
from npuflow.ir.graph import Graph
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array, QuantType, Value

PLAIN, NHWC = "plain", "nhwc"  # dimensions as in the graph; channels last, images of one row for 1-D
DTYPES = {8: "int8", 16: "int16"}
TYPE_INT32, TYPES = 2, {"int8": 9, "int16": 7}  # numbers of types in TFLite's schema
STEP = 1 << 7  # between codes of 8 bits held in 16 where these are finer
# operators that LiteRT has no kernel of 16 bits for, or one with a coarse table
ONLY_8 = ("HARD_SWISH", "GELU", "PRELU", "RELU", "EXP", "LOG", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH")


class LiteRefusal(Exception):
    """A layer that TFLite has no form for, with the reason."""


def narrow(name: str, bits: int) -> None:
    if bits > 8 and name in ONLY_8:
        raise LiteRefusal(f"{name} has no kernel of 16 bits")


def codes_of(quant: QuantType, name: str) -> tuple[Codes, int]:
    """TFLite's scale and zero point of an activation, and what is subtracted from its codes."""
    if not quant.per_tensor or quant.bits not in DTYPES:
        raise LiteRefusal(f'"{name}" has {quant.bits} bits: TFLite has activations of 8 and 16')
    shift = 0 if quant.signed else 1 << (quant.bits - 1)
    zero = quant.zero_point[0] - shift
    if quant.bits == 16 and zero:
        raise LiteRefusal(f'"{name}" has 16 bits and the zero point {zero}: TFLite has 16 bits with 0 only')
    return Codes((float(np.float32(quant.scale[0])),), (zero,), None), shift


def in_nhwc(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape in that layout."""
    n, c, *spatial = shape
    return (n, *(spatial if len(spatial) == 2 else (1, *spatial)), c)


def turned(array: Array) -> Array:
    """An array in that layout."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1).reshape(in_nhwc(array.shape)))


@dataclass
class LiteBuilder:
    """`forms`: tensors by value, layout and width; `flat`: values of two dimensions whose columns are in the
    order of an image with channels last, with the shape [C, ...] that they have in the graph; `whole`:
    places of elements, whole numbers in 32 bits, as they are in the graph."""

    graph: Graph
    tensors: list[TfliteTensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    forms: dict[tuple[str, str, int], int] = field(default_factory=dict)
    flat: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)  # of tensors that are an end twice
    bodies: list[TfliteNetwork] = field(default_factory=list)  # of loops; the first one has number 1
    _taken: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)  # of a name the next number to try

    # --- tensors
    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        codes: Codes | None = None,
        data: Array | None = None,
    ) -> int:
        """A new tensor; its name is made unique."""
        free, count = name, self._counts.get(name, 1)
        while free in self._taken:
            free, count = f"{name}#{count}", count + 1
        self._taken.add(free)
        self._counts[name] = count
        self.tensors.append(TfliteTensor(free, tuple(int(d) for d in shape), dtype, data, codes))
        return len(self.tensors) - 1

    def ints(self, values: Sequence[int] | Array, name: str = "shape") -> int:
        array = np.asarray(values, np.int32)
        return self.tensor(name, array.shape, "int32", None, array)

    def width(self, site: OpContext) -> int:
        """Bits in which a layer is computed: the most that an activation of its own has."""
        own = [v for i, v in enumerate(site.inputs) if v is not None and site.op.role(i) == "activation"]
        found = max(v.quant.bits for v in (*own, *site.outputs) if v.quant is not None)
        if found not in DTYPES:
            raise LiteRefusal(f"activations of {found} bits: TFLite has 8 and 16")
        return found

    def has(self, value_id: str, layout: str) -> bool:
        as_numbers = layout == PLAIN and value_id in self.whole
        return as_numbers or any((value_id, layout, bits) in self.forms for bits in DTYPES)

    def layout(self, *ids: str) -> str:
        """The layout in which a layer on these values needs the fewest transpositions."""
        moving = [i for i in ids if i and self.graph.const(i) is None]
        ranks = [len(self.graph.type(i).shape) for i in moving]
        if not moving or max(ranks) not in (3, 4):
            return PLAIN
        nhwc = [
            self.has(i, NHWC) or (r == 4 and not self.has(i, PLAIN))
            for i, r in zip(moving, ranks, strict=True)
        ]
        return NHWC if any(nhwc) else PLAIN

    # --- reading values
    def read(self, value_id: str, layout: str = PLAIN, bits: int = 0, rank: int = 0) -> int:
        """The tensor of a value in a layout and width; `rank`: with new dimensions in front up to so many."""
        value = self.graph.values[value_id]
        assert value.quant is not None
        bits = bits or value.quant.bits
        if self.graph.const(value_id) is not None:
            return self.constant(value, layout, bits, rank)
        lead = max(0, rank - len(value.type.shape))
        if lead:
            if layout == PLAIN:
                return self.reshaped(self.read(value_id, PLAIN, bits), (1,) * lead + value.type.shape)
            return self.turn(self.read(value_id, PLAIN, bits, rank), (1,) * lead + value.type.shape, NHWC)
        key = (value_id, layout, bits)
        if key not in self.forms:
            self.forms[key] = self._made(value, layout, bits)
        return self.forms[key]

    def _made(self, value: Value, layout: str, bits: int) -> int:
        assert value.quant is not None
        own, other = value.quant.bits, NHWC if layout == PLAIN else PLAIN
        if bits != own:
            return self.widened(self.read(value.id, layout, own), f"{value.id}:int16")
        if layout == PLAIN and value.id in self.whole:
            return self.narrowed(value)
        if value.id in self.whole:
            return self.turn(self.read(value.id, PLAIN), value.type.shape, layout)
        if (value.id, other, own) in self.forms:
            return self.turn(self.forms[value.id, other, own], value.type.shape, layout)
        if value.id in self.flat:
            raise LiteRefusal(f'"{value.id}" is read in another order')
        assert value.id in self.graph.inputs, f"{value.id} has no tensor yet"
        if layout == NHWC and len(value.type.shape) != 4:
            return self.turn(self.read(value.id, PLAIN, own), value.type.shape, NHWC)
        shape = value.type.shape if layout == PLAIN else in_nhwc(value.type.shape)
        codes, _ = codes_of(value.quant, value.id)
        return self.tensor(value.id, shape, DTYPES[own], codes)

    def widened(self, index: int, name: str) -> int:
        """Codes of 8 bits in 16, exactly: without their zero point."""
        tensor = self.tensors[index]
        assert tensor.codes is not None
        made = self.tensor(name, tensor.shape, "int16", Codes(tensor.codes.scale, (0,), None))
        self.add("QUANTIZE", [index], [made])
        return made

    def narrowed(self, value: Value) -> int:
        """Whole numbers in the value's own codes, whose scale is 1."""
        assert value.quant is not None
        codes, dtype = codes_of(value.quant, value.id)[0], DTYPES[value.quant.bits]
        made = self.tensor(f"{value.id}:{dtype}", value.type.shape, dtype, codes)
        kinds = {"InDataType": TYPE_INT32, "OutDataType": TYPES[dtype]}
        self.add("CAST", [self.whole[value.id]], [made], **kinds)
        return made

    def constant(self, value: Value, layout: str, bits: int, rank: int) -> int:
        """A constant activation; one of 8 bits that is needed in 16 without its zero point."""
        held = self.graph.const(value.id)
        assert held is not None and value.quant is not None
        held = held.reshape((1,) * max(0, rank - held.ndim) + held.shape)
        codes, shift = codes_of(value.quant, value.id)
        plain = held.astype(np.int64) - shift
        if bits != value.quant.bits:
            plain, codes = plain - codes.zero[0], Codes(codes.scale, (0,), None)
        plain = turned(plain) if layout == NHWC else plain
        return self.tensor(value.id, plain.shape, DTYPES[bits], codes, plain.astype(DTYPES[bits]))

    # --- shapes
    def turn(self, index: int, shape: Sequence[int], layout: str) -> int:
        """A tensor in the other layout; `shape`: its dimensions in the graph."""
        tensor = self.tensors[index]
        wanted = tuple(shape) if layout == PLAIN else in_nhwc(shape)
        moving = [d for d in shape[2:] if d != 1]
        if shape[1] == 1 or not moving:
            return self.reshaped(index, wanted)
        name = f"{tensor.name}:{layout}"
        if len(shape) == 4:
            perm = (0, 3, 1, 2) if layout == PLAIN else (0, 2, 3, 1)
            made = self.tensor(name, wanted, tensor.dtype, tensor.codes)
            self.add("TRANSPOSE", [index, self.ints(perm, "perm")], [made])
            return made
        n, c, w = shape
        flat = index if layout == NHWC else self.reshaped(index, (n, w, c))
        swapped = self.tensor(name, (n, w, c) if layout == NHWC else (n, c, w), tensor.dtype, tensor.codes)
        self.add("TRANSPOSE", [flat, self.ints((0, 2, 1), "perm")], [swapped])
        return self.reshaped(swapped, wanted)

    def reshaped(self, index: int, shape: Sequence[int]) -> int:
        tensor = self.tensors[index]
        if tensor.shape == tuple(shape):
            return index
        made = self.tensor(f"{tensor.name}:shape", shape, tensor.dtype, tensor.codes)
        self.reshape(index, made)
        return made

    def reshape(self, source: int, result: int) -> None:
        shape = self.tensors[result].shape
        self.add("RESHAPE", [source, self.ints(shape)], [result], NewShape=shape)

    # --- producing values
    def add(self, name: str, inputs: Sequence[int], outputs: Sequence[int], **options: Any) -> None:
        self.operators.append(Operator(name, tuple(inputs), tuple(outputs), options))

    def give(
        self,
        value_id: str,
        name: str,
        inputs: Sequence[int],
        layout: str = PLAIN,
        bits: int = 0,
        codes: Codes | None = None,
        bounds: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        """An operator whose result is a value. `codes`: those that TFLite fixes for its result; `bounds`:
        what is left of a clip, in codes of the value."""
        value = self.graph.values[value_id]
        assert value.quant is not None
        own, (wanted, _) = value.quant.bits, codes_of(value.quant, value_id)
        bits = bits or own
        shape = value.type.shape if layout == PLAIN else in_nhwc(value.type.shape)
        if codes is None and bits != own:
            codes = self.computed(value_id, bits)
        steps = [] if codes in (None, wanted) and bits == own else ["QUANTIZE"]
        if bounds is not None and bounds[0] > value.quant.lo:
            steps.append("MAXIMUM")
        if bounds is not None and bounds[1] < value.quant.hi:
            steps.append("MINIMUM")
        at = self.tensor(
            f"{value_id}:wide" if steps else value_id,
            shape,
            DTYPES[bits] if codes else DTYPES[own],
            codes if steps and steps[0] == "QUANTIZE" else wanted,
        )
        self.add(name, inputs, [at], **options)
        for k, step in enumerate(steps):
            last = k == len(steps) - 1
            made = self.tensor(value_id if last else f"{value_id}:{step.lower()}", shape, DTYPES[own], wanted)
            more = []
            if step != "QUANTIZE":
                assert bounds is not None
                more = [self.bound(value, bounds[step == "MINIMUM"])]
            self.add(step, [at, *more], [made])
            at = made
        self.forms[value_id, layout, own] = at

    def computed(self, value_id: str, bits: int) -> Codes:
        """A value's codes in the width that its layer is computed in."""
        quant = self.graph.values[value_id].quant
        assert quant is not None
        codes, _ = codes_of(quant, value_id)
        if bits != quant.bits:
            codes = Codes((codes.scale[0] / STEP,), (0,), None)
        return codes

    def like(self, value_id: str, shape: Sequence[int], bits: int) -> int:
        """A tensor of another shape on a value's scale."""
        return self.tensor(f"{value_id}:whole", shape, DTYPES[bits], self.computed(value_id, bits))

    def bound(self, value: Value, code: int) -> int:
        """A code as a constant that broadcasts."""
        assert value.quant is not None
        codes, shift = codes_of(value.quant, value.id)
        data = np.array([code - shift], DTYPES[value.quant.bits])
        return self.tensor(f"{value.id}:bound", (1,), data.dtype.name, codes, data)

    def alias(self, value_id: str, layout: str, index: int) -> None:
        """A value that is a tensor there is already."""
        quant = self.graph.values[value_id].quant
        assert quant is not None
        self.forms[value_id, layout, quant.bits] = index

    def network(self, outputs: Sequence[str]) -> TfliteNetwork:
        """The whole, with the graph's inputs and outputs, in the layout that each has."""
        fed = [self.home(i) for i in self.graph.inputs]
        given: list[int] = []
        for value_id in outputs:
            index = self.home(value_id)
            given.append(self.copied(index) if index in (*fed, *given) else index)
        made = TfliteNetwork(tuple(self.tensors), tuple(self.operators), tuple(fed), tuple(given))
        return replace(made, bodies=(made, *self.bodies)) if self.bodies else made

    def copied(self, index: int) -> int:
        """A tensor of its own with the same content, for an output that is an input or another output."""
        tensor = self.tensors[index]
        made = self.tensor(f"{tensor.name}:copy", tensor.shape, tensor.dtype, tensor.codes)
        self.reshape(index, made)
        self.copies[made] = index
        return made

    def home(self, value_id: str) -> int:
        """The tensor of a value in the layout in which it came to be; those of one dimension in space as
        they are in the graph."""
        if value_id in self.whole:
            return self.whole[value_id]
        rank = len(self.graph.type(value_id).shape)
        found = [k for k in self.forms if k[0] == value_id]
        layout = NHWC if rank == 4 and found and found[0][1] == NHWC else PLAIN
        return self.read(value_id, layout)


def bounds_of(clip: tuple[float, float], quant: QuantType) -> tuple[int, int]:
    """A clip in codes."""
    lo, hi = quantize(np.array(clip), quant.scale[0], quant.zero_point[0], quant.lo, quant.hi).tolist()
    return lo, hi


def clamped(site: OpContext) -> tuple[int, int] | None:
    """The bounds in codes of a layer's clip, for an operator that fuses no activation function."""
    clip = site.op.clip
    if clip is None:
        return None
    lo, hi = clip
    if isinstance(lo, tuple) or isinstance(hi, tuple):
        raise LiteRefusal("a clip per channel")
    return bounds_of((lo, hi), site.out_quant)


def activation(site: OpContext) -> tuple[int, tuple[int, int] | None]:
    """The fused activation function of a layer's clip, and bounds in codes where there is none for it."""
    quant, ends = site.out_quant, clamped(site)
    if ends is None or ends == (quant.lo, quant.hi):
        return 0, None
    known: Mapping[tuple[int, int], int] = {
        bounds_of(bounds, quant): number
        for number, bounds in ((2, (-1.0, 1.0)), (3, (0.0, 6.0)), (1, (0.0, np.inf)))
    }
    number = known.get(ends)
    return (number, None) if number else (0, ends)
