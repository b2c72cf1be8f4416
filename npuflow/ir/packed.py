"""A graph with its stated codes as one file (.npg): an npz archive of its text and its constants."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping

import numpy as np

from npuflow.base.errors import InputError, ModelError, NpuflowError
from npuflow.ir.graph import Graph
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import Array, QuantType, fields_of, quant_of

TEXT, STATED = "graph", "stated"


def pack(graph: Graph, stated: Mapping[str, QuantType]) -> bytes:
    """The bytes depend on graph and codes alone."""
    codes = json.dumps({name: fields_of(stated[name]) for name in sorted(stated)})
    texts = {TEXT: to_text(graph), STATED: codes}
    arrays = {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
    consts = {digest.replace(":", "-"): graph.consts[digest] for digest in sorted(graph.consts)}
    file = io.BytesIO()
    np.savez(file, **arrays, **consts)        # type: ignore[arg-type]
    return file.getvalue()


def unpack(data: bytes) -> tuple[Graph, dict[str, QuantType]]:
    """The graph and its codes; a ModelError for bytes that are none."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as held:
            texts = {name: bytes(held[name].tobytes()).decode() for name in (TEXT, STATED)}
            consts: dict[str, Array] = {
                name.replace("-", ":", 1): held[name] for name in held.files if name not in texts
            }
        codes = {name: quant_of(row) for name, row in json.loads(texts[STATED]).items()}
        graph = from_text(texts[TEXT], consts)
        graph_is_whole(graph)
        return graph, codes
    except NpuflowError as fault:
        raise damaged(fault.message) from fault
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as fault:
        raise damaged(f"{type(fault).__name__}: {fault}") from fault


def graph_is_whole(graph: Graph) -> None:
    """Every constant that the text names is there."""
    lost = [v.id for v in graph.values.values() if v.const is not None and v.const not in graph.consts]
    if lost:
        raise InputError(f'the constant "{lost[0]}" is missing', code="NF-MODEL-081")


def damaged(because: str) -> ModelError:
    return ModelError(
        "the file holds no network", because=because, hint="is it whole? npuflow.lang.save writes .npg files",
        code="NF-MODEL-082",
    )
