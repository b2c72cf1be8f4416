"""The operator suite of ExecuTorch's wheel, lowered by PT2E and npuflow's partitioner, run as .pte files.

    python benchmarks/executorch_suite.py [--target T] [--state FILE] [--every N]     # prints its study

The suite is `executorch.backends.test.suite.operators`, run by pytest as it is: npuflow is its one flow. A
case passes where the .pte gives what PT2E's quantised module gives, within the suite's tolerances, or where
nothing is left to a delegate. Rows are kept in FILE, so that a run that was stopped goes on.
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
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from executorch.backends.test.suite import flow as flows
from executorch.backends.test.suite import operators

from npuflow.apps.executorch.tester import NpuflowTester

OPERATORS = Path(operators.__file__).parent


def flow(target: str, cache: Path) -> Any:
    return flows.TestFlow(
        "npuflow_int8", backend="npuflow", quantize=True,
        tester_factory=partial(NpuflowTester, target=target, cache=cache),
    )


class Recorder:
    """Keeps what each case of the suite came to, and runs those that it does not know yet. `every`: of all
    cases, in the suite's order, one of so many."""

    def __init__(self, state: Path, every: int) -> None:
        self.state, self.every = state, every
        self.rows: dict[str, dict[str, str]] = json.loads(state.read_text()) if state.is_file() else {}
        self.all = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self.all = len(items)
        items[:] = [one for one in items[:: self.every] if one.nodeid not in self.rows]

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        runner = getattr(item, "funcargs", {}).get("test_runner")
        if call.when != "call" or runner is None:
            return
        found = list(runner._results)
        worst = max(found, key=lambda one: one.result.is_backend_failure(), default=None)
        if worst is None:
            row = {"result": "Skip", "detail": "no result", "error": str(call.excinfo), "delegated": "False"}
        else:
            because = f"{type(worst.error).__name__}: {worst.error}" if worst.error is not None else ""
            row = {
                "result": worst.result.to_short_str(), "detail": worst.result.to_detail_str(),
                "error": " ".join(because.split())[:300], "delegated": str(worst.is_delegated()),
            }
        self.rows[item.nodeid] = {"case": item.originalname, **row}
        self.state.write_text(json.dumps(self.rows))
        sys.stderr.write(f"{item.originalname}: {row}\n")


def page(rows: list[dict[str, str]], target: str, every: int, total: int) -> None:
    counts = Counter(row["result"] for row in rows)
    judged = len(rows) - counts["Skip"]
    delegated = sum(row["result"] == "Pass" and row["delegated"] == "True" for row in rows)
    which = "All" if every == 1 else f"One of {every}, in the suite's order, of the"
    share = f"**{counts['Pass']} of {judged} cases pass ({counts['Pass'] / max(judged, 1):.1%})**"
    print("# ExecuTorch's operator suite\n")
    print(f"{which} {total} cases of `executorch.backends.test.suite.operators`,")
    print(f"by PT2E and npuflow's partitioner for {target}: {share},")
    print(f"{delegated} of them with a delegate; {counts['Skip']} more are skipped by the suite itself.")
    print("`benchmarks/executorch_suite.py` prints this page.\n")
    print("| result | cases |\n| --- | --- |")
    for (result, detail), count in sorted(Counter((r["result"], r["detail"]) for r in rows).items()):
        print(f"| {result}: {detail} | {count} |")
    failed = [row for row in rows if row["result"] == "Fail"]
    if failed:
        print("\n| case that fails | how | error |\n| --- | --- | --- |")
        for row in failed:
            print(f"| {row['case']} | {row['detail']} | {row['error'][:120].replace('|', '/')} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / "executorch_suite.json")
    parser.add_argument("--every", type=int, default=1, help="one case of so many")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("npuflow.executorch").setLevel(logging.CRITICAL)
    recorder = Recorder(args.state, args.every)
    with tempfile.TemporaryDirectory() as folder:
        made = flow(args.target, Path(folder) / "cache")
        flows.all_flows = lambda: {made.name: made}
        (Path(folder) / "none.ini").write_text("")
        without = [part for name in ("cacheprovider", "xdist", "timeout") for part in ("-p", f"no:{name}")]
        options = ["-q", *without, "--no-header", "--tb=no", "-W", "ignore"]
        with redirect_stdout(sys.stderr):
            pytest.main(
                [*options, "-c", str(Path(folder) / "none.ini"), str(OPERATORS)], plugins=[recorder]
            )
    page(list(recorder.rows.values()), args.target, args.every, recorder.all)


if __name__ == "__main__":
    main()
