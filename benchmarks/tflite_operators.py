"""Cases of TFLite's builtin operators that the converter writes: those right, and why others are not.

    python benchmarks/tflite_operators.py      # prints its study

The cases are stored; python -m tests.frontends.tflite_converted makes them again with TensorFlow.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tflite

from npuflow.base.errors import NpuflowError
from npuflow.frontends.tflite.convert import CONVERTERS
from tests.frontends.test_tflite_converted import APART, MOST, REFUSED
from tests.frontends.tflite_converted import stored
from tests.frontends.tflite_judged import off_by

KINDS = ("float", "int8", "int16")


def main() -> None:
    every: dict[str, Counter[str]] = defaultdict(Counter)
    right: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, case in stored().items():
        kind, operator = name.split()[:2]
        every[operator][kind] += 1
        try:
            worst = off_by(case)
        except NpuflowError:
            reasons[operator].append(f"{kind}: {REFUSED[name]}")
            continue
        if worst <= MOST[kind]:
            right[operator][kind] += 1
        else:
            reasons[operator].append(f"{name.partition(' ')[2]}, {kind}: {worst:.0f} steps, {APART[name][1]}")
    print("# Builtin operators of TFLite\n")
    print("Models of one operator as TensorFlow's converter writes them: cases right of all cases. Floats:")
    print("within 1e-4 of LiteRT's largest value. int8, int16: the integer network on a target with 31-bit")
    print("multipliers, within one code of LiteRT's reference kernels. `benchmarks/tflite_operators.py`")
    print("prints this page.\n")
    totals = [sum(one[kind] for one in which.values()) for kind in KINDS for which in (right, every)]
    shares = [f"{totals[i]} of {totals[i + 1]} ({totals[i] / totals[i + 1]:.1%})" for i in range(0, 6, 2)]
    print("| operator | " + " | ".join(KINDS) + " | not right |\n| --- | --- | --- | --- | --- |")
    print(f"| all | {' | '.join(shares)} | |")
    for operator in sorted(every):
        cells = [f"{right[operator][k]}/{every[operator][k]}" if every[operator][k] else "-" for k in KINDS]
        print(f"| {operator} | {' | '.join(cells)} | {'; '.join(reasons[operator])} |")
    names = {name for name in vars(tflite.BuiltinOperator) if name.isupper()}
    rest = sorted(name for name in names - set(every) if not name.startswith(("STABLEHLO", "PLACEHOLDER")))
    read, unread = [n for n in rest if n in CONVERTERS], [n for n in rest if n not in CONVERTERS]
    print("\nA dash: the converter leaves that operator in floats, or has no such form.\n")
    print(f"Without a case, as the converter writes another operator for it; read: {', '.join(read)}.\n")
    print("Without a case, not read (cells of one step, hash tables, variables, random numbers, strings,")
    print(f"sparse and training operators): {', '.join(unread)}.")


if __name__ == "__main__":
    main()
