"""Networks that ship with onnx, from their file to simulated integers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npuflow.hw.target import Target
from npuflow.quantise.config import Quantize
from tests.networks.onnx_light import judge, light_models, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "onnx-light-models.md"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_light_model_is_bit_exact() -> None:
    outcomes = [judge(path, Target(), Quantize()) for path in light_models()]
    if os.environ.get("NPUFLOW_WRITE_DOCS"):
        PAGE.write_text(table(outcomes))
    assert len(outcomes) >= 9 and all(o.share > 0.99 for o in outcomes if not o.reason)
    assert not [o for o in outcomes if o.reason]
    (squeezenet,) = (o for o in outcomes if "squeezenet" in o.name)
    assert squeezenet.share == 1.0 and squeezenet.macs > 3e8
