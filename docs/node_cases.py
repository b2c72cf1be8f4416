"""Writes the part of docs/reference/onnx-node-cases.md on the NPU: every node case of onnx, some minutes.

    python docs/node_cases.py [OPERATOR ...]

With operators, only their cases are judged again; the other rows stay as they are on the page.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "onnx-node-cases.md"
MARK = "## On the NPU"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from npuflow.quantise.config import Quantize
    from tests.networks.onnx_cases import cases
    from tests.networks.onnx_npu import TARGET, judge, judged, section

    head, _, page = PAGE.read_text().partition(MARK)
    wanted, found = set(sys.argv[1:]), []
    known = _known(page) if wanted else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, own in _by_operator(case for case in cases() if judged(case)).items():
            if name in wanted or len(known.get(name, ())) != len(own):
                found += [(name, judge(case, TARGET, Quantize())) for case in own]
            else:
                found += [(name, _verdict(*row)) for row in known[name]]
    PAGE.write_text(head.rstrip() + "\n\n" + section(found))


def _by_operator(cases: Any) -> dict[str, list[Any]]:
    from tests.networks.onnx_npu import operator

    found: dict[str, list[Any]] = {}
    for case in cases:
        found.setdefault(operator(case), []).append(case)
    return found


def _known(page: str) -> dict[str, list[tuple[str, int, str]]]:
    """By operator, the verdicts that the page states: name of the case, codes, reason."""
    from tests.networks.onnx_cases import case_named
    from tests.networks.onnx_npu import operator

    failed: dict[str, list[tuple[str, int, str]]] = {}
    for name, reason in re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE):
        failed.setdefault(operator(case_named(name)), []).append((name, 0, reason))
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d*) ?\|$", page, re.MULTILINE)
    return {
        name: [*failed.get(name, ()), *[("", int(codes or 0), "")] * int(passed)]
        for name, _, passed, codes in rows
    }


def _verdict(name: str, codes: int, reason: str) -> Any:
    from tests.networks.onnx_npu import Verdict

    return Verdict(name, codes=codes, reason=reason)


if __name__ == "__main__":
    main()
