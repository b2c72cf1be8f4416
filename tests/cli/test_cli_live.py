"""Progress on a real terminal: the table that moves, read through a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from commandline import environment

from tests.tiers import often

STAGES = ("words", "tally", "total", "page")


def on_a_terminal(*args: str, **more: str) -> tuple[int, str, str]:
    """Exit code, standard output, and what the terminal behind standard error was sent."""
    master, slave = pty.openpty()
    shown: list[bytes] = []

    def listen() -> None:
        try:
            while data := os.read(master, 4096):
                shown.append(data)
        except OSError:  # how Linux says that the other end was closed
            pass

    ear = threading.Thread(target=listen)
    ear.start()
    env = {**environment(TERM="xterm-256color", COLUMNS="110", LINES="40"), **more}
    env.pop("NO_COLOR", None)
    line = [sys.executable, "-m", "npuflow", *args]
    done = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=slave, text=True, env=env, timeout=120, check=False
    )
    os.close(slave)
    ear.join(timeout=20)
    os.close(master)
    return done.returncode, done.stdout, b"".join(shown).decode()


def plain(text: str) -> list[str]:
    """The lines without what moves the cursor and colours them."""
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip() for line in re.split(r"[\r\n]+", text)]


def test_a_terminal_shows_a_table_that_moves(project: Path) -> None:
    code, out, err = on_a_terminal("build", "words.toml")
    assert code == 0
    assert "\x1b[?25l" in err and err.rstrip().endswith("\x1b[?25h"), (
        "the cursor is hidden while it moves, and comes back"
    )
    lines = plain(err)
    last = {
        name: next(line for line in reversed(lines) if line[2:].startswith(f"{name} ")) for name in STAGES
    }
    settled = {"words": "2/2", "tally": "2/2", "total": "ran", "page": "ran"}
    assert all(last[name].startswith("+") and text in last[name] for name, text in settled.items()), last
    assert "Traceback" not in err and "words: done" in out


def test_hits_are_told_from_runs(project: Path) -> None:
    on_a_terminal("build", "words.toml")
    (project / "texts/three.txt").write_text("x y\n")
    code, _, err = on_a_terminal("build", "words.toml")
    assert code == 0
    assert any("3/3, 2 hit" in line for line in plain(err))


def test_a_failure_leaves_the_terminal_as_it_was(project: Path) -> None:
    """A long message takes what room there is; what looks like markup in a name is a name."""
    (project / "texts/[b]bad.txt").write_bytes(b"\xff\xfe\xff")
    code, _, err = on_a_terminal("build", "words.toml")
    assert code == 1 and err.count("\x1b[?25l") == err.count("\x1b[?25h") > 0
    lines = plain(err)
    reported = [line for line in lines if line.startswith("x words")]
    assert reported and "[b]bad.txt: words failed" in reported[-1] and len(reported[-1]) <= 110
    assert any(line.startswith("error:") for line in lines) and "Traceback" not in err


@pytest.mark.parametrize("more", often([{"TERM": "dumb"}, {}], 2))
def test_lines_that_a_dumb_terminal_can_show(project: Path, more: dict[str, str]) -> None:
    args = ("build", "words.toml") if more else ("build", "words.toml", "--quiet")
    code, _, err = on_a_terminal(*args, **more)
    assert code == 0 and "\x1b" not in err
    assert [line for line in plain(err) if line.startswith("total")] != [] if more else plain(err) == [""]
