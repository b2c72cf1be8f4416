"""The operator suite of ExecuTorch's wheel, lowered by PT2E and npuflow's partitioner, run as .pte files.

    python benchmarks/executorch_suite.py [--target T] [--state FILE] [--only EXPRESSION]   # prints its study

The suite is `executorch.backends.test.suite.operators`, run by pytest as it is: npuflow is its one flow. A
case lowers one or several networks. It passes where each .pte gives what PT2E's quantised module gives,
within the suite's tolerances, or where no operator of a network has a delegate; cases of which all networks
have one are counted apart. Rows are kept in FILE, so that a run that was stopped goes on. EXPRESSION is that
of pytest's `-k`; `--again` forgets the rows of cases that failed or had no delegate.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from executorch.backends.test.suite import flow as flows
from executorch.backends.test.suite import operators

from npuflow.apps.executorch.tester import NpuflowTester

OPERATORS = Path(operators.__file__).parent
KINDS = ("passes with a delegate", "passes, partly with one", "passes without", "fails", "skipped")
WITH, PARTLY, WITHOUT, FAILED, SKIPPED = KINDS


class Recorder:
    """Keeps what each case of the suite came to, and runs those that it does not know yet. `testers`: of the
    networks of the case that runs; what their partitioners left out is the reason of what has no delegate."""

    def __init__(self, state: Path, again: bool) -> None:
        self.state, self.again = state, again
        self.rows: dict[str, dict[str, Any]] = json.loads(state.read_text()) if state.is_file() else {}
        self.testers: list[NpuflowTester] = []

    def flow(self, target: str, cache: Path) -> Any:
        def tester(*inputs: Any) -> NpuflowTester:
            self.testers.append(NpuflowTester(*inputs, target=target, cache=cache))
            return self.testers[-1]

        return flows.TestFlow("npuflow_int8", backend="npuflow", quantize=True, tester_factory=tester)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [one for one in items if not self._known(self.rows.get(one.nodeid))]

    def _known(self, row: dict[str, Any] | None) -> bool:
        return row is not None and not (self.again and row["kind"] in (FAILED, WITHOUT))

    def pytest_runtest_setup(self, item: Any) -> None:
        self.testers.clear()

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        unfit = call.when == "setup" and call.excinfo is not None
        if call.when != "call" and not unfit:
            return
        found = [] if unfit else list(getattr(item, "funcargs", {})["test_runner"]._results)
        row = {"case": item.originalname, "kind": SKIPPED, **_came_to(found, call.excinfo)}
        left = [pair for one in self.testers for pair in one.partitioner.left_out.items()]
        row["left"] = sorted({(_operator(name), reason) for name, reason in left})
        self.rows[item.nodeid] = row
        self.state.write_text(json.dumps(self.rows, indent=1))
        sys.stderr.write(f"{item.originalname}: {row}\n")


def _came_to(found: list[Any], fault: Any) -> dict[str, str]:
    """What a case came to: its first network that fails, else that is skipped, else all of them."""
    for kind in ("is_backend_failure", "is_non_backend_failure"):
        for one in found:
            if getattr(one.result, kind)():
                because = "" if one.error is None else f"{type(one.error).__name__}: {one.error}"
                said = " ".join(because.split())[:300] or "operators that ExecuTorch itself does not run here"
                how = FAILED if kind == "is_backend_failure" else SKIPPED
                return {"kind": how, "detail": one.result.display_name(), "error": said}
    if fault is not None:
        return {"detail": "Skipped", "error": " ".join(str(fault.value).split())[:300]}
    have = sum(one.result.name == "SUCCESS" for one in found)
    kind = WITH if have == len(found) else PARTLY if have else WITHOUT
    return {"kind": kind, "detail": f"{have} of {len(found)} networks", "error": ""}


def _operator(name: str) -> str:
    """The operator that the name of a node of the Edge dialect states: `aten_floor_default_1` is floor."""
    parts = name.removeprefix("aten_").split("_")
    return "_".join(parts[:-1] if parts[-1].isdigit() and len(parts) > 1 else parts)


def page(rows: dict[str, dict[str, Any]], target: str) -> None:
    kinds = Counter(row["kind"] for row in rows.values())
    judged = sum(kinds.values()) - kinds[SKIPPED]
    passed = judged - kinds[FAILED]
    print("# ExecuTorch's operator suite\n")
    print(f"{len(rows)} cases of `executorch.backends.test.suite.operators` of executorch")
    print(f"{version('executorch')}, by PT2E and npuflow's partitioner for {target}: {judged} are judged,")
    print(f"{kinds[SKIPPED]} skipped. **{passed} of {judged} pass ({passed / max(judged, 1):.1%}),")
    print(f"{kinds[WITH]} with a delegate in every network ({kinds[WITH] / max(judged, 1):.1%}).**\n")
    print("| what a case comes to | cases |\n| --- | --- |")
    for kind in KINDS:
        print(f"| {kind} | {kinds[kind]} |")
    print("\n## By operator\n")
    print(f"| operator | {' | '.join(KINDS)} |\n| --- |{' --- |' * len(KINDS)}")
    found: dict[str, Counter[str]] = {}
    for case, row in rows.items():
        found.setdefault(Path(case.split("::")[0]).stem.removeprefix("test_"), Counter())[row["kind"]] += 1
    for operator, counts in sorted(found.items()):
        print(f"| {operator} | {' | '.join(str(counts[kind] or '') for kind in KINDS)} |")
    reasons(rows)


def reasons(rows: dict[str, dict[str, Any]]) -> None:
    """Causes of failures, and of what has no delegate."""
    failed = [row for row in rows.values() if row["kind"] == FAILED]
    if failed:
        print("\n## What fails\n\n| case | where | cause |\n| --- | --- | --- |")
        for row in failed:
            print(f"| {row['case']} | {row['detail']} | {row['error'][:160].replace('|', '/')} |")
    without: dict[tuple[str, str], set[str]] = {}
    for row in rows.values():
        if row["kind"] in (PARTLY, WITHOUT):
            for _, reason in row["left"]:
                without.setdefault((reason, row["kind"]), set()).add(row["case"].removeprefix("test_"))
    print("\n## Why networks have no delegate\n\n| reason | of cases | cases |\n| --- | --- | --- |")
    for (reason, kind), cases in sorted(without.items()):
        print(f"| {reason.replace('|', '/')} | {kind} | {len(cases)}: {', '.join(sorted(cases))} |")
    skips = Counter(row["error"] for row in rows.values() if row["kind"] == SKIPPED)
    print("\n## What the suite skips\n\n| its reason | cases |\n| --- | --- |")
    for reason, count in sorted(skips.items()):
        print(f"| {reason.replace('|', '/')} | {count} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / "executorch_suite.json")
    parser.add_argument("--cache", type=Path, help="of the builds; without it they have one of their own")
    parser.add_argument("--only", help="cases, as pytest's -k takes them")
    parser.add_argument("--again", action="store_true", help="also those that failed or had no delegate")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("npuflow.executorch").setLevel(logging.CRITICAL)
    recorder = Recorder(args.state, args.again)
    with tempfile.TemporaryDirectory() as folder:
        made = recorder.flow(args.target, args.cache or Path(folder) / "cache")
        flows.all_flows = lambda: {made.name: made}
        (Path(folder) / "none.ini").write_text("")
        without = [part for name in ("cacheprovider", "xdist", "timeout") for part in ("-p", f"no:{name}")]
        chosen = ["-k", args.only] if args.only else []
        options = ["-q", *chosen, *without, "--no-header", "--tb=no", "-W", "ignore"]
        with redirect_stdout(sys.stderr):
            pytest.main(
                [*options, "-c", str(Path(folder) / "none.ini"), str(OPERATORS)], plugins=[recorder]
            )
    page(recorder.rows, args.target)


if __name__ == "__main__":
    main()
