"""The verb serve with language models: whose tokenizer, which context, and what it refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from npuflow.base.errors import NpuflowError, UsageError
from npuflow.cli import serve
from npuflow.cli._app import application
from tests.runner.programs import split
from tests.serve.served import Running
from tests.serve.texts import COMPLETIONS, Texts, asked, call

pytest.importorskip("tokenizers")
from tests.checkpoints.texts import made


@pytest.fixture
def net(tmp_path: Path) -> Path:
    split().save(tmp_path / "numbers.npu")
    return made(tmp_path / "net")


def test_a_checkpoint_makes_text_until_it_is_told_to_stop(net: Path) -> None:
    words = [sys.executable, "-m", "npuflow", "serve", str(net), str(net.parent / "numbers.npu")]
    with subprocess.Popen(
        [*words, "--port", "0", "--context", "32", "--max-tokens", "9"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert re.fullmatch(
            r"http://127\.0\.0\.1:\d+/v1  \(text by net; prompt and answer have 32 tokens\)\n", lines[2]
        )
        one = Running()
        one.address = lines[2].partition("/v1")[0]
        assert call(one, "/v1/models")[1]["data"][0]["max_model_len"] == 32
        texts = Texts(net)
        found = call(one, COMPLETIONS, asked(["ABC", "HELLO"]))[1]
        assert [choice["text"] for choice in found["choices"]] == [texts.text(t, 9) for t in ("ABC", "HELLO")]
        assert call(one, COMPLETIONS, asked("A" * 33))[0] == 400
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("net", "numbers.npu", "--model", "net"), "NF-RUN-080"),
        (("net", "numbers.npu", "--model", "other=net"), "NF-RUN-080"),
        (("numbers.npu", "--model", "net", "--model", "numbers=net"), "NF-RUN-081"),
        (("numbers.npu", "--model", "net"), "NF-RUN-067"),
        (("numbers.npu", "--model", "nowhere"), "NF-USAGE-010"),
        (("numbers.npu", "--context", "32"), "NF-RUN-082"),
        (("net", "--model", "numbers.npu"), "NF-MODEL-462"),
    ],
)
def test_what_cannot_be_served(
    net: Path, words: tuple[str, ...], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(net.parent)
    failed = CliRunner().invoke(application("serve"), ["serve", *words, "--port", "0"])
    assert isinstance(failed.exception, NpuflowError) and failed.exception.code == code


def test_a_program_that_makes_no_text_is_served_without_it(tmp_path: Path) -> None:
    """Its build stored the checkpoint's tokenizer beside it; only who names a tokenizer asks for text."""

    def session() -> None:
        raise UsageError("it is no language model that generates text", code="NF-RUN-067")

    runner, stored = SimpleNamespace(session=session), SimpleNamespace(file=str(tmp_path / "tokenizer.json"))
    named = serve.ServeOptions(model=["net"])
    assert serve._sessions(runner, stored, serve.ServeOptions()) is None          # type: ignore[arg-type]
    for tokenizer, options in ((stored, named), (SimpleNamespace(file="net.gguf"), serve.ServeOptions())):
        with pytest.raises(UsageError, match="generates text"):
            serve._sessions(runner, tokenizer, options)                     # type: ignore[arg-type]
