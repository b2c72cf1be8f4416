"""Runs an ONNX model with EPContext nodes: contexts as programs, all other nodes on onnxruntime."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow import __version__
from npuflow.base.errors import ModelError, Where
from npuflow.base.wording import first_line
from npuflow.input.data.lengths import need_indices
from npuflow.ir.types import UNRANKED
from npuflow.onnx.nodes import captured
from npuflow.onnx.session import opened
from npuflow.onnx.types import from_proto
from npuflow.program.container import Program
from npuflow.program.packing.package import Package, of_bytes
from npuflow.run.driver import RunPart, driven
from npuflow.run.state import METADATA, Pairs, rings_of
from npuflow.runner.backend import Dump, Exact
from npuflow.runner.context_model import CONTEXT, DIGEST, DOMAIN, OPERATOR, PREPARATION, SOURCE, note
from npuflow.runner.feed import fed, start_of
from npuflow.runner.ports import Array, Port, Sample
from npuflow.runner.programs import SimulatedProgram, Tensors, ports_of

if TYPE_CHECKING:
    import onnx

Batch = list[Array]  # of every sample
AGAIN = "npuflow export epcontext writes the model again"


def context_model_of(source: Path | bytes) -> onnx.ModelProto | None:
    """The ONNX model of a file or of bytes where it has EPContext nodes."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not _mentioned(source):
        return None
    try:
        if isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        else:
            model = onnx.load(str(source))
    except (DecodeError, OSError, ValueError):
        return None  # whoever runs it reports it
    return model if any(map(is_context, model.graph.node)) else None


def is_context(node: onnx.NodeProto) -> bool:
    return (node.op_type, node.domain) == (OPERATOR, DOMAIN)


def _mentioned(source: Path | bytes) -> bool:
    if isinstance(source, bytes):
        return OPERATOR.encode() in source
    if not source.stat().st_size:
        return False
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        return held.find(OPERATOR.encode()) >= 0


def programs_of(model: onnx.ModelProto, path: Path | None) -> dict[int, Program]:
    """The program of every EPContext node, by its place among the nodes. `path`: of the model, beside which
    contexts lie. A ModelError names the node, and says what is wrong with its context."""
    held: dict[str, Program | Package] = {}
    found: dict[int, Program] = {}
    nodes = {i: node for i, node in enumerate(model.graph.node) if is_context(node)}
    stated = {i: _attributes(node) for i, node in nodes.items()}
    for i, node in nodes.items():
        if (source := stated[i].get("source", "")) != SOURCE:
            raise ModelError(
                f'the EPContext node "{node.name}" is of {source or "no source"}, not of {SOURCE}',
                where=_where(path, node), because="another execution provider wrote it, and runs it",
                hint=f"onnxruntime with {source or 'that provider'}; npuflow runs what `npuflow export "
                "epcontext` writes", code="NF-PROGRAM-130",
            )
        if stated[i].get("main_context", 1):
            held[node.name] = _context(stated[i], path, node)
    for i, node in nodes.items():
        mine = {node.name: held[node.name]} if node.name in held else held
        found[i] = _program(stated[i], mine, _where(path, node), node)
    return found


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Numbers, texts, and the bytes of the context."""
    found = {a.name: a.i if a.type == a.INT else a.s for a in node.attribute}
    return {
        name: one.decode(errors="replace") if isinstance(one, bytes) and name != CONTEXT else one
        for name, one in found.items()
    }


def _where(path: Path | None, node: onnx.NodeProto) -> Where:
    return Where(file=None if path is None else str(path), node=node.name)


def _context(stated: Mapping[str, Any], path: Path | None, node: onnx.NodeProto) -> Program | Package:
    """What the context of a node holds, checked against what the node says of it."""
    body, where = stated.get(CONTEXT, b""), _where(path, node)
    if not stated.get("embed_mode", 1):
        body = _beside(body.decode(errors="replace"), path, where)
    wrote = stated.get("ep_sdk_version", "")
    other = f"npuflow {wrote} wrote it, this is {__version__}; " if wrote != __version__ else ""
    said = stated.get("notes", "")
    try:
        context = of_bytes(body)
    except ModelError as error:
        raise ModelError(
            f'the context of the EPContext node "{node.name}" cannot be read', where=where,
            because=f"{other}{error.message}", hint=AGAIN, code="NF-PROGRAM-131",
        ) from error
    if said.startswith(DIGEST) and said != note(body):
        raise ModelError(
            f'the context of the EPContext node "{node.name}" is not the one it was written with',
            where=where, because="its digest is another: a file of another export has its name",
            hint=f"put the context back beside the model; {AGAIN}", code="NF-PROGRAM-132",
        )
    return context


def _beside(name: str, path: Path | None, where: Where) -> bytes:
    """A context in a file of its own, whose name is relative to the model's folder and stays in it."""
    if path is None:
        because = f'"{name}" lies beside the model, and bytes lie nowhere'
    elif not name or Path(name).is_absolute() or ".." in Path(name).parts:
        because = f'"{name}" is no path within the folder of the model'
    else:
        try:
            return (path.parent / name).read_bytes()
        except OSError as error:
            because = f'"{name}": {error.strerror or error}'
    raise ModelError(
        "the context of the model cannot be found", where=where, because=because,
        hint="open the model by its path, with the context beside it; or export it without --external",
        code="NF-PROGRAM-133",
    )


def _program(
    stated: Mapping[str, Any], held: Mapping[str, Program | Package], where: Where, node: onnx.NodeProto
) -> Program:
    """The program of a node among the contexts that it may be in."""
    name = stated.get("partition_name", "")
    known = {
        key: one
        for context in held.values()
        for key, one in (context.networks if isinstance(context, Package) else {name: context}).items()
    }
    program = known.get(name)
    if program is None:
        raise ModelError(
            f'no context has the partition "{name}" of the EPContext node "{node.name}"', where=where,
            because=f"partitions: {', '.join(known) or 'none'}", hint=AGAIN, code="NF-PROGRAM-134",
        )
    ends = len(program.meta["inputs"]), len(program.meta["outputs"])
    target = stated.get("hardware_architecture", program.target_fingerprint)
    if (len(node.input), len(node.output)) != ends or target != program.target_fingerprint:
        raise ModelError(
            f'the EPContext node "{node.name}" does not fit its context', where=where,
            because=f"it has {len(node.input)} inputs and {len(node.output)} outputs for the target "
            f"{target[:8]}, its program {ends[0]} and {ends[1]} for {program.target_fingerprint[:8]}",
            hint=AGAIN, code="NF-PROGRAM-135",
        )
    return program


class ContextBackend:
    """A model with EPContext nodes. `exact`: what computes their programs; None: their graphs where all keep
    one."""

    def __init__(
        self,
        model: onnx.ModelProto,
        path: Path | None,
        *,
        exact: Exact | None = None,
        batch: int = 8,
        threads: int = 1,
    ) -> None:
        programs = programs_of(model, path)
        self.programs = tuple(programs.values())
        graphs = all(program.graph_bytes for program in self.programs)
        self.exact: Exact = exact or ("executor" if graphs else "simulator")
        self.name = model.graph.name or "model"
        self.notes: tuple[str, ...] = ()
        kind = Tensors if self.exact == "executor" else SimulatedProgram
        backends = {i: kind(one, batch, raw=True) for i, one in programs.items()}
        self._parts = _Cut(model, backends, threads, where=None if path is None else str(path)).parts()
        self._indices: list[Mapping[str, Any]] = []
        self._ends(model, [(model.graph.node[i], backend) for i, backend in backends.items()])

    def _ends(self, model: onnx.ModelProto, nodes: Sequence[tuple[onnx.NodeProto, Any]]) -> None:
        """Ports, as the programs that read them have them, and what the model's metadata says."""
        constants = {one.name for one in model.graph.initializer}
        from onnx import numpy_helper

        direct = {end.name for end in model.graph.output} | {n for node, _ in nodes for n in node.input}
        self._constants = {
            one.name: numpy_helper.to_array(one) for one in model.graph.initializer if one.name in direct
        }
        own = {}
        for node, backend in nodes:
            for name, port, entry in zip(
                node.input, ports_of(backend.program)[0], backend.program.meta["inputs"], strict=True
            ):
                own[name] = port, {**entry, "name": name}
                indices = backend.program.meta.get("indices", ())
                self._indices += [{**one, "input": name} for one in indices if one["input"] == entry["name"]]
        self._entries, inputs = [], []
        for end in model.graph.input:
            if end.name in constants:
                continue
            port = _port(end)
            entry = {"name": end.name, "shape": port.shape, "dtype": from_proto(end.type).dtype}
            port, entry = own.get(end.name, (port, entry))
            inputs.append(port)
            self._entries.append(entry)
        self.inputs = tuple(inputs)
        self.outputs = tuple(map(_port, model.graph.output))
        said = {one.key: one.value for one in model.metadata_props}
        self.preparation: Mapping[str, Any] | None = json.loads(said.get(PREPARATION, "null"))
        rows = json.loads(said.get(METADATA, "[]"))
        self.state: Pairs = tuple((output, given) for output, given, _ in rows)
        self.rings = rings_of(said)
        self.start: Mapping[str, Array] = start_of({"inputs": self._entries, "state": self.state})

    def fed(self, sample: Sample) -> dict[str, Array]:
        need_indices(self._indices, sample)
        return fed(self._entries, sample)

    def run(self, samples: Sequence[Sample], dump: Dump) -> list[dict[str, Array]]:
        dump = dump if isinstance(dump, bool) else tuple(dump)
        names = {port.name for port in self.outputs} | set(() if isinstance(dump, bool) else dump)
        if not samples:
            return []
        given = {name: [sample[name] for sample in samples] for name in samples[0]}
        given |= {name: [array] * len(samples) for name, array in self._constants.items()}
        parts = [RunPart(reads, partial(run, dump, len(samples))) for reads, run in self._parts]
        found = driven(parts, given, lambda name: dump is True or name in names)
        return [{name: arrays[b] for name, arrays in found.items()} for b in range(len(samples))]


def _port(end: onnx.ValueInfoProto) -> Port:
    kind = from_proto(end.type)
    dtype = "str" if kind.dtype == "string" else kind.dtype
    ranked = kind.shape != UNRANKED
    return Port(end.name, dtype, tuple(kind.shape) if ranked else (), ranked=ranked)


class _Cut:
    """A model cut into its EPContext nodes and the stretches of other nodes between them."""

    def __init__(
        self,
        model: onnx.ModelProto,
        backends: Mapping[int, Any],
        threads: int,
        where: str | None,
    ) -> None:
        import onnx

        self.model, self.backends, self.threads, self.where = model, backends, threads, where
        self.stored = {one.name: one for one in model.graph.initializer}
        inferred = onnx.shape_inference.infer_shapes(model).graph
        ends = (*inferred.input, *inferred.value_info, *inferred.output)
        self.types = {end.name: end.type for end in ends}

    def parts(self) -> list[tuple[tuple[str, ...], Any]]:
        """What every part reads, and what runs it, in an order that may run."""
        nodes = self.model.graph.node
        ready = {end.name for end in self.model.graph.input} | set(self.stored)
        waiting, groups, side, idle = list(range(len(nodes))), list[list[int]](), False, 0
        while waiting and idle < 2:
            taken, left = list[int](), list[int]()
            for i in waiting:
                if (i in self.backends) is side and ready.issuperset(_reads(nodes[i])):
                    ready.update(nodes[i].output)
                    taken.append(i)
                else:
                    left.append(i)
            groups += [[i] for i in taken] if side else [taken] if taken else []
            waiting, side, idle = left, not side, 0 if taken else idle + 1
        if waiting:
            node = nodes[waiting[0]]
            raise ModelError(
                f'the node "{node.name}" waits for a value that nothing makes',
                where=Where(file=self.where, node=node.name),
                because=", ".join(name for name in _reads(node) if name not in ready), hint=AGAIN,
                code="NF-PROGRAM-136",
            )
        return [self._part(group, groups) for group in groups]

    def _part(self, group: Sequence[int], groups: Sequence[Sequence[int]]) -> tuple[tuple[str, ...], Any]:
        every = self.model.graph.node
        nodes = [every[i] for i in group]
        if group[0] in self.backends:
            (node,) = nodes
            return tuple(node.input), partial(_on_npu, self.backends[group[0]], node.input, node.output)
        known = {name for node in nodes for name in node.output if name} | set(self.stored)
        read = dict.fromkeys(n for node in nodes for n in _reads(node) if n not in known)
        wanted = {end.name for end in self.model.graph.output}
        wanted |= {n for other in groups if other is not group for i in other for n in _reads(every[i])}
        gives = [name for node in nodes for name in node.output if name in wanted]
        session = self._session(nodes, list(read), gives)
        return tuple(read), partial(_on_host, session, list(read), gives)

    def _session(self, group: Sequence[onnx.NodeProto], reads: list[str], gives: list[str]) -> Any:
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        graph = model.graph
        for part in ("node", "initializer", "input", "output", "value_info"):
            graph.ClearField(part)
        graph.node.extend(group)
        stored = dict.fromkeys(n for node in group for n in _reads(node) if n in self.stored)
        graph.initializer.extend(self.stored[name] for name in stored)
        graph.input.extend(onnx.ValueInfoProto(name=name, type=self.types.get(name)) for name in reads)
        graph.output.extend(onnx.ValueInfoProto(name=name, type=self.types.get(name)) for name in gives)
        try:
            return opened(model.SerializeToString(), threads=self.threads)
        except Exception as error:  # onnxruntime's errors share no public base class
            raise ModelError(
                "the host's part of the model does not load", because=first_line(error),
                where=Where(file=self.where, node=group[0].name), code="NF-PROGRAM-137",
            ) from error


def _reads(node: onnx.NodeProto) -> list[str]:
    return [name for name in (*node.input, *captured(node)) if name]


def _on_npu(
    backend: Any, reads: Sequence[str], gives: Sequence[str], dump: Any, count: int,
    values: Mapping[str, Batch],
) -> dict[str, Batch]:
    """A context's program on all samples."""
    meta = backend.program.meta
    own = [entry["name"] for entry in meta["inputs"]]
    rows = [
        {one: values[name][b] for one, name in zip(own, reads, strict=True)}
        for b in range(count)
    ]
    made = backend.run(rows, dump)
    names = dict(zip((entry["name"] for entry in meta["outputs"]), gives, strict=True))
    return {names.get(key, key): [row[key] for row in made] for key in made[0]}


def _on_host(
    session: Any, reads: Sequence[str], gives: Sequence[str], dump: Any, count: int,
    values: Mapping[str, Batch],
) -> dict[str, Batch]:
    """Nodes of the host on one sample after the other."""
    rows = []
    for b in range(count):
        try:
            rows.append(session.run(gives, {name: values[name][b] for name in reads}))
        except Exception as error:  # onnxruntime's errors share no public base class
            raise ModelError(
                "the host's part of the model failed", because=first_line(error), code="NF-PROGRAM-138",
            ) from error
    return {name: [row[k] for row in rows] for k, name in enumerate(gives)}


