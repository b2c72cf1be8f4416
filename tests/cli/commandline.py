"""Calls the command line from tests: in this process, or in a fresh one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuflow.cli._line_schema import line_schema

HERE = Path(__file__).resolve().parent
RECIPE = '# counts words\n[texts]\nsource = "texts/*.txt"\n\n[count]\nleast = 1\n'


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of --json, as the schema has them."""
        found = [json.loads(line, parse_constant=_refused) for line in self.out.splitlines()]
        for line in found:
            assert not (faults := line_faults(line)), f"{faults}: {line}"
        return found


def _refused(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def line_faults(line: Any) -> list[str]:
    """Where a line of --json is not as the schema says."""
    kinds = SCHEMA["$defs"]
    if not isinstance(line, dict) or line.get("event") not in kinds:
        return ["there is no such kind"]
    return list(faults(line, kinds[line["event"]], ""))


def faults(value: Any, schema: dict[str, Any], place: str) -> Iterator[str]:
    """Of the words of JSON Schema that the schema of lines is written in."""
    if "const" in schema and value != schema["const"]:
        yield f"{place}: another word than {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: none of {schema['enum']}"
    if "anyOf" in schema and all([*faults(value, one, place)] for one in schema["anyOf"]):
        yield f"{place}: none of {schema['anyOf']}"
    kind = schema.get("type")
    fits = isinstance(value, TYPES[kind]) if kind else True
    if not fits or (isinstance(value, bool) and kind in ("integer", "number")):
        yield f"{place}: no {kind}"
        return
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place}.{name} is missing"
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for name, inner in value.items():
            yield from faults(inner, known.get(name, others), f"{place}.{name}")
    for inner in value if isinstance(value, list) and "items" in schema else ():
        yield from faults(inner, schema["items"], f"{place}[]")


TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": int | float, "boolean": bool, "null": type(None), "object": dict,
    "array": list,
}
SCHEMA = line_schema()
Npuflow = Callable[..., Ran]


def environment(**more: str) -> dict[str, str]:
    """The environment of a fresh process that sees this checkout and the toy stages."""
    paths = os.pathsep.join([str(HERE.parent.parent), str(HERE)])
    return {**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1", **more}


def fresh(*args: str, **more: str) -> Ran:
    """Call the command line in a process of its own."""
    command = [sys.executable, "-m", "npuflow", *args]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(**more), timeout=120, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)
