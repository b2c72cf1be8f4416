"""The example of a package that extends npuflow, installed beside the wheel as its users have it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.environments import ROOT, Environment, install

EXAMPLE = ROOT / "examples" / "plugin"
LAYERS = [
    {"op": "absdiff", "in": ["a", "b"], "out": "d"},
    {"op": "sigmoid", "in": ["d"], "out": "s"},
    {"op": "centroid", "in": ["s"], "out": "y"},
]
RECIPE = """
target = "pkg:npuflow_acme/acme-1.toml"
[model]
path = "net.acme"
[data]
source = "data.npz"
[calibrate]
method = "acme_tails"
[acme_census]
"""


@pytest.fixture
def extended(wheel: Path, tmp_path: Path) -> Environment:
    """An environment of its own: the example's entries would be seen by all that share one."""
    made = install(tmp_path / "env", wheel)
    add(made, tmp_path, "first")
    return made


def add(environment: Environment, folder: Path, name: str, threshold: str = "self.share") -> None:
    """Install the example's wheel; its threshold method leaves out the share that `threshold` says."""
    sources = folder / name
    shutil.copytree(EXAMPLE, sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    method = sources / "npuflow_acme" / "tails.py"
    text, edits = re.subn(r"quantile\(self\.share\)", f"quantile({threshold})", method.read_text())
    assert edits == 1
    method.write_text(text)
    own = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    pip = [sys.executable, "-m", "pip", "wheel", *own, "--wheel-dir", str(sources)]
    subprocess.run([*pip, str(sources)], check=True, timeout=300)
    (made,) = sources.glob("npuflow_acme-*.whl")
    environment.run("python", "-m", "pip", "install", *own, "--force-reinstall", made)


def network(folder: Path) -> Path:
    """A recipe that names every entry of the package."""
    inputs = {name: [1, 2, 8, 8] for name in "ab"}
    (folder / "net.acme").write_text(json.dumps({"inputs": inputs, "layers": LAYERS, "outputs": ["y"]}))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6, 2, 8, 8)).astype(np.float32)
    np.savez(folder / "data.npz", a=a, b=b)
    (folder / "net.toml").write_text(RECIPE)
    return folder / "net.toml"


def build(environment: Environment, folder: Path, *more: str) -> tuple[dict[str, str], set[str]]:
    """The product of every stage of a build, and the stages that ran."""
    own = ("--json", "--out", str(folder / "out"), *more)
    done = environment.npuflow("build", network(folder), *own, cwd=folder)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["event"] == "summary" and lines[-1]["failed"] == 0, lines
    ran = {one["stage"] for one in lines if one["event"] == "step" and one["status"] == "ran"}
    return lines[-1]["outputs"], ran


@pytest.mark.promise("plugin-installed")
def test_a_package_extends_the_installed_product(extended: Environment, tmp_path: Path) -> None:
    """Its front end, operators, command, rule, method, stage and target, here and on worker processes;
    another version of it rebuilds what its edit reaches, and nothing in front of that."""
    first, ran = build(extended, tmp_path, "--cache", "plain")
    assert {"acme_census", "thresholds", "codegen", "simulate"} <= ran
    far, _ = build(extended, tmp_path, "--cache", "far", "--scheduler", "processes:2")
    assert far == first
    assert "ACME_ABSDIFF" in extended.npuflow("disasm", tmp_path / "out/net/model.npu").stdout
    add(extended, tmp_path, "second", "min(4 * self.share, 0.4)")
    again, ran = build(extended, tmp_path, "--cache", "plain")
    assert "thresholds" in ran and "statistics" not in ran
    assert again != first


def test_a_build_without_the_package_says_what_is_missing(installed: Environment, tmp_path: Path) -> None:
    done = installed.npuflow("build", network(tmp_path), cwd=tmp_path, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "npuflow_acme" in done.stderr and "acme_tails" in done.stderr
