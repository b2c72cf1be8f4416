"""How the process of a command ends: with its exit code, all that was printed, and what is to run at exit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ENTRY = """
import atexit, sys, threading, time
atexit.register(lambda: print("at exit"))
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
sys.argv = ["npuflow", *{words!r}]
from npuflow.__main__ import run
print("before")
run()
"""


@pytest.mark.parametrize(
    ("words", "code", "said"), [(["--version"], 0, "npuflow"), (["build", "nowhere.toml"], 2, "nowhere.toml")]
)
def test_exit_code_output_and_handlers(words: list[str], code: int, said: str) -> None:
    line = [sys.executable, "-c", ENTRY.format(words=words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert [word for word in ("before", "thread", "at exit") if word not in done.stdout] == []


def test_a_closed_pipe_is_no_traceback() -> None:
    """What a command has written, and is in the buffer when it ends, goes nowhere."""
    own = "import sys, npuflow.__main__ as m; m.main = lambda: sys.stdout.write('abc'); m.run()"
    read, write = os.pipe()
    os.close(read)
    line = [sys.executable, "-c", own]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        line, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env=buffered
    )
    os.close(write)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
