"""Labels that state classes, checked against the scores that they are held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuflow.base.errors import DataError

HINT = (
    "labels count the classes from 0, as the model's output does; several that are right are a list (in a "
    ".csv: 3|7)"
)


def accepted(labels: Sequence[Any], classes: int) -> list[tuple[int, ...]]:
    """The classes that are right for each sample. Labels must be whole numbers, and
    some of them must be classes."""
    several = [tuple(label) if isinstance(label, list | tuple) else (label,) for label in labels]
    odd = [(i, one) for i, ones in enumerate(several) for one in ones if not _whole(one)]
    if odd:
        where, first = odd[0]
        many = len({i for i, _ in odd})
        because = (
            f"{many} of {len(labels)} samples have others, the first is {first!r} (sample {where + 1} of "
            "the evaluation)"
        )
        raise DataError("labels must be class numbers", because=because, hint=HINT, code="NF-METRIC-004")
    found = [tuple(int(one) for one in ones) for ones in several]
    every = [one for ones in found for one in ones]
    if every and not any(0 <= one < classes for one in every):
        raise DataError(
            f"no label is a class of the output, which has {classes}",
            because=f"the labels go from {min(every)} to {max(every)}", hint=HINT, code="NF-METRIC-005",
        )
    return found


def _whole(label: Any) -> bool:
    return isinstance(label, int) or (isinstance(label, float) and label.is_integer())
