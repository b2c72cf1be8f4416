"""Share of samples where the greatest output is the float model's; needs no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npuflow.ir.types import Array
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import is_ragged, judged_name


@METRICS.entry
@dataclass(frozen=True)
class Agreement(Metric):
    """`output` names the scores (default: the first whose shape does not depend on the data)."""

    needs_labels: ClassVar[bool] = False
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        name = judged_name(outputs, self.output)
        if is_ragged(outputs[name]):
            return {
                "agreement": float(
                    np.mean([_same(*pair) for pair in zip(outputs[name], reference[name], strict=True)])
                )
            }
        mine, theirs = (o[name].reshape(len(o[name]), -1).argmax(1) for o in (outputs, reference))
        return {"agreement": float(np.mean(mine == theirs))}


def _same(mine: Array, theirs: Array) -> bool:
    """Of an output whose shape depends on the data."""
    return mine.shape == theirs.shape and (not mine.size or int(mine.argmax()) == int(theirs.argmax()))
