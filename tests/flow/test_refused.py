"""What a build refuses: misspelt schedulers, addresses without one, files edited under it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import toys

from npuflow.base.errors import BuildError, UsageError
from npuflow.flow.events import Event, Running
from tests.tiers import often


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("processes:0", "processes:N"),
        ("processes:", "processes:N"),
        ("processes:two", "processes:N"),
        ("process:2", "processes:N"),
        ("tcp:/host:8786", "tcp://host:8786"),
        ("localhost:8786", "tcp://localhost:8786"),
    ],
)
def test_a_misspelt_scheduler_is_told_before_anything_runs(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        toys.run(tmp_path / "cache", scheduler=name)
    assert caught.value.code == "NF-USAGE-058" and words in caught.value.hint


@pytest.mark.parametrize("name", often(["ftp://127.0.0.1:8786", "tcp://127.0.0.1"], 2))
def test_an_address_that_no_scheduler_can_have(tmp_path: Path, name: str) -> None:
    """A client that was made with it hung for 20 seconds when the build had ended, and left a traceback."""
    script = f"import pathlib, toys; toys.run(pathlib.Path({str(tmp_path)!r}), scheduler={name!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], env=toys.environment(), capture_output=True, text=True, check=False
    )
    assert "there is no scheduler at" in done.stderr.splitlines()[-1] + done.stderr.splitlines()[-2]
    assert "Exception ignored" not in done.stderr and "timed out" not in done.stderr


def test_a_file_edited_while_a_build_runs_is_not_stored_under_its_old_digest(tmp_path: Path) -> None:
    """The key held the file's bytes, and the stage read others."""
    folder = tmp_path / "numbers"
    folder.mkdir()
    for index in range(3):
        (folder / f"n{index}.txt").write_text(str(index))

    def edit(event: Event) -> None:
        if isinstance(event, Running) and event.stage == "numbers":
            (folder / "n1.txt").write_text("1000")

    tables = {"source": {"folder": str(folder)}}
    with pytest.raises(BuildError) as caught:
        toys.run(tmp_path / "cache", tables, jobs=1, on_event=edit)
    assert caught.value.code == "NF-BUILD-131" and "n1.txt was edited" in caught.value.because
    assert toys.run(tmp_path / "cache", tables, jobs=1).outputs == toys.run(tmp_path / "new", tables).outputs
