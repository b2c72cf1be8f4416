"""`npuflow new --shape` and `--dim`: binds free dimensions of inputs, and the error for those left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from npuflow.base.errors import UsageError, suggestion
from npuflow.checkpoints.ports import CHUNK, CONTEXT
from npuflow.cli._engine import BatchOption
from npuflow.cli._model import ModelPort, Ports

FORM = "--shape NAME=D,D,..., one size for each dimension"
PREFILL = 32                              # tokens of a chunk: prompts of a sentence have one


@dataclass(frozen=True)
class FixedSizes:
    """What the options fix of the model."""

    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            "--input",
            metavar="NAME=D,D,...",
            help="The shape of an input with free dimensions. May be repeated.",
        ),
    ] = None
    dims: Annotated[
        list[str] | None,
        typer.Option(
            "--dim", metavar="NAME=N", help="The size of a named free dimension. May be repeated."
        ),
    ] = None
    batch: BatchOption = None


def is_free(size: int | str | None) -> bool:
    """Whether a dimension is the user's to fix; some exporters write -1 for it."""
    return not isinstance(size, int) or size < 1


def bound(found: Ports, options: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes that `--shape` gives, each checked against what the model declares."""
    inputs = {port.name: port for port in found.inputs}
    shapes: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, equals, text = option.rpartition("=")
        if not equals or not name:
            raise UsageError(f'--shape "{option}" is not NAME=D,D,...', hint=FORM, code="NF-USAGE-011")
        if name not in inputs:
            raise UsageError(
                f'--shape {option}: the model has no input "{name}"',
                because=f"its inputs are {', '.join(inputs) or 'none'}",
                hint=suggestion(name, list(inputs)), code="NF-USAGE-012",
            )
        sizes = [part.strip() for part in text.split(",") if part.strip()]
        if not all(size.isdecimal() and int(size) > 0 for size in sizes):
            raise UsageError(
                f"--shape {option}: sizes are whole numbers from 1 on", hint=FORM, code="NF-USAGE-013",
            )
        shapes[name] = tuple(map(int, sizes))
        declared = inputs[name].shape
        if declared is not None and not _fits(declared, shapes[name]):
            raise UsageError(
                f"--shape {option} does not fit this input", because=f"the model declares {inputs[name]}",
                code="NF-USAGE-014",
            )
    return shapes


def sizes(options: Sequence[str]) -> dict[str, int]:
    """The sizes that `--dim` gives, by name."""
    found: dict[str, int] = {}
    for option in options:
        name, equals, text = option.rpartition("=")
        if not equals or not name or not text.isdecimal() or not int(text):
            raise UsageError(
                f'--dim "{option}" is not NAME=N', hint="--dim NAME=N, a size from 1 on", code="NF-USAGE-360"
            )
        found[name] = int(text)
    return found


def chunks(found: Ports, stated: Mapping[str, int]) -> tuple[int, ...]:
    """Tokens of a run, for each program of a language model: one, as text is generated, and several, as a
    prompt is read, where the cache holds at least two of these chunks. Empty where the chunk is stated."""
    if not found.checkpoint or CHUNK in stated:
        return ()
    most = min(PREFILL, found.sizes[CONTEXT] // 2)
    return (1, 1 << (most.bit_length() - 1)) if most > 1 else ()


def _fits(declared: Sequence[int | str | None], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(
        is_free(d) or d == s for d, s in zip(declared, shape, strict=True)
    )


def whole(
    found: Ports, shapes: Mapping[str, tuple[int, ...]], stored: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Every input's shape. A name has the size that it has in `shapes`; a free first dimension of another one
    is a batch of 1. Others that nothing binds are an error.

    `stored`: the shapes of stored samples, where they are known, for the flags that the error proposes.
    """
    made: dict[str, tuple[int, ...]] = {}
    left: list[ModelPort] = []
    known = _named(found, shapes)
    for port in found.inputs:
        own = None if port.shape is None else [known.get(str(d), d) for d in port.shape]
        if port.name in shapes:
            made[port.name] = shapes[port.name]
        elif own is None or any(map(is_free, own[1:])):
            left.append(port)
        else:
            made[port.name] = tuple(1 if is_free(d) else int(d) for d in own)  # type: ignore[arg-type]
    if left:
        flags = " ".join(f"--shape {_quoted(p.name)}={','.join(_sizes(p, stored.get(p.name)))}" for p in left)
        unknown = "?" in flags
        raise UsageError(
            "the model leaves dimensions of its inputs free, and a program has fixed ones",
            because="; ".join(map(_free, left)),
            hint=f"{flags}{', with a size for every ?' if unknown else ', as the stored samples are'}",
            code="NF-USAGE-015",
        )
    return made


def _named(found: Ports, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes of named dimensions that shapes of some inputs give."""
    pairs = [
        pair for port in found.inputs if port.shape is not None and port.name in shapes
        for pair in zip(port.shape, shapes[port.name], strict=True)
    ]
    return {name: size for name, size in pairs if isinstance(name, str)}


def _free(port: ModelPort) -> str:
    """An input with the dimensions that it leaves free."""
    if port.shape is None:
        return f"{port.name} is {port.dtype} of any rank"
    free = [f"{i} ({d})" if isinstance(d, str) else str(i) for i, d in enumerate(port.shape) if is_free(d)]
    return f"{port.name} is {port}: dimension{'s' if len(free) > 1 else ''} {', '.join(free)}"


def _sizes(port: ModelPort, stored: tuple[int, ...] | None) -> list[str]:
    """The sizes to write: what the model declares, 1 for the batch, what a stored sample has, or a question
    mark.
    """
    if port.shape is None:
        return [*map(str, (1, *stored))] if stored is not None else ["?"]
    sample: Sequence[int | str] = ["?"] * len(port.shape)
    if stored is not None and len(stored) == len(port.shape) - 1 and _fits(port.shape[1:], stored):
        sample = [1, *stored]
    elif stored is not None and _fits(port.shape, stored):
        sample = stored
    first = [is_free(d) and i == 0 for i, d in enumerate(port.shape)]
    pairs = zip(port.shape, sample, first, strict=True)
    return [str(d) if not is_free(d) else "1" if batch and s == "?" else str(s) for d, s, batch in pairs]


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)
