"""npuflow's own table in TOML: low and high of each tensor, codes where they must be exact."""

from __future__ import annotations

from typing import Any, ClassVar

import tomli

from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, plain_row, row_of

HEAD = "# Ranges of tensors. Edit `lo` and `hi`, and put it into the recipe: [ranges] file = \"this file\".\n"


@EXCHANGE.entry
class Toml:
    """Says everything."""

    suffix: ClassVar[str] = ".toml"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = ""

    def recognises(self, text: str) -> bool:
        try:
            held = tomli.loads(text)
        except tomli.TOMLDecodeError:
            return False
        return bool(held) and all(
            isinstance(row, dict) and ("lo" in row or "codes" in row) for row in held.values()
        )

    def read(self, text: str) -> dict[str, TensorEntry]:
        return {name: row_of(name, row) for name, row in tomli.loads(text).items()}

    def write(self, table: Table) -> str:
        return HEAD + "".join(f"\n[{_key(name)}]\n{_body(plain_row(entry))}" for name, entry in table.items())


def _body(row: dict[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in row.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _key(value) if isinstance(value, str) else repr(value)


def _key(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
