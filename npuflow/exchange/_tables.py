"""Calibration tables of many tools: the range of each tensor, and exact codes where stated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, ClassVar, Literal, Protocol

from npuflow.base.errors import DataError
from npuflow.base.registry import Registry
from npuflow.ir.types import QuantType, span

EXCHANGE = Registry("exchange", "npuflow.exchange")


@dataclass(frozen=True)
class TensorEntry:
    """One tensor's row. `quant`: its codes, where the table states them; `constant`: a
    weight; `node`: who writes it."""

    lo: float
    hi: float
    quant: QuantType | None = None
    method: str = ""
    constant: bool = False
    node: str = ""


Table = Mapping[str, TensorEntry]               # by tensor name


# which tensors a tool wants: "held", where it refuses those that the model does not hold; "every", where it
# also needs those in front of a Relu or Clip
Rows = Literal["any", "held", "every"]


class Format(Protocol):
    """A format of tables. `suffix` is what such files are usually called, `omits`
    what it cannot say of a table, `rows` which tensors its tool takes."""

    suffix: ClassVar[str]
    omits: ClassVar[str]
    rows: ClassVar[Rows]

    def recognises(self, text: str) -> bool:
        """Whether a file's text is of this format; it may be no text of a table at all."""

    def read(self, text: str) -> dict[str, TensorEntry]:
        """The rows; faults are DataErrors that name the row."""

    def write(self, table: Table) -> str: ...


def tree(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, or None."""
    try:
        held = json.loads(text)
    except ValueError:
        return None
    return held if isinstance(held, dict) else None


def read_table(data: bytes, name: str, chosen: str | None = None) -> tuple[str, dict[str, TensorEntry]]:
    """Format and rows of a file; the format is recognised unless it is chosen."""
    text = _text(data, name)
    if chosen is not None:
        return chosen, _checked(_read(chosen, text, name), name)
    fitting = [entry for entry in EXCHANGE.names() if EXCHANGE[entry]().recognises(text)]
    if len(fitting) != 1:
        known = ", ".join(EXCHANGE.names())
        because = f"it could be {' or '.join(fitting)}" if fitting else "no known format begins so"
        raise DataError(
            f'"{name}" is a calibration table of unknown format',
            because=because, hint=f"format = one of {known}", code="NF-TABLE-015",
        )
    return fitting[0], _checked(_read(fitting[0], text, name), name)


def _read(chosen: str, text: str, name: str) -> dict[str, TensorEntry]:
    try:
        found: dict[str, TensorEntry] = EXCHANGE[chosen]().read(text)
        return found
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, SyntaxError) as fault:
        what = f"{type(fault).__name__}: {fault}"
        raise DataError(
            f'"{name}" cannot be read as a table of the format "{chosen}"', because=what, code="NF-TABLE-016",
        ) from fault


def _text(data: bytes, name: str) -> str:
    if data[:6] == b"\x93NUMPY" or data[:2] in (b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise DataError(
            f'"{name}" is a pickle, which could run any code when it is read',
            hint="turn it into JSON where it comes from: json.dump(statistics, file, default=lambda v: "
            "v.tolist())",
            code="NF-TABLE-017",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise DataError(f'"{name}" is no text', because=str(fault), code="NF-TABLE-018") from fault


def _checked(table: dict[str, TensorEntry], name: str) -> dict[str, TensorEntry]:
    for tensor, entry in table.items():
        if not (isfinite(entry.lo) and isfinite(entry.hi)) or entry.lo > entry.hi:
            raise DataError(
                f'"{name}": the range of "{tensor}" is [{entry.lo:g}, {entry.hi:g}]', code="NF-TABLE-019",
            )
        if entry.quant is not None and not all(0 < s < float("inf") for s in entry.quant.scale):
            raise DataError(
                f'"{name}": "{tensor}" has a scale of {min(entry.quant.scale):g}', code="NF-TABLE-020",
            )
    return table


def exact(quant: QuantType, method: str = "", constant: bool = False, node: str = "") -> TensorEntry:
    """A row that states codes; its range is what they cover."""
    return TensorEntry(*span(quant), quant, method, constant, node)


def grid(entry: TensorEntry) -> QuantType:
    """The codes that a row states; of a range alone, the 8-bit grid that covers it and zero."""
    if entry.quant is not None:
        return entry.quant
    lo, hi = min(entry.lo, 0.0), max(entry.hi, 0.0)
    scale = (hi - lo) / 255 or 1.0
    return QuantType(8, False, (scale,), (min(max(round(-lo / scale), 0), 255),))


# --- npuflow's own rows, for formats that are trees of plain values


def plain_row(entry: TensorEntry) -> dict[str, Any]:
    """A row as plain values, what is usual left out."""
    row: dict[str, Any] = {"lo": entry.lo, "hi": entry.hi}
    row.update(
        {k: v for k, v in (("method", entry.method), ("node", entry.node), ("constant", entry.constant)) if v}
    )
    if entry.quant is not None:
        usual = asdict(QuantType(8, True, (1.0,)))
        codes = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(entry.quant).items()}
        always = ("bits", "signed", "scale", "zero_point")
        row["codes"] = {k: v for k, v in codes.items() if k in always or v != usual[k]}
    return row


def row_of(name: str, row: Mapping[str, Any]) -> TensorEntry:
    """A plain row as an entry."""
    unknown = sorted(set(row) - {"lo", "hi", "method", "node", "constant", "codes"})
    if unknown:
        raise DataError(
            f'the row "{name}" has an unknown key "{unknown[0]}"',
            hint="lo, hi, method, node, constant, codes", code="NF-TABLE-021",
        )
    codes = row.get("codes")
    quant = None
    if codes is not None:
        lists = {k: tuple(codes[k]) for k in ("scale", "zero_point") if k in codes}
        quant = QuantType(**{**codes, **lists})
        if len(quant.zero_point) != len(quant.scale):
            raise DataError(
                f'the row "{name}" has {len(quant.scale)} scales and {len(quant.zero_point)} zero points',
                code="NF-TABLE-022",
            )
    if quant is not None and ("lo" not in row or "hi" not in row):
        return exact(
            quant, str(row.get("method", "")), bool(row.get("constant", False)), str(row.get("node", ""))
        )
    if "lo" not in row or "hi" not in row:
        raise DataError(
            f'the row "{name}" has no "{"hi" if "lo" in row else "lo"}"',
            hint="lo and hi, or codes", code="NF-TABLE-023",
        )
    text = str(row.get("method", "")), bool(row.get("constant", False)), str(row.get("node", ""))
    return TensorEntry(float(row["lo"]), float(row["hi"]), quant, *text)
