"""Damaged ONNX files: a ModelError that says something, within seconds, whatever the damage."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.onnx.export import export_model
from npuflow.rewrite.rewrite import rewrite
from tests.networks.onnx_cases import cases
from tests.tiers import often, tiered

SECONDS = 30.0


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bits flipped, bytes replaced or runs cut out."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        if not changed:
            break
        at = int(rng.integers(len(changed)))
        what = rng.integers(3)
        if what == 0:
            changed[at] ^= 1 << int(rng.integers(8))
        elif what == 1:
            changed[at] = int(rng.integers(256))
        else:
            del changed[at : at + int(rng.integers(1, 20))]
    return bytes(changed)


def campaign(seed: int, count: int) -> Counter[str]:
    """Every mutation either builds or is a ModelError with a message; all else fails the test."""
    rng = np.random.default_rng(seed)
    pool = [p for p in (c.model.SerializeToString() for c in cases()[::3]) if len(p) < 6000]
    found: Counter[str] = Counter()
    for _ in range(count):
        data = damaged(pool[int(rng.integers(len(pool)))], rng)
        started = time.monotonic()
        try:
            export_model(rewrite(FRONTENDS["onnx"]().read(data, Bindings()).graph).graph)
            found["built"] += 1
        except ModelError as fault:
            assert fault.message
            found["refused"] += 1
        assert time.monotonic() - started < SECONDS
    return found


@pytest.mark.parametrize(("files", "least"), often([(12, 6), (40, 20)], 2))
def test_damaged_files_are_refused(files: int, least: int) -> None:
    found = campaign(0, files)
    assert found["refused"] > least


@pytest.mark.parametrize("seed", tiered(range(1, 5), 2))
def test_many_damaged_files(seed: int) -> None:
    found = campaign(seed, 300)
    assert found["refused"] > 150 and found["built"] > 0


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a model at all", bytes(range(256)) * 4])
def test_what_is_no_model_is_called_so(data: bytes) -> None:
    with pytest.raises(ModelError, match=r"not an ONNX model|operator set|graph"):
        FRONTENDS["onnx"]().read(data, Bindings())
