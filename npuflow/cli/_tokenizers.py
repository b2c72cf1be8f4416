"""Tokenizers for verbs that make text: the checkpoint's own, or the one that a program was built from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuflow.base.errors import UsageError

if TYPE_CHECKING:
    from npuflow.checkpoints.tokenizer import CheckpointTokenizer

Context = Annotated[
    int | None,
    typer.Option(
        "--context", metavar="N", min=1, show_default=False,
        help="Tokens of prompt and answer together, of a checkpoint: else 256. A program has its own.",
    ),
]


def tokenizer_of(program: Path, model: Path | None) -> CheckpointTokenizer:
    """That of `--model`, or of the checkpoint that runs."""
    from npuflow.base.paths import absent
    from npuflow.checkpoints import is_checkpoint, opened
    from npuflow.checkpoints.tokenizer import tokenizer

    path = model or program
    if not path.exists() and ".npu#" not in path.name:
        raise absent(path)
    if model is None and not path.is_dir() and not is_checkpoint(path):
        raise UsageError(
            f'"{program}" holds no tokenizer',
            hint="--model CHECKPOINT, the .gguf file or the folder that it was built from",
            code="NF-USAGE-370",
        )
    return tokenizer(opened(path))


def sizes(context: int | None) -> dict[str, int]:
    """What `--context` says, as `[model] dims` has it."""
    return {} if context is None else {"context": context}


def by_program(programs: dict[str, Path], stated: list[str]) -> dict[str, Path | None]:
    """Names of the programs that make text, with the checkpoint that `--model [NAME=]CHECKPOINT` gives each;
    None: its own. UsageError for one that is of no program, or of several."""
    from npuflow.checkpoints import is_checkpoint

    found: dict[str, Path | None] = {name: None for name, path in programs.items() if is_checkpoint(path)}
    for text in stated:
        name, sign, path = text.partition("=")
        named = bool(sign) and name in programs
        if not named and len(programs) > 1:
            raise UsageError(
                f'--model "{text}" does not say whose tokenizer it is',
                because=f"served: {', '.join(programs)}",
                hint=f"--model {next(iter(programs))}=CHECKPOINT", code="NF-RUN-080",
            )
        if not named:
            name, path = next(iter(programs)), text
        if found.get(name) is not None:
            raise UsageError(
                f'"{name}" is given two tokenizers', because=f'"{found[name]}" and "{path}"',
                hint="one --model for a program", code="NF-RUN-081",
            )
        found[name] = Path(path)
    return found
