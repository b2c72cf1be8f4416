"""Olive with the installed wheel: the how-to page's workflow, and the model that it writes."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.acceptance.environments import ROOT, Environment

pytestmark = pytest.mark.skipif(find_spec("olive") is None, reason="the extra olive is not installed")
PAGE = ROOT / "docs" / "how-to" / "export-epcontext.md"
RUN = """
import numpy as np
import npuflow.ort

session = npuflow.ort.InferenceSession("fashion_olive/model.onnx")
(got,) = session.run(None, {session.get_inputs()[0].name: np.zeros((1, 1, 28, 28), np.float32)})
print(got.shape)
"""


def test_a_workflow_that_runs_npuflow(installed: Environment, place: Path) -> None:
    section = PAGE.read_text().split("## From Olive")[1]
    (block,) = re.findall(r"^```python\n(.*?)^```", section, re.S | re.M)
    (place / "page.py").write_text(block + RUN)
    calm = {"NPUFLOW_CACHE": str(place / "cache"), "OLIVE_DISABLE_TELEMETRY": "1"}
    printed = installed.run("python", "-W", "ignore", "page.py", cwd=place, env=calm, timeout=550).stdout
    assert printed.splitlines()[-1] == "(1, 10)"
