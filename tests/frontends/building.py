"""Builds of small models from the file to the report, in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from npuflow import build
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache

Arrays = Mapping[str, np.ndarray]


def model(text: str, opset: int = 18, weights: Arrays | None = None, extra: str = "") -> onnx.ModelProto:
    """A model from its text; `extra`: further operator sets."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{extra}]> {text}')
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()
    )
    return proto


@dataclass(frozen=True)
class Built:
    """What a build made, by step."""

    folder: Path
    outputs: Mapping[str, str]

    def artifact(self, step: str, kind: type) -> Any:
        recipe = self.folder / "net.toml"
        return open_cache(load(recipe), Settings(cache=self.folder / "cache")).load(self.outputs[step], kind)

    def product(self, suffix: str) -> Path:
        return next(p for p in (self.folder / "out").rglob(f"*{suffix}"))


def built(
    folder: Path, proto: onnx.ModelProto, data: Arrays, more: str = "", until: str | None = None, *,
    target: str = "edge-4t",
) -> Built:
    """`data`: samples along the first axis, which calibrate and judge. `more`:
    further lines of the recipe."""
    onnx.save(proto, str(folder / "net.onnx"))
    np.savez(folder / "data.npz", **data)
    tables = '[model]\npath = "net.onnx"\n[data]\nsource = "data.npz"\n'
    (folder / "net.toml").write_text(f'target = "{target}"\n{tables}{more}')
    result = build(folder / "net.toml", cache=folder / "cache", out=folder / "out", until=until)
    return Built(folder, result.outputs)
