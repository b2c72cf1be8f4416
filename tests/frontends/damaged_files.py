"""Damaged files of formats that a native parser reads: each in a fork of a process that has the package."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import InputError, NpuflowError
from tests.frontends.test_damaged import damaged

SECONDS = 120.0


def forked(function: Callable[..., Any], path: Path, *more: Any) -> Any:
    """What `npuflow.base.isolated` gives, without starting Python and the package again for each file."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            try:
                given: Any = True, function(path, *more)
            except NpuflowError as fault:
                given = False, fault
            os.write(sending, pickle.dumps(given if not given[0] else (True,)))
            status = 0
        finally:
            os._exit(status)
    os.close(sending)
    ready, _, _ = select.select([receiving], [], [], SECONDS)
    data = b"" if not ready else os.read(receiving, 1 << 16)
    os.close(receiving)
    if not ready:
        os.kill(child, signal.SIGKILL)
    ended = os.waitpid(child, 0)[1]
    if not ready:
        raise InputError("parsing took too long", code="NF-MODEL-060")
    if ended or not data:
        raise InputError(f"the parser stopped with status {ended}", code="NF-MODEL-061")
    fine, *fault = pickle.loads(data)
    if not fine:
        raise fault[0]
    return None


def spoiled(path: Path, target: Path, rng: np.random.Generator) -> None:
    """A damaged copy. Of archives, whose checksums refuse nearly all damage, half have an entry damaged and
    are packed again."""
    data = path.read_bytes()
    if zipfile.is_zipfile(path) and rng.integers(2):
        with zipfile.ZipFile(path) as held, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as made:
            names = held.namelist()
            chosen = names[int(rng.integers(len(names)))]
            for name in names:
                entry = held.read(name)
                made.writestr(name, damaged(entry, rng) if name == chosen and entry else entry)
        return
    target.write_bytes(damaged(data, rng) if rng.integers(5) else data[: int(rng.integers(len(data)))])


def campaign(function: Callable[..., Any], whole: Path, seed: int, count: int, *more: Any) -> Counter[str]:
    """How damaged copies of a file ended: read, refused with a message, or the parser's process stopped,
    which is one error, too. `whole` is read first, undamaged."""
    forked(function, whole, *more)
    rng, found = np.random.default_rng(seed), Counter[str]()
    data = whole.read_bytes()
    kept = whole.with_name(f"whole-{whole.name}")
    kept.write_bytes(data)
    for _ in range(count):
        spoiled(kept, whole, rng)
        started = time.monotonic()
        try:
            forked(function, whole, *more)
            found["read"] += 1
        except NpuflowError as fault:
            assert fault.message and "Traceback" not in str(fault)
            found["stopped" if fault.code == "NF-MODEL-061" else "refused"] += 1
        assert time.monotonic() - started <= SECONDS
    whole.write_bytes(data)
    return found
