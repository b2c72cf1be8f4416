"""Writes the part of docs/reference/onnx-node-cases.md on the NPU: every node case of onnx, some minutes."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "onnx-node-cases.md"
MARK = "## On the NPU"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from npuflow.engine.quantize.config import Quantize
    from tests.networks.onnx_cases import cases
    from tests.networks.onnx_npu import TARGET, judge, judged, operator, section

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(operator(case), judge(case, TARGET, Quantize())) for case in cases() if judged(case)]
    PAGE.write_text(PAGE.read_text().partition(MARK)[0].rstrip() + "\n\n" + section(found))


if __name__ == "__main__":
    main()
