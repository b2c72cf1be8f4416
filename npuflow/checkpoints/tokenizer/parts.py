"""What a tokenizer's files say beside its tokens: what begins a text, what ends one, the template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npuflow.base.errors import ModelError, Where


@dataclass(frozen=True)
class TokenizerParts:
    """`before`: tokens in front of a text; `stops`: that end an answer; `named`: texts of tokens by what the
    template calls them (`bos_token`); `template`: of conversations, in jinja; empty: none."""

    before: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    template: str = ""


def damaged(file: str, because: str, hint: str = "download the checkpoint again") -> ModelError:
    return ModelError(
        "the checkpoint's tokenizer is damaged", where=Where(file=file), because=because, hint=hint,
        code="NF-MODEL-467",
    )


def absent(file: str, because: str, hint: str) -> ModelError:
    return ModelError(
        "the checkpoint has no tokenizer that npuflow reads", where=Where(file=file), because=because,
        hint=hint, code="NF-MODEL-468",
    )


def made(file: str, make: Any) -> Any:
    """What a function of the library gives; its faults, which share no class, as an error."""
    try:
        return make()
    except Exception as fault:
        raise damaged(file, str(fault)) from fault
