"""Conversations as text, by a checkpoint's template, which runs in jinja's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from npuflow.base.errors import ModelError
from npuflow.base.extras import needs


class RefusedByTemplateError(Exception):
    """What a template raises by `raise_exception`."""


def refuse(message: str) -> NoReturn:
    raise RefusedByTemplateError(message)


def as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def written(
    template: str, messages: Sequence[Mapping[str, Any]], named: Mapping[str, str], answer: bool, file: str
) -> str:
    """The text of messages. A template can read them and write text; it reaches no file and no attribute of
    Python."""
    with needs(
        "conversations need the package jinja2", kind=ModelError, hint="pip install 'npuflow[llm]'",
        code="NF-MODEL-466",
    ):
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    setting = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    setting.filters["tojson"] = as_json
    setting.globals["raise_exception"] = refuse
    try:
        return str(setting.from_string(template).render(
            messages=[dict(message) for message in messages], add_generation_prompt=answer, **named
        ))
    except Exception as fault:            # of a template anything may come
        raise ModelError(
            "the checkpoint's template does not take this conversation",
            because=f"{type(fault).__name__.removesuffix('Error')}: {fault}",
            hint='messages such as {"role": "user", "content": "..."}, users and assistants in turns',
            code="NF-MODEL-470",
        ).at(file=file) from fault
