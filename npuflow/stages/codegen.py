"""The program: commands, packed constants and metadata in one .npu file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from npuflow.base.errors import FitError
from npuflow.base.files import ByteCount
from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import log, stage
from npuflow.input.data.config import Preparation
from npuflow.ir.graph import Graph
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program, load_program
from npuflow.program.copies import data_parallel
from npuflow.program.graph_section import encode_graph, graph_parts
from npuflow.stages._targets import WholeTarget
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiling import Tiled, planned_by

FILE = "model.npu"


@dataclass(frozen=True)
class CompiledProgram(Artifact):
    """A program, in memory or as the file it was stored in. `graph`: what one in memory keeps of its network,
    which is written without a copy of the weights."""

    source: Program | Path
    graph: Graph | None = None

    @cached_property
    def program(self) -> Program:
        if not isinstance(self.source, Program):
            return load_program(self.source)
        return self.source if self.graph is None else replace(
            self.source, graph_bytes=encode_graph(self.graph)
        )

    @property
    def size(self) -> int:
        """Bytes of its file."""
        if not isinstance(self.source, Program):
            return self.source.stat().st_size
        counted = ByteCount()
        self.source.write(counted, [] if self.graph is None else graph_parts(self.graph))
        return counted.size

    def save(self, folder: Writer) -> None:
        if not isinstance(self.source, Program):
            folder.file(FILE, self.source)
            return
        with folder.stream(FILE) as sink:
            self.source.write(sink, [] if self.graph is None else graph_parts(self.graph))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.path(FILE))

    def products(self) -> dict[str, str]:
        return {"program": FILE}

    def summary(self) -> dict[str, Any]:
        made = self.source if isinstance(self.source, Program) else self.program
        meta, commands = made.meta, sum(len(w) for w in made.commands)
        return {"commands": commands, "data_bytes": meta["data_bytes"], "const_bytes": meta["const_bytes"]}


@dataclass(frozen=True)
class ProgramTable(Config, table="program"):
    """What the program's file holds beside commands and constants."""

    graph: bool = True
    """Keep the network's graph too, so that `npuflow run`, `npuflow serve` and `npuflow.Runner` run the
    program on whole tensors, many times faster than its commands. It adds the weights once more; false for a
    file that only goes to a device."""
    index: bool = True
    """Let the commands of a language model read as much of its cache as holds tokens, and write the new rows
    alone: both follow the position, which they read from memory. false: all of the cache in every run."""


def _one_at_a_time(graph: Graph) -> None:
    """Inferences that run at the same time have one number of steps."""
    for length in graph.lengths:
        raise FitError(
            f"{length.dim} cannot be free where cores run an inference each",
            because="those that run at the same time run as many steps",
            hint=f'[model] dims {length.dim} = {length.most}: one length; or compute.cores_mode = "all"',
            code="NF-FIT-016",
        )


@stage(minor=True)
def codegen(
    quantized: Quantized,
    tiled: Tiled,
    whole: WholeTarget,
    preparation: Preparation,
    program: ProgramTable,
) -> CompiledProgram:
    """Commands for every tile, with the fewest waits, and external memory by lifetimes."""
    compute = whole.planned.compute
    target = replace(whole.target, compute=compute.of_one_inference)
    graph = planned_by(tiled.plan, quantized)
    made = generate(graph, tiled.plan, target, indexed=program.index and compute.instances == 1)
    for one in made.meta.get("indices", ()):
        follow = f"commands follow {one['input']}, 0 to {one['most']}"
        if one["attended"]:
            log(f"{follow}: caches are read as far as they are filled")
        elif "modulo" in one:
            log(f"{follow}: of rings of {one['modulo']} rows one is written")
    if compute.instances > 1:
        _one_at_a_time(graph)
        made = data_parallel(made, compute.instances)
        log(f"{compute.instances} cores run it at the same time, an inference each")
    found = made.meta["memory"]
    commands = sum(len(w) for w in made.commands)
    log(f"{commands} commands, {len(made.const)} bytes of constants ({found['const_given']} asked for)")
    log(
        f"{made.meta['data_bytes']} bytes of activations in external memory, at least {found['bound']} "
        "are live at once"
    )
    log(
        f"{found['local_used']} of {target.memory.local_bytes} bytes of local memory, at least "
        f"{found['local_bound']} are live at once"
    )
    if preparation.steps:
        made = replace(made, meta={**made.meta, "preparation": preparation.plain()})
    if quantized.pixels:
        pixels = {name: {"pixels": one.plain()} for name, one in quantized.pixels.items()}
        inputs = [{**entry, **pixels.get(entry["name"], {})} for entry in made.meta["inputs"]]
        made = replace(made, meta={**made.meta, "inputs": inputs})
    return CompiledProgram(made, quantized.graph if program.graph else None)
