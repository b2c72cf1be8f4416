"""The programs of all shapes of [model] shapes as one file of shared constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, log, stage
from npuflow.program.packing.package import Package, load_package, packed
from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.model import ModelTable, shape_name
from npuflow.stages.shape_programs import ShapedProgram

FILE = "model.npu"


@dataclass(frozen=True)
class PackedShapes(Artifact):
    """Programs by shape, in memory or as the file they were stored in; `apart`: bytes of a file for each."""

    source: Package | Path
    apart: int

    @cached_property
    def package(self) -> Package:
        return self.source if isinstance(self.source, Package) else load_package(self.source)

    def save(self, folder: Writer) -> None:
        folder.bytes(FILE, self.package.to_bytes())
        folder.json("apart", self.apart)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.path(FILE), folder.json("apart"))

    def products(self) -> dict[str, str]:
        return {"program": FILE}

    def summary(self) -> dict[str, Any]:
        networks = self.package.networks
        return {"shapes": len(networks), "bytes": len(self.package.to_bytes()), "apart": self.apart}


def listing(model: ModelTable) -> Listing:
    """The shapes' names, in the recipe's order."""
    return {"shapes": Item((), [shape_name(shape) for shape in model.shapes])}


@stage(files=listing, when="model.shapes", replaces=("codegen",))
def package(compiled: CompiledProgram, programs: Items[ShapedProgram], files: Files) -> PackedShapes:
    """Put the programs side by side: equal constants once, activations in the same place."""
    names = files["shapes"].detail
    held = dict(zip(names, (compiled.program, *(one.program for one in programs.values())), strict=True))
    made = packed(held)
    apart = [len(one.to_bytes()) for one in held.values()]
    log(f"{len(made.to_bytes())} bytes; files of their own {sum(apart)}: {', '.join(map(str, apart))}")
    log(
        f"{len(made.const)} bytes of constants in external memory, apart "
        f"{sum(len(one.const) for one in held.values())}"
    )
    return PackedShapes(made, sum(apart))
