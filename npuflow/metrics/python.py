"""A metric of the user's own: a function in a file beside the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from traceback import extract_tb
from typing import Any

from npuflow.base.errors import DataError
from npuflow.base.tables import FilePath
from npuflow.metrics import METRICS, Metric, Outputs


@METRICS.entry
@dataclass(frozen=True)
class PythonMetric(Metric):
    """`function = "python:score.py:words"`, or `"python:module:words"`: takes the outputs by name (first axis
    the samples), the float model's likewise, and the labels; gives a number, or figures by name. The first
    is watched, higher being better. The bytes of its file are part of the key. `labels = false`: samples may
    lack labels, and the function gets None."""

    function: FilePath | None = None
    labels: bool = True

    @property
    def needs_labels(self) -> bool:  # type: ignore[override]
        self.named()
        return self.labels

    def named(self) -> FilePath:
        """The function's address."""
        if self.function is None or not self.function.function:
            raise DataError(
                'the metric "python" needs a function',
                hint='[evaluate.python] function = "python:score.py:words"',
                code="NF-METRIC-030",
            )
        return self.function

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        at = self.named()
        made = at.called()
        try:
            found = made(dict(outputs), dict(reference), labels)
        except Exception as fault:  # the boundary to the user's own code
            place = extract_tb(fault.__traceback__)[-1]
            raise DataError(
                f"the metric {at.text} fails",
                because=f"{type(fault).__name__}: {fault} ({place.filename}, line {place.lineno})",
                code="NF-METRIC-031",
            ) from fault
        figures = found if isinstance(found, Mapping) else {at.function: found}
        if not figures or not all(isinstance(k, str) and isinstance(v, Real) for k, v in figures.items()):
            raise DataError(
                f"the metric {at.text} gives no figures",
                because=f"it returns {type(found).__name__}: {str(found)[:80]}",
                hint="return a number, or a dictionary of names and numbers",
                code="NF-METRIC-032",
            )
        return {name: float(value) for name, value in figures.items()}
