"""Pictures and stored arrays as a model's inputs: the steps of a recipe, applied while running."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import DataError, RecipeError, UsageError
from npuflow.base.tables import read
from npuflow.input.data.config import InputSample, Preparation
from npuflow.input.data.read import prepared, prepared_pixels
from npuflow.input.data.steps import applied, split
from npuflow.ir.types import TensorType
from npuflow.runner.ports import Array, Port

Preprocess = bool | Sequence[Mapping[str, Any]] | Mapping[str, Any]


def preparation_of(wanted: Preprocess, stated: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What is to be done: nothing (False), what the program states (True), or steps as `[data]` has them."""
    if wanted is False:
        return None
    if wanted is True:
        if stated is None:
            raise UsageError(
                "the program states no preprocessing",
                because="its recipe has no [[data.steps]], or it is a model",
                hint='preprocess=[{"resize": [224, 224]}, {"normalize": {"scale": 0.0039}}] gives the steps',
                code="NF-RUN-009",
            )
        return stated
    table = dict(wanted) if isinstance(wanted, Mapping) else {"steps": [dict(step) for step in wanted]}
    found, faults = read(Preparation, table)
    if found is None or faults:
        raise RecipeError(faults) if faults else UsageError("no steps are given", code="NF-RUN-009")
    return found.plain()


class Prepare:
    """Samples before their steps -> samples that a model takes."""

    def __init__(self, preparation: Mapping[str, Any], ports: Sequence[Port]) -> None:
        self.preparation, self.ports = preparation, {port.name: port for port in ports}

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._one(item, self.ports[name]) if name in self.ports else item
            for name, item in sample.items()
        }

    def _one(self, item: Any, port: Port) -> Array:
        kind = TensorType(port.shape, port.dtype)
        if isinstance(item, str | os.PathLike):
            return prepared(Path(item), self.preparation, port.name, kind)
        if hasattr(item, "convert") and hasattr(item, "mode"):  # a picture of Pillow's
            item = item.convert("L" if item.mode in ("1", "L", "LA") else "RGB")
        array = np.asarray(item)
        if array.dtype == np.uint8 and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)):
            return prepared_pixels(array, self.preparation, port.name, kind)
        if array.dtype.kind not in "biuf":
            raise DataError(
                f'the input "{port.name}" is no picture and no array of numbers: {type(item).__name__}',
                hint="a path, a picture of Pillow's, or an array",
                code="NF-RUN-010",
            )
        first, rest = split(self.preparation["steps"])
        return InputSample({port.name: applied(array, first, port.name)}, tuple(rest)).feed(
            {port.name: kind}
        )[port.name]
