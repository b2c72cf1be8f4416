"""Tokenizers for verbs that make text: the checkpoint's own, or the one that a program was built from."""

from __future__ import annotations

from importlib.util import find_spec
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
    """That of `--model`, of the checkpoint that runs, or the one that a build has stored beside its program.
    """
    from npuflow.base.paths import absent
    from npuflow.checkpoints import is_checkpoint, opened
    from npuflow.checkpoints.tokenizer import FILE, restored, tokenizer

    path = model or program
    if not path.exists() and ".npu#" not in path.name:
        raise absent(path)
    if model is None and not path.is_dir() and not is_checkpoint(path):
        beside = stored_beside(program)
        if beside is None:
            raise UsageError(
                f'there is no tokenizer for "{program}"',
                because=f"the build's {FILE} is not beside it",
                hint="--model CHECKPOINT, the .gguf file or the folder that it was built from",
                code="NF-USAGE-370",
            )
        return restored(beside)
    return tokenizer(opened(path))


def stored_beside(program: Path) -> Path | None:
    """The tokenizer that a build has stored beside its program; None where there is none."""
    from npuflow.checkpoints.tokenizer import FILE, is_stored

    path = program.with_name(FILE)
    return path if is_stored(path) else None


def sizes(context: int | None) -> dict[str, int]:
    """What `--context` says, as `[model] dims` has it."""
    return {} if context is None else {"context": context}


def by_program(programs: dict[str, Path], stated: list[str]) -> dict[str, Path | None]:
    """Names of the programs that make text, with the checkpoint that `--model [NAME=]CHECKPOINT` gives each;
    None: its own, or the one beside it. UsageError for one that is of no program, or of several."""
    from npuflow.checkpoints import is_checkpoint

    library = find_spec("tokenizers") is not None         # without it a program serves its tokens' numbers
    own = (n for n, p in programs.items() if is_checkpoint(p) or (library and stored_beside(p) is not None))
    found: dict[str, Path | None] = dict.fromkeys(own)
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
