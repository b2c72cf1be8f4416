"""Olive with the installed wheel: the how-to page's workflow and commands, and the model that it writes."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.acceptance.environments import ROOT, Environment

pytestmark = pytest.mark.skipif(find_spec("olive") is None, reason="the extra olive is not installed")
PAGE = ROOT / "docs" / "how-to" / "export-epcontext.md"
KINDS = ("json", "sh", "python")
OLIVE = "import sys; from olive.cli.launcher import main; sys.exit(main())"
RUN = """
import numpy as np
import npuflow.ort

session = npuflow.ort.InferenceSession("fashion_olive/model.onnx")
(got,) = session.run(None, {session.get_inputs()[0].name: np.zeros((1, 1, 28, 28), np.float32)})
print(got.shape)
"""


def test_a_workflow_by_the_command_line_and_from_a_script(installed: Environment, place: Path) -> None:
    """The page's file, commands and script, in a folder that is no checkout."""
    section = PAGE.read_text().split("## From Olive")[1]
    blocks = {kind: re.findall(rf"^```{kind}\n(.*?)^```", section, re.S | re.M) for kind in KINDS}
    workflow, commands, script = (blocks[kind][0] for kind in KINDS)
    (place / "workflow.json").write_text(workflow)
    calm = {"NPUFLOW_CACHE": str(place / "cache"), "OLIVE_DISABLE_TELEMETRY": "1", "HOME": str(place)}
    options = {"cwd": place, "env": calm, "timeout": 550}
    for line in commands.splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "))
        if program == "olive":                        # the script of another environment runs its Python
            program, arguments = "python", ["-c", OLIVE, *arguments]
        installed.run(program, *arguments, **options)
    made = (place / "fashion_olive" / "model.onnx").read_bytes()
    assert b"EPContext" in made
    (place / "page.py").write_text(script + RUN)
    printed = installed.run("python", "-W", "ignore", "page.py", **options).stdout
    assert printed.splitlines()[-1] == "(1, 10)"
    assert (place / "fashion_olive" / "model.onnx").read_bytes() == made
