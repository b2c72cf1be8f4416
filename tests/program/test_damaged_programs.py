"""Whole programs with damage anywhere, digests ignored: a clear error, or a run; never a crash,
a hang or a huge allocation."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from functools import cache

import numpy as np
import pytest

from npuflow.base.errors import DataError, ModelError, TargetError
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.hazards import hazards_of
from tests.networks.random_graphs import subject
from tests.sim.campaigns import coded, compiled
from tests.tiers import often, tiered

SECONDS = 30.0                   # of the processor: other work on the machine does not count


@cache
def program_of(seed: int) -> tuple[bytes, dict[str, np.ndarray]] | None:
    """A network's program, with host steps, taps and several cores as they come, and a sample for it."""
    s = subject(seed)
    try:
        graph, program = compiled(s, random.Random(seed))
    except TargetError:
        return None
    return program.to_bytes(), coded(graph, s.feeds[0])


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bits flipped, bytes replaced, runs copied elsewhere or cut out, one to four times;
    mostly behind the metadata."""
    changed = bytearray(data)
    behind = sum(struct.unpack_from("<QQ", data, 80 + 16))      # where the first section, the metadata, ends
    for _ in range(int(rng.integers(1, 5))):
        first = min(behind, len(changed) - 1) if rng.random() < 0.6 else 0
        at, size = int(rng.integers(first, len(changed))), int(rng.integers(1, 40))
        what = int(rng.integers(8))
        if what < 3:
            changed[at] ^= 1 << int(rng.integers(8))
        elif what < 5:
            changed[at] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
        elif what == 5:
            source = int(rng.integers(len(changed)))
            piece = changed[source : source + size]
            changed[at : at + len(piece)] = piece
        elif what == 6:
            digits = [i for i in range(at, min(at + 4000, len(changed))) if chr(changed[i]).isdigit()]
            for i in digits[:3]:
                changed[i] = ord(str(rng.integers(10)))        # a number of the metadata
        else:
            del changed[at : at + size]
    return bytes(changed)


def campaign(seed: int, count: int) -> Counter[str]:
    """Every damaged program either runs or is an error of npuflow's own with a
    message; all else fails the test."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    subjects = [p for p in map(program_of, range(50_000, 50_040)) if p is not None]
    for i in range(count):
        whole, feed = subjects[int(rng.integers(len(subjects)))]
        data = damaged(whole, rng)
        started = time.process_time()
        with pytest.raises(ModelError):
            if data == whole:
                raise ModelError("unchanged")
            Program.from_bytes(data)
        try:
            program = Program.from_bytes(data, check=False)
            found["loaded"] += 1
            hazards = hazards_of(program, order_of(program))
            if hazards:
                found["hazard"] += 1
                continue
            ProgramRunner(program).run(feed, dump=True)
            found["ran"] += 1
        except (ModelError, DataError) as fault:
            assert fault.message
            found["refused"] += 1
        except BaseException as fault:
            fault.add_note(f"campaign {seed}, mutation {i}")
            raise
        assert time.process_time() - started < SECONDS, (seed, i)
    return found


@pytest.mark.parametrize("count", often([24, 60], 2))
def test_damaged_programs_are_refused_or_run(count: int) -> None:
    found = campaign(0, count)
    assert found["refused"] > count / 6 and found["loaded"] > count / 12, found


@pytest.mark.parametrize("seed", tiered(range(1, 7), 2))
def test_many_damaged_programs(seed: int) -> None:
    found = campaign(seed, 200)
    assert found["refused"] > 40 and found["loaded"] > 20, found
