"""Outputs whose power is mostly an offset: their dB say little of what varies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.report.statement import Statement, accuracy_warnings
from npuflow.strategies import Budget, Output
from npuflow.tune.precision.output_check import JudgedOutput, around_mean, hidden


def test_an_offset_that_hides_an_error_is_warned_of() -> None:
    """Scores of many classes lie around -15: their power is mostly the offset's, and tells nothing apart."""
    rng = np.random.default_rng(0)
    truth = [rng.normal(-15, 3, (1, 500)).astype(np.float32) for _ in range(8)]
    made = [a + rng.normal(0, 1.3, a.shape).astype(np.float32) for a in truth]
    assert around_mean(truth, made) == pytest.approx(20 * np.log10(3 / 1.3), abs=0.3)
    assert around_mean([a.astype(np.int64) for a in truth], made) is None
    plain = [np.array([[0.5, -0.5]], np.float32)]
    assert around_mean(plain, [a + np.float32(0.05) for a in plain]) == pytest.approx(20, abs=0.01)
    budget, near = Budget(), Output("y", 21.3, 20.5)
    for output, varying, warns in (
        (near, 7.3, True), (near, 15.0, False), (near, None, False), (replace(near, sqnr=40.0), 7.3, False),
        (replace(near, agreement=0.99), 7.3, False),
    ):
        one = JudgedOutput(output, True, varying_db=hidden(budget, output, varying))
        found = accuracy_warnings((one,), None, Statement(True, "close"), None)
        assert bool(found) == warns
        if warns:
            assert "keeps 7.3 dB, not 21.3" in found[0].text and "sqnr_db = 35" in found[0].hint
