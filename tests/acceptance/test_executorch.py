"""ExecuTorch with the installed wheel: the tutorial's page, block by block, prints what it says."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.acceptance.environments import ROOT, Environment

pytestmark = pytest.mark.skipif(
    find_spec("executorch") is None or find_spec("torchao") is None,
    reason="the extra executorch is not installed",
)
PAGE = ROOT / "docs" / "tutorials" / "executorch.md"


def test_from_a_module_to_a_pte_that_runs(installed: Environment, tmp_path: Path) -> None:
    text = PAGE.read_text()
    (tmp_path / "page.py").write_text("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)))
    printed = installed.run(
        "python", "-W", "ignore", "page.py", cwd=tmp_path, env={"NPUFLOW_CACHE": str(tmp_path)}, timeout=550,
    ).stdout
    said = "".join(re.findall(r"^```text\n(.*?)^```", text, re.S | re.M))
    assert printed == said
    assert (tmp_path / "small.pte").is_file()
    built = list(tmp_path.rglob("delegate-*.so"))
    assert len(built) == 1, built
