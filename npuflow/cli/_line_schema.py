"""The JSON Schema of the lines that verbs print with --json."""

from __future__ import annotations

import re
from typing import Any

from npuflow.cli._line_kinds import KINDS, VERSION, Fields

VERBS: dict[str, tuple[str, ...]] = {
    "build": ("step", "progress", "warning", "profile", "gate", "summary"),
    "cache gc": ("removed",),
    "cache push": ("pushed",),
    "cache stats": ("cache",),
    "cache verify": ("checked", "rerun"),
    "compare": ("comparison",),
    "diff": ("difference",),
    "disasm": ("command",),
    "eval": ("score",),
    "explain": ("code",),
    "export c": ("written",),
    "export epcontext": ("written",),
    "export explorer": ("written",),
    "export formats": ("format",),
    "export qdq": ("written",),
    "export runtime": ("written",),
    "export tflite": ("written",),
    "export thresholds": ("written",),
    "export tosa": ("written",),
    "extract": ("written",),
    "generate": ("text",),
    "golden": ("written",),
    "history": ("history",),
    "inspect": ("model",),
    "new": ("written",),
    "npz compare": ("comparison",),
    "npz dump": ("tensor",),
    "npz extract": ("written",),
    "npz list": ("tensor",),
    "npz stats": ("tensor",),
    "npz to-image": ("written",),
    "npz to-raw": ("written",),
    "ops": ("operator",),
    "pack": ("written",),
    "plan": ("step", "summary"),
    "profile": ("layer", "loop", "layers", "command", "region", "network", "total"),
    "raw pack": ("written",),
    "raw run": ("written",),
    "raw slots": ("slot",),
    "raw unpack": ("written",),
    "run": ("run",),
    "schema": ("schema", "written"),
    "seal": ("seal", "key"),
    "serve": ("serving",),
    "show": (
        "recipe", "stored", "rewrite", "statistics", "verdict", "precision", "plan", "written",
    ),
    "sweep": ("point", "gate", "sweep"),
    "target fit": ("fit",),
    "targets": ("target",),
    "verify": ("verified",),
    "view": ("serving",),
    "why": ("why", "ledger", "warning"),
    "zoo": ("row", "zoo"),
}
"""Verb -> the kinds of lines that it prints, beside `error`. `show strategy --json` prints a part of a
recipe, as `extends` reads it."""
_PLAIN = ("string", "integer", "number", "boolean", "null", "object")


def line_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) document of one line; `verbs` says which verb prints which kinds."""
    kinds = {kind: kind_schema(kind, fields) for kind, fields in KINDS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a line of npuflow --json",
        "version": VERSION,
        "verbs": {verb: [*printed, "error"] for verb, printed in VERBS.items()},
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds],
        "$defs": kinds,
    }


def kind_schema(kind: str, fields: Fields) -> dict[str, Any]:
    """Of one kind of lines; fields that it does not name may be there as well."""
    properties: dict[str, Any] = {"event": {"const": kind}}
    for name, said in fields.items():
        text, meaning = parts_of(said)
        properties[name.rstrip("?")] = {**schema_of(text), "description": meaning}
    needed = [name for name in fields if not name.endswith("?")]
    return {"type": "object", "properties": properties, "required": ["event", *needed]}


def parts_of(said: str) -> tuple[str, str]:
    """A field's type and its meaning."""
    text, _, meaning = said.partition(": ")
    return text, meaning


def schema_of(text: str) -> dict[str, Any]:
    """The schema of a type as the tables of kinds write it."""
    first, *others = text.split(" or ")
    if others:
        words = [json_word(one) for one in (first, *others)]
        if all(word is not None for word in words):
            return {"enum": words}
        return {"anyOf": [schema_of(one) for one in (first, *others)]}
    if text.startswith("list of "):
        return {"type": "array", "items": schema_of(text.removeprefix("list of "))}
    if text.startswith("map of "):
        return {"type": "object", "additionalProperties": schema_of(text.removeprefix("map of "))}
    if (word := json_word(text)) is not None:
        return {"enum": [word]}
    if text == "any":
        return {}
    if text not in _PLAIN:
        raise ValueError(f'"{text}" is no type')
    return {"type": text}


def json_word(text: str) -> str | None:
    """The word of a literal in quotes."""
    found = re.fullmatch(r'"([^"]*)"', text)
    return found[1] if found else None
