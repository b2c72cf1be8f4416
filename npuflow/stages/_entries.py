"""Explicit forms of what artifacts hold: graphs, and files of masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuflow.flow.artifact import Codec, Reader, Writer
from npuflow.ir.graph import Graph
from npuflow.ir.persist import load_graph, save_graph
from npuflow.tune.rounding.mask_file import packed, unpacked


class GraphEntry(Codec):
    """Its text, and beside it its constants."""

    @staticmethod
    def save(folder: Writer, name: str, value: Graph) -> None:
        save_graph(value, folder, name)

    @staticmethod
    def load(folder: Reader, name: str) -> Graph:
        return load_graph(folder, name)


class MaskEntry(Codec):
    """A file of its own, for other programs."""

    @staticmethod
    def save(folder: Writer, name: str, value: Mapping[str, Any]) -> None:
        folder.bytes(name, packed(value))

    @staticmethod
    def load(folder: Reader, name: str) -> Mapping[str, Any]:
        return unpacked(folder.bytes(name))
