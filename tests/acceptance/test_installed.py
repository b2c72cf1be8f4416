"""The wheel by itself: it builds the example, twice, and knows nothing of the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.environments import ROOT, Environment, install


def summary(printed: str) -> dict[str, object]:
    """The last of the JSON lines that a build printed."""
    last = json.loads(printed.splitlines()[-1])
    assert last["event"] == "summary", last
    return dict(last)


@pytest.mark.promise("build-second-is-no-op")
@pytest.mark.promise("build-bit-exact")
def test_the_example_builds_and_a_second_build_runs_nothing(installed: Environment, place: Path) -> None:
    build = ("build", "recipes/fashion.toml", "--set", "data.count=24", "--json")
    first = installed.npuflow(*build, cwd=place).stdout
    assert summary(first)["failed"] == 0
    simulated = [json.loads(line) for line in first.splitlines() if '"simulate' in line]
    assert any('"different": 0' in json.dumps(line) for line in simulated), simulated
    second = summary(installed.npuflow(*build, cwd=place).stdout)
    assert second["ran"] == second["failed"] == 0


@pytest.mark.slow
def test_the_wheel_states_its_dependencies(wheel: Path, place: Path) -> None:
    """With nothing but what pip installs for the wheel."""
    clean = install(place / "env", wheel, dependencies=True)
    build = ("build", "recipes/fashion.toml", "--set", "data.count=24", "--cache", place / "cache")
    done = clean.npuflow(*build, cwd=place)
    assert "done" in done.stdout + done.stderr
    names = clean.python("from importlib.util import find_spec as f; print([*filter(f, ('torch', 's3fs'))])")
    assert names.stdout.strip() == "[]", names.stdout


def test_the_sources_of_the_wheel_are_those_of_the_checkout(installed: Environment) -> None:
    code = "import npuflow; from pathlib import Path; print(Path(npuflow.__file__).parent)"
    folder = Path(installed.python(code).stdout.strip())
    for kind in ("*.py", "*.cpp", "*.toml", "*.js", "*.css", "*.html", "py.typed"):
        wanted = {p.relative_to(ROOT) for p in (ROOT / "npuflow").rglob(kind)}
        found = {Path("npuflow") / p.relative_to(folder) for p in folder.rglob(kind)}
        assert found == wanted, kind
