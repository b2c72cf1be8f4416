"""The backend: a partition of an exported program becomes an .npu program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec

import npuflow
from npuflow.apps.executorch.nodes import make_plain
from npuflow.apps.executorch.request import LoweringRequest
from npuflow.base.digest import digest, digest_array
from npuflow.base.errors import DataError, ModelError
from npuflow.frontends import Reading
from npuflow.frontends.torch.convert import packed
from npuflow.ir.graph import Graph
from npuflow.ir.packed import unpack
from npuflow.ir.types import Array, QuantType, span

REQUEST, SAMPLES = "npuflow", "npuflow_samples"   # compile specs: the request, the samples
DRAWN = 16                                # samples of a program whose ranges are all observed


@dataclass(frozen=True)
class BuildInputs:
    """What a build of the backend takes beside the partition: samples by node, the cache, processes."""

    samples: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    cache: str | Path | None = None
    jobs: int | None = 1


# by count and digest, which are all that a .pte holds of them; the partitioner keeps them alive
_BUILD_INPUTS: WeakValueDictionary[str, BuildInputs] = WeakValueDictionary()


def specs_of(request: LoweringRequest, given: BuildInputs) -> list[CompileSpec]:
    """The compile specs of partitions for this target, with these samples."""
    rows = {name: [digest_array(one) for one in held] for name, held in given.samples.items()}
    made = digest({"samples": rows, "cache": str(given.cache), "jobs": given.jobs})
    key = f"{max(map(len, rows.values()), default=0)} {made}"
    _BUILD_INPUTS[key] = given
    return [CompileSpec(REQUEST, request.text().encode()), CompileSpec(SAMPLES, key.encode())]


class NpuflowBackend(BackendDetails):  # type: ignore[misc]
    """Compiles partitions for a target. `NpuflowPartitioner` makes its compile specs."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """The bytes of the `.npu` of a partition. Its inputs and outputs are the partition's, in order."""
        found = {one.key: bytes(one.value).decode() for one in compile_specs}
        if REQUEST not in found:
            raise ModelError(
                "the partition names no target", because="NpuflowPartitioner writes it",
                hint='to_edge_transform_and_lower(program, partitioner=[NpuflowPartitioner("edge-4t")])',
                code="NF-MODEL-490",
            )
        request, key = LoweringRequest.of_text(found[REQUEST]), found.get(SAMPLES, "0")
        given = _BUILD_INPUTS.get(key)
        if given is None and not key.startswith("0"):
            raise ModelError(
                "the samples of the partition are not here",
                because="another process partitioned the program, or the partitioner was deleted",
                hint="partition and lower in one process, and keep the partitioner", code="NF-MODEL-492",
            )
        made = compiled(read(edge_program), request, given or BuildInputs())
        return PreprocessResult(processed_bytes=made.to_bytes())


def read(program: Any) -> Reading:
    """A partition as a graph, with the codes that PT2E states."""
    make_plain(program.graph.nodes)
    data, notes = packed(program)
    graph, stated = unpack(data)
    return Reading(graph, notes, stated)


def compiled(reading: Reading, request: LoweringRequest, given: BuildInputs) -> Any:
    """The program of a partition."""
    graph = reading.graph
    held: Mapping[str, Sequence[Array]] = {n: given.samples[n] for n in graph.inputs if n in given.samples}
    if len(held) < len(graph.inputs):
        held = drawn(graph, reading.stated)
    data = {name: np.stack(several) for name, several in held.items()}
    with TemporaryDirectory() as scratch:   # products of a build: the .pte has the program
        build = npuflow.compile(
            reading, request.named, data=data, cache=given.cache, out=scratch, jobs=given.jobs,
            until="codegen", **request.build_tables(bool(reading.stated)),
        )
        program = build.program
    ports = tuple(port["name"] for port in program.meta["inputs"]), tuple(
        port["name"] for port in program.meta["outputs"]
    )
    if ports != (graph.inputs, graph.outputs):
        raise ModelError(
            "the program has other inputs or outputs than the partition",
            because=f"{', '.join(ports[0])} -> {', '.join(ports[1])}", code="NF-MODEL-491",
        )
    return program


def drawn(graph: Graph, stated: Mapping[str, Any]) -> dict[str, list[Array]]:
    """Samples within the ranges that the program states: what PT2E observed, evenly; 0 for whole numbers."""
    rng = np.random.default_rng(0)
    found: dict[str, list[Array]] = {}
    for name in graph.inputs:
        kind = graph.type(name)
        quant = stated.get(name)
        low, high = span(quant) if isinstance(quant, QuantType) else (-1.0, 1.0)
        whole = np.dtype(kind.dtype).kind != "f"
        found[name] = [
            np.zeros(kind.shape, kind.dtype) if whole
            else rng.uniform(low, high, kind.shape).astype(kind.dtype)
            for _ in range(DRAWN)
        ]
    return found


def observed_inputs(
    program: Any, known: Mapping[Any, Any], names: Sequence[str], samples: Sequence[Any]
) -> dict[str, list[Array]]:
    """Values of nodes of an exported program while it runs samples, by the nodes' names. `known`: the
    program's own tensors, by placeholder."""
    found: dict[str, list[Array]] = {name: [] for name in names}

    class Watched(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            if n.name in found and isinstance(value, torch.Tensor):
                found[n.name].append(value.detach().cpu().numpy().copy())
            return value

    places = [node for node in program.graph.nodes if node.op == "placeholder"]
    free = sum(node not in known for node in places)
    with torch.no_grad():
        for sample in samples:
            given = torch.utils._pytree.tree_leaves(sample)   # inputs may be tuples of tensors
            if len(given) != free:
                raise DataError(
                    f"a sample has {len(given)} inputs, the program {free}",
                    hint="samples=[(input, ...), ...], in the program's order", code="NF-DATA-272",
                )
            rest = iter(given)
            args = [known[node] if node in known else next(rest) for node in places]
            Watched(program.graph_module).run(*args)
    return found
