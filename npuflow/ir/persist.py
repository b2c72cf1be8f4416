"""A graph in a folder: its text, and its constants by digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from npuflow.ir.graph import Graph, merge_consts
from npuflow.ir.text import from_text, op_name, to_text
from npuflow.ir.types import Array


class Folder(Protocol):
    """What is needed of a writer."""

    def text(self, name: str, text: str, /) -> None: ...
    def arrays(self, name: str, arrays: Mapping[str, Array], mapped: bool = False, /) -> None: ...


class Shelf(Protocol):
    """What is needed of a reader."""

    def text(self, name: str, /) -> str: ...
    def arrays(self, name: str, /) -> Mapping[str, Array]: ...


def save_graph(graph: Graph, folder: Folder, name: str = "graph") -> None:
    folder.text(name, to_text(graph))
    folder.arrays(
        f"{name}_consts", {_key(digest): graph.consts[digest] for digest in sorted(graph.consts)}, True
    )


def load_graph(folder: Shelf, name: str = "graph") -> Graph:
    arrays = folder.arrays(f"{name}_consts")
    return from_text(folder.text(name), merge_consts({_digest(key): arrays[key] for key in arrays}))


def operators(graph: Graph) -> tuple[str, ...]:
    """Names of the operator files that give the graph its meaning."""
    return tuple(sorted({op_name(node.op) for node in graph.nodes}))


def _key(digest: str) -> str:
    return digest.replace(":", "-")


def _digest(key: str) -> str:
    return key.replace("-", ":", 1)
