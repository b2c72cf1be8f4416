"""Serve programs and models over HTTP: by the KServe v2 protocol, and text by OpenAI's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.base.extras import needs
from npuflow.cli._engine import JsonOption, KeyOption
from npuflow.cli._slow import Working
from npuflow.cli._tokenizers import Context, by_program, sizes, tokenizer_of
from npuflow.cli.run import Kind, NotANumber

if TYPE_CHECKING:
    from npuflow.apps.serve.served import Served
    from npuflow.apps.serve.text.sessions import TextSessions
    from npuflow.checkpoints.tokenizer import CheckpointTokenizer
    from npuflow.runner.runner import Runner


SWITCH = 1e-4                             # seconds after which a thread hands over the interpreter
TAKEN = ("stats",)                        # what stands for no model behind /v2/models/


@dataclass(frozen=True)
class ServeOptions:
    """Where programs are served, and within which limits."""

    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = 8000
    max_batch: Annotated[
        int,
        typer.Option("--max-batch", min=1, max=64, help="Samples of different requests computed together."),
    ] = 8
    delay: Annotated[
        float, typer.Option("--delay", min=0.0, help="Milliseconds that a batch waits for more samples.")
    ] = 0.0
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Batches computed at a time.")] = 1
    max_waiting: Annotated[
        int, typer.Option("--max-waiting", min=1, help="Samples that may wait; beyond it: status 503.")
    ] = 1024
    max_samples: Annotated[int, typer.Option("--max-samples", min=1, help="Samples of one request.")] = 64
    max_mb: Annotated[float, typer.Option("--max-mb", help="Megabytes of one request.")] = 64.0
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds until an answer, of text until it begins: status 504.")
    ] = 30.0
    stop_seconds: Annotated[
        float, typer.Option("--stop-seconds", help="Seconds left to requests in progress when it stops.")
    ] = 10.0
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="[NAME=]CHECKPOINT", show_default=False,
            help="The .gguf file or folder with a program's tokenizer, where none lies beside it.",
        ),
    ] = None
    context: Context = None
    sessions: Annotated[
        int, typer.Option("--sessions", min=1, help="Texts made in turns, each with a cache; others wait.")
    ] = 8
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", metavar="N", min=1, show_default=False,
            help="Tokens of one text at most; else until the cache is full.",
        ),
    ] = None
    exact: Annotated[
        Kind | None, typer.Option("--exact", help="What computes programs, as for `run`.", show_default=False)
    ] = None
    nan: Annotated[
        NotANumber, typer.Option("--nan", help="NaN in inputs: say so once, or answer it with status 400.")
    ] = NotANumber.WARN
    keys: KeyOption = None
    as_json: JsonOption = False


def serve(
    programs: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]PROGRAM...",
            help="Programs (.npu), .onnx or .tflite models, checkpoints; without a NAME the file's.",
            show_default=False,
        ),
    ],
    options: ServeOptions,
) -> None:
    """Serve until Ctrl-C or SIGTERM: health, metadata, inference with JSON and binary tensors, /metrics for
    Prometheus; of language models also OpenAI's completions and chat. Samples that wait together are computed
    together, texts in turns. Requests name models, never files."""
    import asyncio
    import sys

    from npuflow.checkpoints import is_checkpoint

    with needs(
        "serving needs the package aiohttp",
        kind=UsageError,
        hint="pip install 'npuflow[serve]'",
        code="NF-RUN-021",
    ):
        from npuflow.apps.serve.running import serve as run
    o = options
    how = {
        "batch": o.max_batch, "linger": o.delay / 1e3, "workers": o.workers, "limit": o.max_waiting,
        "exact": None if o.exact is None else o.exact.value, "nan": o.nan.value,
        "require_key": o.keys or None,
    }
    named = _named(programs)
    words = {name: tokenizer_of(named[name], one) for name, one in by_program(named, o.model or []).items()}
    sized = [name for name, path in named.items() if is_checkpoint(path)] or [*named]
    models = {
        name: _opened(name, path, {**how, "dims": sizes(o.context) if name in sized else None}, o)
        for name, path in named.items()
    }
    for name, tokenizer in words.items():
        models[name].text = _sessions(models[name].runner, tokenizer, o)

    def started(address: str) -> None:
        if o.as_json:
            _report(models, address)
            return
        for name, one in models.items():
            typer.echo(f"{address}/v2/models/{name}  ({one.runner.exact})")
        for name, one in models.items():
            if one.text is not None:
                context = one.text.generator.context
                typer.echo(f"{address}/v1  (text by {name}; prompt and answer have {context:,} tokens)")

    # kernels release the interpreter lock many times a run: they should not wait 5 ms for it each time
    sys.setswitchinterval(SWITCH)
    most = int(o.max_mb * 1e6)
    asyncio.run(run(models, o.host, o.port, max_bytes=most, stop_seconds=o.stop_seconds, started=started))


def _report(models: dict[str, Served], address: str) -> None:
    """A line for every model."""
    from npuflow.cli._events import emit

    for name, one in models.items():
        kind = {"exact": one.runner.exact, "text": one.text is not None}
        emit({"event": "serving", "address": address, "name": name, **kind})


def _named(programs: list[str]) -> dict[str, Path]:
    """Names and files; a name is given once."""
    found: dict[str, Path] = {}
    for text in programs:
        name, sign, path = text.partition("=")
        file = Path(path if sign else text)
        name = name if sign else file.stem
        if name in found or name in TAKEN or not name or "/" in name:
            reason = f"/v2/models/{name} is another address" if name in TAKEN else "it is empty or has a /"
            raise UsageError(
                f'"{name}" is not a name for "{file}"',
                because=f"{found[name]} has it" if name in found else reason,
                hint=f"NAME={file} gives another name",
                code="NF-RUN-023",
            )
        found[name] = file
    return found


def _opened(name: str, path: Path, options: dict[str, Any], limits: ServeOptions) -> Served:
    from npuflow.apps.serve.served import Served
    from npuflow.cli._run_model import noted
    from npuflow.runner.runner import Runner

    with Working(f'opening "{path}"'):
        runner = Runner(path, **options)
    runner.nan.tell = lambda text: noted(f"{name}: {text}")
    runner.nan.option = "--nan refuse"
    return Served(name, runner, limits.max_samples, limits.timeout, path)


def _sessions(
    runner: Runner, tokenizer: CheckpointTokenizer, options: ServeOptions
) -> TextSessions | None:
    """None for a program that makes something else of its tokens, where nobody asked for text."""
    from npuflow.apps.serve.text.requests import TextLimits
    from npuflow.apps.serve.text.sessions import TextSessions
    from npuflow.checkpoints.tokenizer import FILE
    from npuflow.runner.text import TextGenerator

    try:
        generator = TextGenerator(runner, tokenizer)
    except UsageError:
        if options.model or Path(tokenizer.file).name != FILE:
            raise
        return None
    return TextSessions(
        generator, tokenizer, most=options.sessions,
        limits=TextLimits(options.max_samples, options.max_tokens), timeout=options.timeout,
    )
