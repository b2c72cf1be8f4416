"""NaN in inputs of what computes with integers, which have none: said once, or refused."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import numpy as np

from npuflow.base.errors import DataError, UsageError
from npuflow.runner.ports import Port

Nan = Literal["warn", "refuse", "allow"]
FLOATS = ("float16", "float32", "float64")


def by_warning(text: str) -> None:
    """Python's own warning, at the line of the caller's that runs the sample."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("npuflow."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


class NanCheck:
    """Looks for NaN in samples. "warn": of every input that loses NaN it is told once; "refuse": NaN in any
    input is a DataError (NF-DATA-230); "allow": nothing is looked for. UsageError (NF-RUN-051) for others."""

    def __init__(
        self, ports: Iterable[Port], nan: Nan = "warn", tell: Callable[[str], None] = by_warning,
        option: str = 'nan="refuse"',
    ) -> None:
        if nan not in get_args(Nan):
            raise UsageError(
                f'nan="{nan}" is not known', hint=", ".join(map(repr, get_args(Nan))), code="NF-RUN-051"
            )
        self.nan, self.tell, self.option = nan, tell, option
        looked = [p for p in ports if p.dtype in FLOATS and (nan == "refuse" or p.loses_nan)]
        self._left = {port.name for port in looked if nan != "allow"}

    def __call__(self, sample: Mapping[str, Any]) -> None:
        """Look at a sample; its arrays may be whatever numpy reads."""
        for name in self._left & sample.keys():
            try:
                array = np.asarray(sample[name])
            except ValueError:
                continue  # ragged rows, which are refused as such
            # the smallest number is NaN if any is: no array of truth values is made for those without
            if array.dtype.kind != "f" or not np.isnan(array.min(initial=0)):
                continue
            held = f'the input "{name}" holds NaN in {np.isnan(array).sum()} of {array.size} numbers'
            if self.nan == "refuse":
                raise DataError(
                    held, because="NaN is refused", hint="replace it before the run", code="NF-DATA-230"
                )
            self._left = self._left - {name}
            remedy = f" ({self.option} makes it an error)" if self.option else ""
            self.tell(f"{held}: integers have no NaN, the results are those of ordinary numbers{remedy}")
