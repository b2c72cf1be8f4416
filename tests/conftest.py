"""Settings of all tests: hypothesis draws equal examples in CI; which tests are in the tier of a minute."""

from __future__ import annotations

import gc
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Tests start hundreds of processes: where none may write what it compiled, each compiles all of npuflow anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

TESTS = Path(__file__).parent
FAST = (
    "exchange", "heads", "hw", "ir", "lang", "metrics", "onnx", "place", "pixels", "rewrite", "rules",
    "strategies", "test_layers.py", "test_code_rules.py",
)
"""Folders and files of tests whose tests are fast, but for what follows."""
LONG = (
    "test_recurrent.py", "test_recurrent_campaign.py", "test_attention.py", "test_sampling.py",
    "test_fronts.py", "test_windows.py", "test_scatter.py",
)
"""Files of these folders that take longer."""
TARGET, SCHEME = "edge-4t", "8 bits"      # the one target and the one scheme of fast tests
PROCESSES = re.compile(
    r"\b(subprocess|multiprocessing|distributed|LocalCluster|moto|toys|run_plan|plan_recipe|RECIPE|CliRunner|"
    r"import build|npuflow\.build|tests\.stages)\b"
)
"""What a file names that starts processes, clusters or builds."""


@cache
def may_be_fast(path: Path) -> bool:
    """Whether tests of a file may be fast: by its folder, and as nothing in it starts a process."""
    light = path.relative_to(TESTS).parts[0] in FAST and path.name not in LONG
    return light and not PROCESSES.search(path.read_text())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m fast` reads only files that have fast tests: to collect all takes as long as to run these."""
    if config.getoption("markexpr") != "fast" or collection_path.suffix != ".py":
        return None
    return True if collection_path.name.startswith("test_") and not may_be_fast(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        long = item.get_closest_marker("slow") or item.get_closest_marker("campaign")
        if TESTS in item.path.parents and may_be_fast(item.path) and not long:
            parameters = getattr(item, "callspec", None)
            if parameters is None or one_of_each(parameters.params):
                item.add_marker("fast")


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the collector need not look through it again and again. Tests make
    millions of small values and hardly a cycle: by its usual settings it takes a tenth of their time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where pytest shares tests out as it does by itself, give each process a stretch of them: neighbours
    share what their file sets up. A process that is done takes from the rest of another."""
    from xdist.scheduler import WorkStealingScheduling

    class WholeFiles(WorkStealingScheduling):
        """What one process takes from another begins with a file where it can: a file in two processes sets
        up all that it shares in both."""

        def add_node(self, node: Any) -> None:
            super().add_node(node)
            steal = node.send_steal
            node.send_steal = lambda numbers: steal(self.from_a_file_on(numbers))

        def from_a_file_on(self, numbers: list[int]) -> list[int]:
            files = [self.collection[n].partition("::")[0] for n in numbers]
            before = self.collection[numbers[0] - 1].partition("::")[0] if numbers and numbers[0] else ""
            return [n for n, file in zip(numbers, files, strict=True) if file != before] or numbers

    return WholeFiles(config, log) if config.getoption("dist") == "load" else None


def one_of_each(parameters: dict[str, object]) -> bool:
    """Whether a case of a table is of the one target and of the one scheme."""
    targets = {p.stem for p in (TESTS.parent / "npuflow" / "targets").glob("*.toml")} - {TARGET}
    strings = [value for value in parameters.values() if isinstance(value, str)]
    return parameters.get("scheme", SCHEME) == SCHEME and not targets.intersection(strings)
