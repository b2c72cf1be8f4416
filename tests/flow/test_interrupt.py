"""Builds that are interrupted: they end at once and cleanly, and the next one resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import toys

from npuflow.flow.events import Event
from npuflow.flow.run import Interrupted
from tests.tiers import often


def test_ctrl_c_ends_cleanly_and_the_next_build_resumes(tmp_path: Path) -> None:
    tables = {"source": {"count": 40}, "reading": {"sleep": 0.05}}
    script = (
        "import signal, sys, json, toys, pathlib\n"
        "from npuflow.flow.run import Interrupted\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit it as ignored\n"
        "print('ready', flush=True)\n"
        "try:\n"
        f"    toys.run(pathlib.Path({str(tmp_path / 'cache')!r}), json.loads(sys.argv[1]), jobs=1)\n"
        "except Interrupted as stop:\n"
        "    print(stop.message, '|', stop.hint, flush=True)\n"
        "    sys.exit(130)\n"
    )
    made = subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(tables)],
        stdout=subprocess.PIPE,
        text=True,
        env=toys.environment(),
    )
    assert made.stdout is not None and made.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 20
    while len(list((tmp_path / "cache").glob("records/*/*.json"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    made.send_signal(signal.SIGINT)
    out, _ = made.communicate(timeout=30)
    assert made.returncode == 130 and "are kept" in out and "resume" in out
    finished = len(list((tmp_path / "cache").glob("records/*/*.json")))
    result = toys.run(tmp_path / "cache", tables, jobs=1)
    assert result.hit >= finished >= 4 and result.ran <= 82 - finished
    assert not list((tmp_path / "cache" / "leases").iterdir())


def test_interrupted_is_a_failed_build() -> None:
    assert Interrupted("x").exit_code == 1


def test_an_interrupt_that_something_swallows_still_stops_the_build(tmp_path: Path) -> None:
    """Imports of native libraries clear any exception that they meet; the build went on to its end."""
    events: list[Event] = []

    def swallow(event: Event) -> None:
        events.append(event)
        if len(events) == 3:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
                time.sleep(1.0)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted):
            toys.run(tmp_path / "cache", {"source": {"count": 50}}, jobs=1, on_event=swallow)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert toys.run(tmp_path / "cache", {"source": {"count": 50}}, jobs=1).ok
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("scheduler", often(["threads", "processes:2"], 2))
def test_ctrl_c_at_a_terminal_reaches_the_build_alone(tmp_path: Path, scheduler: str) -> None:
    """The terminal interrupts every process of the group; workers printed a traceback each."""
    tables = {"source": {"count": 400}, "reading": {"sleep": 0.2}}
    script = (
        "import signal, sys, json, toys, pathlib\n"
        "from npuflow.flow import executor\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    executor.BRIEF, executor.LONG, executor.WORTH = 0.1, 0.01, 0.1\n"
        "    cache, tables = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])\n"
        f"    toys.run(cache, tables, scheduler={scheduler!r}, jobs=2, on_event=lambda one:\n"
        "        print('open', flush=True) if type(one).__name__ == 'Opened' else None)\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "cache"), json.dumps(tables)]
    made = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=toys.environment(),
        start_new_session=True,
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "open\n"
    os.killpg(made.pid, signal.SIGINT)
    _, err = made.communicate(timeout=60)
    # where the signal meets a callback of the garbage collector, Python prints and ignores it there
    ignored = err.count("Exception ignored in")
    assert err.count("Traceback") == 1 + ignored and err.rstrip().splitlines()[-1].startswith(
        "npuflow.base.errors.Interrupted"
    ), err


@pytest.mark.parametrize(("fault", "said"), [("KeyboardInterrupt", False), ("ValueError", True)])
def test_an_interrupt_that_meets_a_callback_is_raised_later(fault: str, said: bool) -> None:
    """Python drops what is raised in the callback of a weak reference, such as that of an import's lock."""
    script = (
        "import signal, weakref\n"
        "from npuflow.flow.interrupt import check, heeding\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Held: pass\n"
        "def gone(_):\n"
        f"    signal.raise_signal(signal.SIGINT) if {fault!r} == 'KeyboardInterrupt' else int('x')\n"
        "with heeding():\n"
        "    held = Held(); ref = weakref.ref(held, gone); del held\n"
        "    try:\n"
        "        check(); print('nothing')\n"
        "    except KeyboardInterrupt:\n"
        "        print('raised')\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ("nothing\n" if said else "raised\n")
    assert ("Exception ignored" in done.stderr) == said
