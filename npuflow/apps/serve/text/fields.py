"""Fields of a request's JSON object, each checked as it is read; a fault names its field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.base.errors import meant


class CompletionError(Exception):
    """What is wrong with a request for text. `param`: the field; `status`: of HTTP; `code`: the fault's name
    for programs."""

    def __init__(
        self, message: str, param: str | None = None, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


class Fields:
    """A request's object. A field that is null counts as left out."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = {name: value for name, value in table.items() if value is not None}

    def only(self, known: Sequence[str]) -> None:
        """CompletionError for a field that nothing knows."""
        for name in self.table:
            if name not in known:
                near = f"; {near} is one" if (near := meant(name, known)) else ""
                raise CompletionError(f'"{name}" is no parameter{near}', name)

    def neutral(self, values: Mapping[str, Sequence[Any]]) -> None:
        """CompletionError for a field that asks for what the server does not do."""
        for name, allowed in values.items():
            value = self.table.get(name)
            same = [type(value) is type(one) and value == one for one in allowed]
            if value is not None and not any(same):
                usual = f", or give {json.dumps(allowed[0])}" if allowed else ""
                raise CompletionError(f'"{name}" is not supported: leave it out{usual}', name)

    def text(self, name: str) -> str:
        value = self.table.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def flag(self, name: str) -> bool:
        value = self.table.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def number(self, name: str, usual: float, low: float, high: float) -> float:
        value = self.table.get(name, usual)
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise self._wrong(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def whole(self, name: str, low: int, high: int | None = None) -> int | None:
        value = self.table.get(name)
        if value is None:
            return None
        if type(value) is not int or value < low or (high is not None and value > high):
            limit = f"at least {low}" if high is None else f"from {low} to {high}"
            raise self._wrong(name, f"a whole number, {limit}")
        return value

    def object(self, name: str) -> Fields | None:
        value = self.table.get(name)
        if value is not None and not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return None if value is None else Fields(value)

    def strings(self, name: str, most: int) -> tuple[str, ...]:
        """One string or a list of them, none empty."""
        value = self.table.get(name, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or len(found) > most or not all(
            isinstance(one, str) and one for one in found
        ):
            raise self._wrong(name, f"a string, or a list of at most {most}, none of them empty")
        return tuple(found)

    def _wrong(self, name: str, wanted: str) -> CompletionError:
        if name not in self.table:
            return CompletionError(f'"{name}" is missing; it is {wanted}', name)
        return CompletionError(f'"{name}" is not {wanted}', name)
