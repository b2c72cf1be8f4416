"""The example package that extends npuflow, run as installed: its tests, published suites among them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"


def installed(folder: Path) -> None:
    """What an installation of the package leaves: its modules and its metadata."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    (folder / "npuflow_acme").symlink_to(EXAMPLE / "npuflow_acme")
    info = folder / f"npuflow_acme-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {module}" for name, module in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_the_package_passes_its_tests(tmp_path: Path) -> None:
    installed(tmp_path)
    paths = [str(tmp_path), *(p for p in sys.path if p)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NPUFLOW_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
