"""Explicit forms of what artifacts hold: graphs, and files of masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuflow.flow.artifact import Codec, Reader, Writer
from npuflow.ir.graph import Graph, merge_consts
from npuflow.ir.text import from_text, to_text
from npuflow.tune.rounding.mask_file import packed, unpacked


class GraphEntry(Codec):
    """Its text, and beside it its constants by digest."""

    @staticmethod
    def save(folder: Writer, name: str, value: Graph) -> None:
        consts = {digest.replace(":", "-"): value.consts[digest] for digest in sorted(value.consts)}
        folder.text(name, to_text(value))
        folder.arrays(f"{name}_consts", consts, True)

    @staticmethod
    def load(folder: Reader, name: str) -> Graph:
        arrays = folder.arrays(f"{name}_consts")
        consts = {key.replace("-", ":", 1): arrays[key] for key in arrays}
        return from_text(folder.text(name), merge_consts(consts))


class MaskEntry(Codec):
    """A file of its own, for other programs."""

    @staticmethod
    def save(folder: Writer, name: str, value: Mapping[str, Any]) -> None:
        folder.bytes(name, packed(value))

    @staticmethod
    def load(folder: Reader, name: str) -> Mapping[str, Any]:
        return unpacked(folder.bytes(name))
