"""Programs of single operators: the networks of the table, alone, behind and in front of a convolution and
beside a second reader of their operand, built by defaults and compared with onnxruntime on new inputs.

New inputs are drawn as the calibration samples are, in two sets. In the first, samples by which an input or a
tensor of the float network, its operators written out, leaves the range that it had over the calibration
samples are drawn again: such a number says how few samples there are, and costs more than all roundings
together. The second is as it comes: numbers beyond the range are its ends, and nothing worse happens to them.

Some networks make much of the rounding of what they read: the scores of an attention may be so steep that
codes of 8 bits cannot reach the 28 dB, whatever computes it. What they can reach is measured: in onnxruntime,
the network as it is written with every tensor rounded (program_rounding.py). A program may be below 28 dB
only where it adds no more noise of its own than that, which is 3 dB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import compose, helper, numpy_helper, parser

import npuflow
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.codes import decode, encode
from npuflow.ir.types import QuantType
from npuflow.onnx.export import export_model
from npuflow.rewrite.rewrite import rewrite
from tests.ops.program_rounding import ends_over, in_eight_bits, shown, tensors
from tests.ops.program_rows import PLACES, Array, Index, Row, normal

CALIBRATION, NEW, FREE = 128, 16, 32  # samples
LEAST = {"within": 28.0, "free": 15.0}  # dB by set of new samples
OWN = 3.0  # dB that an operator's own roundings may take from what codes of 8 bits reach: as much noise again
FLOAT = onnx.TensorProto.FLOAT
DOMAINS = (("com.microsoft", 1),)
# what a network has in front of an operator so that operands are as it needs them; {} is the tensor
GUARDS = {
    "": "{x} = Identity({c})",
    "positive": "{c}s = Softplus({c}) {x} = Add({c}s, third)",
    "above one": "{c}s = Softplus({c}) {x} = Add({c}s, more)",
    "bounded": "{x} = Clip({c}, bottom, top)",
    "angle": "{c}s = Tanh({c}) {x} = Mul({c}s, steep)",
    "unit": "{c}s = Tanh({c}) {x} = Mul({c}s, most)",
    "factor": "{c}s = Tanh({c}) {c}t = Mul({c}s, third) {x} = Add({c}t, more)",
}
NUMBERS = {"third": 0.3, "more": 1.1, "most": 0.9, "bottom": -2.0, "top": 2.0, "steep": 1.4}


@dataclass(frozen=True)
class Part:
    """One operator in one shape and place: a network of its own."""

    row: Row
    number: int
    place: str

    @property
    def name(self) -> str:
        return f"{re.sub('[^A-Za-z0-9]', '', self.row.name)}{self.number}{self.place}_"

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        return self.row.shapes[self.number]

    @cached_property
    def operands(self) -> dict[str, tuple[int, ...]]:
        """The float inputs of the operator."""
        return {k: v for k, v in self.spec.items() if isinstance(v, tuple)}

    @cached_property
    def wrapped(self) -> bool:
        return self.place in ("behind", "second")

    @cached_property
    def model(self) -> onnx.ModelProto:
        nodes = self.row.nodes
        for key, value in self.spec.items():
            nodes = nodes.replace("{" + key + "}", str(value))
        consts = {k: v for k, v in self.spec.items() if isinstance(v, np.ndarray)}
        ends = [f"int64{list(v.shape)} {k}" for k, v in self.spec.items() if isinstance(v, Index)]
        before = []
        for name, shape in self.operands.items():
            if not self.wrapped:
                ends.append(f"float{list(shape)} {name}")
                continue
            image = _image(shape)
            ends.append(f"float{list(image)} z_{name}")
            consts[f"w_{name}"] = _filter(image[1], image[1], len(image) - 2)
            how = f"pads={[1] * (2 * len(image) - 4)}"
            guard = GUARDS[self.row.guards.get(name, "")].format(c=f"c_{name}", x=name)
            if image != shape:
                consts[f"to_{name}"] = np.array(shape, np.int64)
                before.append(
                    f"d_{name} = Conv<{how}>(z_{name}, w_{name}) c_{name} = Reshape(d_{name}, to_{name})"
                )
            else:
                before.append(f"c_{name} = Conv<{how}>(z_{name}, w_{name})")
            before.append(guard)
        body = " ".join([*before, nodes])
        consts.update(
            {k: np.array(v, np.float32) for k, v in NUMBERS.items() if re.search(rf"\b{k}\b", body)}
        )
        made = _model(ends, body, consts, self.row.opset)
        results = _leaves(made.graph)
        made.graph.output.extend(helper.make_empty_tensor_value_info(r) for r in results)
        if self.place == "front":
            _convolved(made, results, self.run_once(made))
        if self.place == "second":
            for name in self.operands:
                made.graph.node.append(helper.make_node("Tanh", [name], [f"r_{name}"]))
                made.graph.output.append(helper.make_empty_tensor_value_info(f"r_{name}"))
        if self.row.jumps and self.wrapped:
            made.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in self.operands)
        for value, array in zip(made.graph.output, self.run_once(made), strict=True):
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
        return made

    @cached_property
    def written_out(self) -> onnx.ModelProto:
        """The network with its operators as the rules spell them."""
        reading = FRONTENDS["onnx"]().read(self.model.SerializeToString(), Bindings({}))
        return onnx.load_from_string(export_model(rewrite(reading.graph).graph))

    def in_eight_bits(self, seen: Sequence[dict[str, Array]]) -> onnx.ModelProto:
        """The network as it is written, its tensors in codes of 8 bits of their ranges over `seen`."""
        return in_eight_bits(self.model, ends_over(_session(shown(self.model)), seen))

    def run_once(self, made: onnx.ModelProto) -> list[Array]:
        return _session(made).run(None, self.feeds(np.random.default_rng(1), 1)[0])

    def feeds(self, rng: np.random.Generator, count: int) -> list[dict[str, Array]]:
        """Samples, by the names of the part."""

        def draw(shape: tuple[int, ...]) -> Array:
            return np.asarray(rng.normal(size=shape), np.float32)

        found = []
        for _ in range(count):
            feed: dict[str, Array] = {}
            for name, kind in self.spec.items():
                if isinstance(kind, Index):
                    feed[name] = rng.integers(0, kind.top, kind.shape)
                elif isinstance(kind, tuple) and self.wrapped:
                    feed[f"z_{name}"] = draw(_image(kind))
                elif isinstance(kind, tuple):
                    feed[name] = _guarded(draw(kind), self.row.guards.get(name, ""))
            found.append(feed)
        return found

    def within(
        self, rng: np.random.Generator, seen: Sequence[dict[str, Array]], count: int
    ) -> list[dict[str, Array]]:
        """New samples that take no float tensor beyond what `seen` did, the samples that ranges come from: of
        the network that is calibrated, with its operators written out, and its inputs."""
        session = _session(shown(self.written_out))
        ends = ends_over(session, seen)
        found: list[dict[str, Array]] = []
        for _ in range(100 * count):
            (feed,) = self.feeds(rng, 1)
            made = tensors(session, feed).items()
            if all(ends[name][0] <= a.min() and a.max() <= ends[name][1] for name, a in made):
                found.append(feed)
            if len(found) == count:
                return found
        raise AssertionError(f"{self.name}: new samples do not lie within the calibration samples")

    @cached_property
    def core(self) -> Part:
        """What computes the results from the operands themselves."""
        return Part(self.row, self.number, "alone") if self.wrapped else self


def _image(shape: tuple[int, ...]) -> tuple[int, ...]:
    """What a convolution gives as that shape: images as they are, all else as rows."""
    if len(shape) == 4 and shape[0] == 1:
        return shape
    last = shape[-1] if shape else 1
    return 1, int(np.prod(shape)) // last, last


def _filter(out: int, channels: int, rank: int) -> Array:
    return normal(out, channels, *[3] * rank, scale=1 / np.sqrt(channels * 3**rank))


def _guarded(x: Array, guard: str) -> Array:
    plus = np.log1p(np.exp(x))
    made = {
        "": x,
        "positive": plus + 0.3,
        "above one": plus + 1.1,
        "angle": np.tanh(x) * 1.4,
        "unit": np.tanh(x) * 0.9,
        "bounded": np.clip(x, -2, 2),
        "factor": np.tanh(x) * 0.3 + 1.1,
    }
    return np.asarray(made[guard], np.float32)


def _model(ends: Sequence[str], body: str, consts: Mapping[str, Array], opset: int) -> onnx.ModelProto:
    text = (
        f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]> '
        f"g ({', '.join(ends)}) => () {{ {body} }}"
    )
    made = parser.parse_model(text)
    for value in made.graph.input:  # the text form has no scalars
        value.type.tensor_type.shape.SetInParent()
    made.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in consts.items())
    return made


def _leaves(graph: onnx.GraphProto) -> list[str]:
    read = {i for n in graph.node for i in n.input}
    return [o for n in graph.node for o in n.output if o and o not in read]


def _convolved(made: onnx.ModelProto, results: Sequence[str], arrays: Sequence[Array]) -> None:
    """A convolution behind the first result instead of it."""
    name, array = results[0], arrays[0]
    image, last = _image(array.shape), name
    if array.dtype != np.float32:
        made.graph.node.append(helper.make_node("Cast", [last], ["f_real"], to=FLOAT))
        last = "f_real"
    if image != array.shape:
        made.graph.initializer.append(numpy_helper.from_array(np.array(image, np.int64), "f_to"))
        made.graph.node.append(helper.make_node("Reshape", [last, "f_to"], ["f_image"]))
        last = "f_image"
    weight = _filter(8, image[1], len(image) - 2)
    made.graph.initializer.append(numpy_helper.from_array(weight, "f_w"))
    pads = [1] * (2 * len(image) - 4)
    made.graph.node.append(helper.make_node("Conv", [last, "f_w"], ["front"], pads=pads))
    made.graph.output[0].name = "front"


def _session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def network(parts: Sequence[Part]) -> onnx.ModelProto:
    """The parts side by side; nothing of one reads anything of another."""
    made = onnx.ModelProto()
    made.CopyFrom(compose.add_prefix(parts[0].model, parts[0].name))
    for part in parts[1:]:
        other = compose.add_prefix(part.model, part.name).graph
        for field in ("node", "input", "output", "initializer"):
            getattr(made.graph, field).extend(getattr(other, field))
    return made


@dataclass(frozen=True)
class Finding:
    """A result of a part: its SQNR, or by how many codes it is off onnxruntime's on the same operands.
    `reach`: the SQNR of the network in codes of 8 bits, where it was asked for."""

    part: Part
    result: str
    db: float | None
    codes: float | None
    inputs: str = "within"
    reach: float | None = None

    @property
    def good(self) -> bool:
        far = self.codes is not None and self.codes > self.part.row.off + 0.01
        least = LEAST[self.inputs]
        if self.reach is not None:
            least = min(least, self.reach - OWN)
        return not far and (self.db is None or self.db >= least)

    def __str__(self) -> str:
        said = f"{self.db:.1f} dB" if self.db is not None else f"{self.codes:.2f} codes off"
        said += f", codes of 8 bits reach {self.reach:.1f} dB" if self.reach is not None else ""
        where = f"{self.part.row.name}, shape {self.part.number}, {self.part.place}"
        return f"{where}, inputs {self.inputs}: {self.result} {said}"


def judged(parts: Sequence[Part], target: str, folder: Path, **tables: Any) -> list[Finding]:
    """The program of the parts, built by defaults, on new inputs."""
    model = network(parts)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "network.onnx"
    path.write_bytes(model.SerializeToString())
    own = [(part, np.random.default_rng([part.number, PLACES.index(part.place)])) for part in parts]
    stored: dict[str, Array] = {}
    seen: list[list[dict[str, Array]]] = []
    sets: dict[str, list[tuple[Part, list[dict[str, Array]]]]] = {"within": [], "free": []}
    for part, rng in own:
        rows = part.feeds(rng, CALIBRATION)
        seen.append(rows)
        stored.update({part.name + k: np.stack([r[k] for r in rows]) for k in rows[0]})
    places = {"cache": folder / "cache", "out": folder / "out"}
    built = npuflow.compile(path, target, data=stored, jobs=1, **places, **tables)
    ranged = sorted(int(name.rpartition("#")[2]) for name in built.artifact("splits").fit)
    for (part, rng), rows in zip(own, seen, strict=True):
        sets["within"].append((part, part.within(rng, [rows[at] for at in ranged], NEW)))
        sets["free"].append((part, part.feeds(rng, FREE)))
    program, found = built.products["program"], []
    types = types_of(program)
    with npuflow.Runner(program) as runner:
        for name, given in sets.items():
            count = len(given[0][1])
            together = [{p.name + k: v for p, f in given for k, v in f[n].items()} for n in range(count)]
            made = [dict(runner.run(feed)) for feed in together]
            for (part, feeds), rows in zip(given, seen, strict=True):
                ours = [replace(f, inputs=name) for f in _compared(part, feeds, made, types)]
                if name == "within" and not all(f.good for f in ours):
                    ours = _with_reach(ours, part, rows, feeds)
                found += ours
    return found


def _with_reach(
    findings: Sequence[Finding], part: Part, seen: Sequence[Any], feeds: Sequence[dict[str, Array]]
) -> list[Finding]:
    """The findings with what codes of 8 bits reach on the same inputs."""
    plain, rounded = ran(part.model, feeds), ran(part.in_eight_bits(seen), feeds)
    reach = {r: decibels(plain[r], rounded[r]) for r in plain}
    return [replace(f, reach=reach[f.result]) if f.db is not None else f for f in findings]


def types_of(program: Path) -> dict[str, QuantType]:
    """Of the program's inputs and outputs that are codes inside, by name."""
    found = {}
    for step in npuflow.load_program(program).meta["steps"]:
        if step["kind"] in ("quantize", "dequantize") and "scale" in step["quant"]:
            quant = {k: tuple(v) if isinstance(v, list) else v for k, v in step["quant"].items()}
            found[step["value"] if step["kind"] == "quantize" else step["out"]] = QuantType(**quant)
    return found


def _compared(
    part: Part,
    feeds: Sequence[dict[str, Array]],
    made: Sequence[Mapping[str, Array]],
    types: Mapping[str, QuantType],
) -> list[Finding]:
    results = [o.name for o in part.model.graph.output]
    ours = {r: np.stack([np.asarray(m[part.name + r]) for m in made]) for r in results}
    plain = ran(part.model, feeds)
    if not part.row.jumps:
        return [Finding(part, r, decibels(plain[r], ours[r]), None) for r in results]
    exact = ran(
        part.core.model, [_operands(part, feed, m, types) for feed, m in zip(feeds, made, strict=True)]
    )
    found = []
    for r in results:
        if r in exact and r != "front":
            found.append(Finding(part, r, None, _codes(exact[r], ours[r], types.get(part.name + r))))
        else:
            found.append(Finding(part, r, decibels(exact.get(r, plain[r]), ours[r]), None))
    return found


def _operands(
    part: Part, feed: dict[str, Array], made: Mapping[str, Array], types: Mapping[str, QuantType]
) -> dict[str, Array]:
    """What the operator of the program reads, as numbers."""
    found = {k: v for k, v in feed.items() if not k.startswith("z_")}
    for name in part.operands:
        if part.wrapped:
            found[name] = np.asarray(made[part.name + name])
        elif part.name + name in types:
            quant = types[part.name + name]
            found[name] = decode(encode(feed[name], quant), quant).astype(np.float32)
    return found


def ran(model: onnx.ModelProto, feeds: Sequence[dict[str, Array]]) -> dict[str, Array]:
    session, names = _session(model), [o.name for o in model.graph.output]
    rows = [session.run(names, feed) for feed in feeds]
    return {name: np.stack([row[k] for row in rows]) for k, name in enumerate(names)}


def decibels(real: Array, made: Array) -> float:
    truth, found = real.astype(np.float64), made.astype(np.float64)
    noise, energy = float(((truth - found) ** 2).sum()), float((truth**2).sum())
    return 200.0 if noise == 0 else float(10 * np.log10(max(energy, 1e-30) / noise))


def _codes(real: Array, made: Array, quant: QuantType | None) -> float:
    """The largest distance in codes of the result's type; numbers beyond its ends are its ends."""
    truth, found = real.astype(np.float64), made.astype(np.float64)
    if quant is None:
        scale = 1e-4 if made.dtype.kind == "f" else 1.0
        return float(np.abs(truth - found).max(initial=0.0)) / scale
    scale, zero = quant.scale[0], quant.zero_point[0]
    truth = np.clip(truth, scale * (quant.lo - zero), scale * (quant.hi - zero))
    return float(np.abs(truth - found).max(initial=0.0)) / scale
