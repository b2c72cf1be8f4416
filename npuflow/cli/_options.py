"""Options of verbs as dataclasses: typer gets a parameter for each field."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def expanded(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb with a parameter for each field of the dataclasses that it takes, in their place."""
    hints = get_type_hints(verb, include_extras=True)
    grouped = {name: one for name, one in hints.items() if is_dataclass(one) and isinstance(one, type)}
    if not grouped:
        return verb

    @functools.wraps(verb)
    def call(**given: Any) -> Any:
        made = {
            name: one(**{field.name: given.pop(field.name) for field in fields(one)})
            for name, one in grouped.items()
        }
        return verb(**given, **made)

    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(verb).parameters.items():
        single = own.replace(annotation=hints[name])
        parameters += _parameters(grouped[name]) if name in grouped else [single]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _parameters(options: type) -> list[inspect.Parameter]:
    hints = get_type_hints(options, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(options)
    ]
