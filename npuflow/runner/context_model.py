"""Writes a program as an ONNX model: EPContext nodes for the NPU's parts, plain nodes for the host's.

A program without host parts is one node, whose context is the program's file. Else every stretch between
parts of the host is a program of its own; the first node's context holds them all (see
program/packing/package.py), and `partition_name` says which one a node is. Numbers that a stretch reads or
makes for the host are floats as the host has them: their conversions are in the stretch.

The node of a program whose commands follow an index (a language model's) reads the index too, beside the
numbers that the host makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from npuflow import __version__
from npuflow.base.errors import UsageError
from npuflow.hw.encode import Words
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import UNRANKED, TensorType
from npuflow.onnx.nodes import rename_inputs
from npuflow.onnx.run import EXPORT_OPSET, finished
from npuflow.onnx.types import from_proto, value_info
from npuflow.place.partition import segments
from npuflow.program.container import Program
from npuflow.program.graph_section import decode_graph, encode_graph
from npuflow.program.order import HALF
from npuflow.program.packing.package import packed
from npuflow.run.state import METADATA, RINGS
from npuflow.runner.feed import container
from npuflow.runner.programs import ports_of, source_names

if TYPE_CHECKING:
    import onnx

OPERATOR, DOMAIN, SOURCE = "EPContext", "com.microsoft", "NpuflowExecutionProvider"
PREPARATION = "npuflow.preparation"       # key of the model's metadata, beside that of its state
EMBEDDED = (1 << 31) - (1 << 24)          # bytes of a context that a model of protobuf's 2 GiB has room for
CONTEXT = "ep_cache_context"              # the attribute
DIGEST = "xxh3-128 of the context"
Step = Mapping[str, Any]


@dataclass(frozen=True)
class ContextModel:
    """`model`: the ONNX model, which holds the context or names its file; `context`: the bytes of the .npu;
    `parts`, `hosted`: how many nodes are the NPU's and the host's."""

    model: bytes
    context: bytes
    parts: int
    hosted: int


@dataclass(frozen=True)
class NpuPart:
    """Steps of a program that follow each other without the host; what they read of others, and what others
    read of them."""

    steps: tuple[Step, ...]
    reads: tuple[str, ...]
    gives: tuple[str, ...]


def context_model(program: Program, file: str = "") -> ContextModel:
    """The model of a program. `file`: the name of the context's file, beside the model; "": the model holds
    it. A UsageError where nothing of the program runs on the NPU, where its sequences have any length, where
    it has several parts and keeps no graph or follows an index, and where the context is too large for a
    model."""
    if not any(step["kind"] == "npu" for step in program.meta["steps"]):
        raise UsageError(
            "nothing of the program runs on the NPU", because="all of its steps are the host's",
            hint="npuflow inspect says why; the model as it is runs on onnxruntime", code="NF-USAGE-380",
        )
    if program.meta.get("lengths"):
        raise UsageError(
            "the program runs sequences of any length, and an EPContext node has one shape",
            hint="[model] dims with one length, or [model] shapes and FILE.npu#NETWORK", code="NF-USAGE-383",
        )
    graph = decode_graph(program.graph_bytes) if program.graph_bytes else None
    order = _with_index(program, graph)
    types = _types(program, [part for part in order if isinstance(part, NpuPart)])
    own = {f"npu{k}": part for k, part in enumerate(p for p in order if isinstance(p, NpuPart))}
    if len(order) == 1:
        programs = {"npu0": program}
    else:
        programs = {name: _program(program, part, graph, types) for name, part in own.items()}
    only = next(iter(programs.values()))
    context = only.to_bytes() if len(programs) == 1 else packed(programs).to_bytes()
    if not file and len(context) > EMBEDDED:
        raise UsageError(
            f"the context of {len(context)} bytes does not fit into an ONNX model",
            because="protobuf ends at 2 GiB", hint="--external writes it beside the model",
            code="NF-USAGE-381",
        )
    writer = _Writer(program, types, file.encode() or context, note(context), embedded=not file)
    for one in order:
        if isinstance(one, NpuPart):
            writer.part(one)
        else:
            writer.host(one)
    return ContextModel(writer.finished(), context, len(own), writer.hosted)


def note(context: bytes) -> str:
    """What the first node says of the context that it was written with, wherever that lies."""
    return f"{DIGEST} {xxhash.xxh3_128_hexdigest(context)}"


def _in_order(program: Program, graph: Graph | None) -> list[NpuPart | Step]:
    """Parts and steps of the host, as they run."""
    stretches, hosts = _stretches(program)
    running = sum(any(s["kind"] == "npu" for s in stretch) for stretch in stretches)
    if running > 1 and graph is None:
        raise UsageError(
            f"the program has {running} parts on the NPU and keeps no graph",
            because="commands alone do not say which integers go from part to part",
            hint="[program] graph = true, and build it again", code="NF-USAGE-382",
        )
    made, read = _ends(program, stretches, graph)
    wanted = {entry["name"] for entry in program.meta["outputs"]}
    found: list[NpuPart | Step] = []
    for k, stretch in enumerate(stretches):
        if stretch:
            elsewhere = {n for j, names in enumerate(read) if j != k for n in names}
            elsewhere |= wanted | {n for host in hosts for n in host["inputs"]}
            gives = tuple(name for name in made[k] if name in elsewhere)
            found.append(NpuPart(tuple(stretch), tuple(n for n in read[k] if n not in made[k]), gives))
        found += hosts[k : k + 1]
    return found


def _with_index(program: Program, graph: Graph | None) -> list[NpuPart | Step]:
    """Parts and steps in order; where commands follow an index, their only part reads it."""
    indices = dict.fromkeys(one["input"] for one in program.meta.get("indices", ()))
    count = sum(any(step["kind"] == "npu" for step in stretch) for stretch in _stretches(program)[0])
    if indices and count > 1:
        raise UsageError(
            f"the program's commands follow an index, and {count} parts of it run on the NPU",
            because="waits of commands at an index cannot be counted from the start of a part",
            hint="[program] index = false, and build it again", code="NF-USAGE-384",
        )
    return [
        replace(one, reads=(*one.reads, *(name for name in indices if name not in one.reads)))
        if isinstance(one, NpuPart) else one
        for one in _in_order(program, graph)
    ]


def _stretches(program: Program) -> tuple[list[list[Step]], list[Step]]:
    """Steps between those of the host, and these. Conversions in front of a step of the host that does not
    read them, with no command before them, are done behind it."""
    stretches: list[list[Step]] = [[]]
    hosts: list[Step] = []
    for step in program.meta["steps"]:
        if step["kind"] != "host":
            stretches[-1].append(step)
            continue
        waiting = stretches[-1]
        made = {one.get("out") for one in waiting}
        stay = any(one["kind"] == "npu" for one in waiting) or made & set(step["inputs"])
        hosts.append(step)
        stretches.append([] if stay else [*waiting])
        if not stay:
            waiting.clear()
    return stretches, hosts


def _ends(
    program: Program, stretches: Sequence[Sequence[Step]], graph: Graph | None
) -> tuple[list[dict[str, None]], list[dict[str, None]]]:
    """What every stretch makes and what it reads, in order."""
    parts = iter(() if graph is None else [s for s in segments(graph) if s.kind == "npu"])
    made, read = [], []
    for stretch in stretches:
        makes, reads = dict[str, None](), dict[str, None]()
        for step in stretch:
            if step["kind"] != "npu":
                reads[step["value"]] = makes[step["out"]] = None
            elif graph is not None:
                part = next(parts)
                reads |= dict.fromkeys(part.inputs)
                makes |= dict.fromkeys(o for node in part.nodes for o in node.outputs if o)
            else:
                given = {entry["name"] for entry in program.meta["inputs"]}
                reads |= dict.fromkeys(n for n in program.meta["values"] if n in given)
                makes |= dict.fromkeys(n for n in program.meta["values"] if n not in given)
        made.append(makes)
        read.append(reads)
    return made, read


def _types(program: Program, parts: Sequence[NpuPart]) -> dict[str, dict[str, Any]]:
    """What the metadata of a program says of every value that may be an end of a part: name, shape, dtype,
    quant."""
    import onnx

    meta = program.meta
    found: dict[str, dict[str, Any]] = {}
    for body in program.hosts:
        graph = onnx.load_model_from_string(bytes(body)).graph
        for end in (*graph.input, *graph.output):
            kind = from_proto(end.type)
            shape = None if kind.shape == UNRANKED else list(kind.shape)
            found[end.name] = {"name": end.name, "shape": shape, "dtype": kind.dtype, "quant": None}
    for name, value in meta["values"].items():
        found[name] = {"name": name, **{key: value.get(key) for key in ("shape", "dtype", "quant")}}
    found |= {entry["name"]: entry for end in ("inputs", "outputs") for entry in meta[end]}
    for step in (step for part in parts for step in part.steps):
        if step["kind"] != "npu" and step["out"] not in found:
            codes = step["kind"] == "quantize"
            dtype = container(step["quant"])[2] if codes else "float32"
            quant = step["quant"] if codes else None
            shape = found[step["value"]]["shape"]
            found[step["out"]] = {"name": step["out"], "shape": shape, "dtype": dtype, "quant": quant}
    return found


def _program(
    whole: Program, part: NpuPart, graph: Graph | None, types: Mapping[str, dict[str, Any]]
) -> Program:
    """The part as a program of its own: its commands are counted from its start, and so are their waits."""
    counts, steps = [0] * len(whole.commands), list[Step]()
    start: list[int] | None = None
    for step in part.steps:
        if step["kind"] == "npu":
            start = step["first"] if start is None else start
            number = sum(one["kind"] == "npu" for one in steps)
            steps.append({**step, "segment": number, "first": list(counts)})
            counts = [a + b for a, b in zip(counts, step["count"], strict=True)]
        else:
            steps.append(step)
    firsts = start or counts
    words = [_cut(w, a, n) for w, a, n in zip(whole.commands, firsts, counts, strict=True)]
    left = ("inputs", "outputs", "state", "rings", "steps", "memory", "plan", "preparation")
    meta = {
        **{key: value for key, value in whole.meta.items() if key not in left},
        "inputs": [types[name] for name in part.reads],
        "outputs": [types[name] for name in part.gives],
        "steps": steps,
    }
    kept = b"" if graph is None else encode_graph(_within(graph, part))
    if meta.get("indices"):               # of one part, whose commands are all that there are
        return replace(whole, meta=meta, hosts=(), tap_bytes=b"", graph_bytes=kept)
    return replace(
        whole, meta=meta, commands=tuple(words), hosts=(), tap_bytes=b"", graph_bytes=kept, stored=()
    )


def _cut(words: Words, first: int, count: int) -> Words:
    """Commands of one core from `first` on, with waits for what retired since then."""
    queues = (words[:, 0] >> 8 & 0xFF).astype(np.int64)
    before = np.bincount(queues[:first], minlength=WAIT_SLOTS)[:WAIT_SLOTS]
    made = words[first : first + count].copy()
    waits = np.ascontiguousarray(made[:, 2:HEADER_WORDS]).view("<u2").astype(np.int64) - before
    if len(words) < HALF:                 # counts are whole; else they go around, as their differences do
        waits = np.maximum(waits, 0)
    made[:, 2:HEADER_WORDS] = np.ascontiguousarray((waits & 0xFFFF).astype("<u2")).view("<u4")
    return made


def _within(graph: Graph, part: NpuPart) -> Graph:
    """The graph of a part alone."""
    outside = set(part.reads)
    nodes = tuple(node for node in graph.nodes if not outside & set(node.outputs))
    return prune(graph.replaced(inputs=part.reads, outputs=part.gives, nodes=nodes, state=()))


class _Writer:
    """The ONNX model in the making."""

    def __init__(
        self,
        program: Program,
        types: Mapping[str, dict[str, Any]],
        context: bytes,
        notes: str,
        *,
        embedded: bool,
    ) -> None:
        import onnx

        self.program, self.types, self.embedded = program, types, embedded
        self.context, self.notes = context, notes
        self.whole = onnx.ModelProto()
        self.graph = self.whole.graph
        self.graph.name = str(program.meta.get("name") or "program")
        self.opsets = {"": EXPORT_OPSET, DOMAIN: 1}
        self.hosted = self.parts = 0
        outputs = [entry["name"] for entry in program.meta["outputs"]]
        self.outputs = source_names(outputs)
        self.ends = set(self.outputs.values())

    def name(self, value: str) -> str:
        """A value in the model; an integer tensor inside may be called as its float twin is outside."""
        return self.outputs.get(value) or (f"{value}:codes" if value in self.ends else value)

    def part(self, part: NpuPart) -> None:
        """An EPContext node; the first one holds the context, or names its file."""
        import onnx

        attributes: dict[str, Any] = {
            "main_context": int(not self.parts),
            "embed_mode": int(self.embedded),
            "source": SOURCE,
            "ep_sdk_version": __version__,
            "hardware_architecture": self.program.target_fingerprint,
            "partition_name": f"npu{self.parts}",
        }
        if not self.parts:
            attributes |= {CONTEXT: self.context, "notes": self.notes}
        node = onnx.helper.make_node(
            OPERATOR, [self.name(n) for n in part.reads], [self.name(n) for n in part.gives],
            name=f"npu{self.parts}", domain=DOMAIN, **attributes,
        )
        self.graph.node.append(node)
        inner = [value for value in part.gives if value not in self.outputs]
        self.graph.value_info.extend(self.info(value) for value in inner)
        self.parts += 1

    def host(self, step: Step) -> None:
        """The nodes of a part of the host; names that only they use get its number in front."""
        import onnx

        model = onnx.load_model_from_string(self.program.hosts[step["model"]])
        prefix = f"host{step['model']}/"
        graph = onnx.compose.add_prefix_graph(
            model.graph, prefix, rename_inputs=False, rename_outputs=False, inplace=True
        )
        changed = {name: self.name(name) for name in (*step["inputs"], *step["outputs"])}
        for node in graph.node:
            rename_inputs(node, changed)
            node.output[:] = [changed.get(name, name) for name in node.output]
        self.hosted += len(graph.node)
        self.graph.node.extend(graph.node)
        self.graph.initializer.extend(graph.initializer)
        for end in graph.output:
            if end.name not in self.outputs:
                self.graph.value_info.add(name=changed[end.name], type=end.type)
        known = {(f.domain, f.name) for f in self.whole.functions}
        self.whole.functions.extend(f for f in model.functions if (f.domain, f.name) not in known)
        for one in model.opset_import:
            self.opsets[one.domain] = max(self.opsets.get(one.domain, 1), one.version)

    def info(self, value: str, dtype: str = "") -> onnx.ValueInfoProto:
        entry = self.types[value]
        shape = UNRANKED if entry["shape"] is None else tuple(entry["shape"])
        return value_info(self.name(value), TensorType(shape, dtype or entry["dtype"]))

    def finished(self) -> bytes:
        """The model's bytes."""
        meta = self.program.meta
        carried = {given for _, given in meta.get("state", ())}     # what an output is, which may be codes
        for port in ports_of(self.program)[0]:
            dtype = "string" if port.dtype == "str" else port.dtype
            self.graph.input.append(self.info(port.name, "" if port.name in carried else dtype))
        self.graph.output.extend(self.info(entry["name"]) for entry in meta["outputs"])
        model = finished(self.whole, self.opsets)
        for key, text in _metadata(self.program, self.outputs):
            model.metadata_props.add(key=key, value=text)
        return bytes(model.SerializeToString(deterministic=True))


def _metadata(program: Program, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What the model says of its state, as other exports do, and of how pictures become its inputs."""
    ports = {entry["name"]: entry for entry in program.meta["inputs"]}
    rows = []
    for output, given in program.meta.get("state", ()):
        quant = ports[given].get("quant")
        rows.append([names[output], given, quant["zero_point"][0] if quant else 0])
    if rows:
        yield METADATA, json.dumps(rows)
    if program.meta.get("rings"):
        yield RINGS, json.dumps(program.meta["rings"])
    if program.meta.get("preparation") is not None:
        yield PREPARATION, json.dumps(program.meta["preparation"], sort_keys=True)
