"""The npz verb at work: tensors of a file by name, tables of them, and files made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer

from npuflow.base.errors import DataError, UsageError, suggestion
from npuflow.base.html_table import shown
from npuflow.base.paths import absent
from npuflow.base.wording import counted
from npuflow.cli._events import emit
from npuflow.cli._inputs import read_npy, read_npz
from npuflow.compare.difference import difference

Array = npt.NDArray[Any]
Row = dict[str, Any]


def arrays_of(path: Path) -> dict[str, Array]:
    """All tensors of an npz, or the one of an npy by the file's name."""
    if not path.is_file():
        raise absent(path)
    return {path.stem: read_npy(path)} if path.suffix.lower() == ".npy" else read_npz(path, ())


def chosen(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Tensors by name or pattern, in the order of the file; a name that none has is an error."""
    held = arrays_of(path)
    for name in names:
        if not any(one == name or fnmatchcase(one, name) for one in held):
            raise UsageError(
                f'"{path}" has no tensor "{name}"', hint=suggestion(name, tuple(held)), code="NF-USAGE-073"
            )
    return {
        one: array
        for one, array in held.items()
        if not names or any(one == name or fnmatchcase(one, name) for name in names)
    }


def one(path: Path, name: str | None) -> tuple[str, Array]:
    """One tensor: by its name, or the only one."""
    found = chosen(path, [name] if name is not None else [])
    if name in found:
        return name, found[name]
    if len(found) != 1:
        raise UsageError(
            f'"{path}" has {counted(len(found), "tensor")}',
            hint=suggestion("", tuple(found)), code="NF-USAGE-074",
        )
    return next(iter(found.items()))


def facts(name: str, array: Array) -> Row:
    return {"tensor": name, "type": array.dtype.name, "shape": list(array.shape), "bytes": array.nbytes}


def statistics(name: str, array: Array) -> Row:
    """Figures of the finite values; a tensor of text or without values has none."""
    row: Row = {"tensor": name, "type": array.dtype.name, "shape": list(array.shape)}
    if array.dtype.kind not in "biuf" or not array.size:
        return row
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    row["not finite"] = int(array.size - finite.size)
    if finite.size:
        row |= {
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": float(finite.mean()),
            "deviation": float(finite.std()),
            "absmax": float(np.abs(finite).max()),
            "zeros": int(np.count_nonzero(finite == 0)),
        }
    return row


def dumped(name: str, array: Array, most: int) -> str:
    """A tensor as text, without what is more than `most` values."""
    limit = most if most else max(1, array.size)
    head = f"{name}  {array.dtype.name}  {'x'.join(map(str, array.shape))}"
    flat = array if array.size <= limit else array.reshape(-1)[:limit]
    more = f"\n... {array.size - limit:,} more values" if array.size > limit else ""
    return f"{head}\n{np.array2string(flat, threshold=limit + 1, precision=6)}{more}"


def compared(
    first: Path,
    second: Path,
    names: Sequence[str],
    tolerance: float,
    cosine: float | None,
    sqnr: float | None,
) -> tuple[list[Row], int]:
    """A row for every tensor that both have, and how many are accepted."""
    a, b = chosen(first, names), arrays_of(second)
    common = [name for name in a if name in b]
    if not common:
        raise UsageError(f'"{first}" and "{second}" have no tensor in common', code="NF-USAGE-035")
    rows, accepted = [], 0
    for name in common:
        found = difference(name, a[name], b[name], tolerance=tolerance)
        if (cosine is None and sqnr is None) or found.note:
            good = not found.diverges(tolerance)
        else:
            close = cosine is None or found.cosine >= cosine
            good = close and (sqnr is None or found.sqnr is None or found.sqnr >= sqnr)
        accepted += good
        rows.append(
            {
                "tensor": name,
                "elements": found.elements,
                "different": found.different,
                "max_abs": float(found.max_abs),
                "cosine": float(found.cosine),
                "sqnr_db": found.sqnr,
                "accepted": "yes" if good else "no",
                "note": found.note,
            }
        )
    return rows, accepted


def raw(name: str, array: Array, dtype: str | None) -> Array:
    """The tensor, little-endian; converted if that loses no range."""
    if dtype is not None:
        try:
            kind = np.dtype(dtype)
        except TypeError:
            raise UsageError(
                f'"{dtype}" is no element type',
                hint="int8, uint8, int16, int32, float16, float32",
                code="NF-USAGE-075",
            ) from None
        if kind.kind in "iu" and array.size:
            span, rounded = np.iinfo(kind), np.rint(array.astype(np.float64))
            if not np.isfinite(rounded).all() or rounded.min() < span.min or rounded.max() > span.max:
                raise DataError(
                    f'values of "{name}" do not fit {kind.name}',
                    because=f"{rounded.min():g} .. {rounded.max():g} is not within {span.min} .. {span.max}",
                    code="NF-DATA-070",
                )
            array = rounded if array.dtype.kind == "f" else array
        array = array.astype(kind)
    if array.dtype.kind not in "biufc":
        raise DataError(f'"{name}" holds {array.dtype}, which has no fixed size', code="NF-DATA-071")
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))


def saved(path: Path, arrays: Mapping[str, Array]) -> None:
    """An npz, or an npy of one tensor."""
    if path.suffix.lower() == ".npy" and len(arrays) != 1:
        raise UsageError(
            f"an npy holds one tensor, {len(arrays)} are chosen", hint="-o FILE.npz", code="NF-USAGE-076"
        )
    try:
        with path.open("wb") as file:
            if path.suffix.lower() == ".npy":
                np.save(file, next(iter(arrays.values())))
            else:
                np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError(f'cannot write "{path}": {error.strerror}', code="NF-USAGE-025") from error


def written(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f'cannot write "{path}": {error.strerror}', code="NF-USAGE-025") from error


def printed(rows: Sequence[Row], event: str) -> None:
    """A table, or JSON lines of a kind."""
    if event:
        for row in rows:
            emit({"event": event, **row})
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns = [c for c in columns if any(row.get(c) not in (None, "") for row in rows)]
    cells = [columns, *([_cell(column, row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        words = [word.rjust(width) for word, width in zip(line, widths, strict=True)]
        typer.echo("  ".join([line[0].ljust(widths[0]), *words[1:]]).rstrip())


def _cell(column: str, value: Any) -> str:
    if column == "shape":
        return "x".join(map(str, value)) or "scalar"
    return "exact" if column == "sqnr_db" and value is None else shown(value)
