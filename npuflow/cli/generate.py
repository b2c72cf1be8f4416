"""Generate text with a language model: a program that was built from a checkpoint, or the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.cli._engine import KeyOption
from npuflow.cli._tokenizers import Context, sizes, tokenizer_of
from npuflow.cli.run import ComputedBy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npuflow.program.container import Program
    from npuflow.runner.text import TextStream

ENDS = {"stop": "end of text", "length": "--max-tokens", "full": "the cache is full"}


@dataclass(frozen=True)
class GenerateOptions:
    """Whose tokenizer is used, how tokens are chosen, and what computes."""

    model: Annotated[
        Path | None,
        typer.Option(
            "--model", metavar="CHECKPOINT",
            help="The .gguf file or folder with the tokenizer, where none lies beside PROGRAM.",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", metavar="N", min=1, show_default=False,
            help="Tokens at most; else until the text ends, or the cache is full.",
        ),
    ] = None
    temperature: Annotated[
        float, typer.Option("--temperature", help="0: the most likely token; above, tokens are drawn.")
    ] = 0.0
    top_p: Annotated[
        float, typer.Option("--top-p", help="Draw from the fewest tokens of this probability together.")
    ] = 1.0
    seed: Annotated[int, typer.Option("--seed", help="Of the drawing: the same seed, the same text.")] = 0
    chat: Annotated[
        bool, typer.Option("--chat", help="TEXT is a user's message, put into the checkpoint's template.")
    ] = False
    context: Context = None
    exact: ComputedBy = None
    keys: KeyOption = None
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, when the text has ended.")
    ] = False


def generate(
    program: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM", help="A .npu of a language model, or a checkpoint: a .gguf file, a folder.",
            show_default=False,
        ),
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What the text begins with.", show_default=False)
    ],
    options: GenerateOptions,
) -> None:
    """Continue a text, or answer a message. The text goes to standard output as it is made, whole characters
    at a time; then one line with tokens and speed goes to standard error. A checkpoint runs in floats."""
    from npuflow.cli._events import emit
    from npuflow.cli._slow import Working
    from npuflow.runner.runner import Runner
    from npuflow.runner.text import TextGenerator, TokenSampling

    sampling = TokenSampling(options.temperature, options.top_p, options.seed)
    words = tokenizer_of(program, options.model)
    prompt = words.chat([{"role": "user", "content": text}]) if options.chat else words.encode(text)
    with Working(f'opening "{program}"'):
        kind = options.exact
        runner = Runner(
            program, exact=None if kind is None else kind.value, dims=sizes(options.context),
            require_key=options.keys or None,
        )
        stream = TextGenerator(runner, words).stream(prompt, options.max_tokens, sampling)
    pieces = []
    for piece in _waited(stream):
        pieces.append(piece)
        if not options.as_json:
            typer.echo(piece, nl=False)
    found = "".join(pieces)
    if not options.as_json:
        typer.echo(nl=not found.endswith("\n"))
    with Working("running the program's clock"):
        figures = {**_speed(stream), **_clock(stream)}
    if options.as_json:
        emit({"event": "text", "text": found, "tokens": stream.tokens, "ended": stream.ended, **figures})
    else:
        typer.echo(_line(stream, figures), err=True)


def _waited(stream: TextStream) -> Iterator[str]:
    """The pieces; while the prompt runs, which may take long, standard error says so."""
    from npuflow.cli._slow import Working

    with Working(f"running the {len(stream.prompt):,} tokens of the prompt"):
        first = next(stream, "")
    yield first
    yield from stream


def _speed(stream: TextStream) -> dict[str, Any]:
    """Tokens of the prompt, and how fast others came: the first, with the prompt, and those behind it."""
    later, spent = stream.chosen - 1, stream.seconds - stream.first_seconds
    return {
        "prompt_tokens": len(stream.prompt),
        "first_token_seconds": round(stream.first_seconds, 4),
        "tokens_per_second": round(later / spent, 3) if later and spent else None,
    }


def _clock(stream: TextStream) -> dict[str, Any]:
    """Cycles by the program's clock, with those of the host: of the last run, which gave a token, and of the
    runs of the prompt, each taken as the middle one of its length; and as many runs a second as the target
    has. Of a model nothing."""
    model, before = stream.session.model, 0.0
    program = model.program(model.chunks[0])
    if program is None:
        return {}
    last = max(stream.session.position - model.chunks[0], 0)
    cycles, begun = _cycles(program, last), 0
    for chunk, count in sorted(stream.prompt_runs.items(), reverse=True):        # as a session runs them
        one = model.program(chunk)
        assert one is not None
        before += count * _cycles(one, begun + (count - 1) * chunk // 2)
        begun += count * chunk
    rate = program.target.compute.clock_mhz * 1e6
    return {
        "cycles_per_run": round(cycles),
        "position": last,
        "simulated_tokens_per_second": round(rate / cycles, 3) if cycles else None,
        "prompt_runs": {str(chunk): count for chunk, count in sorted(stream.prompt_runs.items())},
        "prompt_cycles": round(before),
        "simulated_first_token_seconds": float(f"{before / rate:.4g}"),
    }


def _cycles(program: Program, position: int) -> float:
    """Of a run behind so many tokens."""
    from npuflow.report.profile import profile

    indices = {one["input"]: min(position, one["most"]) for one in program.meta.get("indices", ())}
    return profile(program.at(indices) if indices else program).whole_cycles


def _line(stream: TextStream, figures: dict[str, Any]) -> str:
    count = len(stream.tokens)
    tokens, end = "token" if count == 1 else "tokens", ENDS[stream.ended or "stop"]
    parts = [f"{count:,} {tokens} after {len(stream.prompt):,} ({end})"]
    if "cycles_per_run" in figures:
        parts.append(f"{figures['cycles_per_run']:,} cycles a run")
        parts.append(f"{figures['prompt_cycles']:,} of the prompt")
    parts.append(f"first token after {figures['first_token_seconds']:.3g} s")
    named = {"tokens_per_second": "here", "simulated_tokens_per_second": "by the program's clock"}
    parts += [f"{figures[name]:,.4g} tokens/s {where}" for name, where in named.items() if figures.get(name)]
    return ", ".join(parts)
