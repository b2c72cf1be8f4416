"""The target suite: what every target file, also one outside the tree, must satisfy. Each
check raises AssertionError."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import TargetError
from npuflow.flow.recipe import load as recipe
from npuflow.hw import limits
from npuflow.hw.target import Target
from npuflow.ir.op import OPS, No, OpSample
from npuflow.place.place import accepts
from npuflow.program.container import Program, fingerprint
from npuflow.quantise.config import FLOATS, Activations, Quantize, Weights
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import compare
from npuflow.testing.op import case, check_program, quantised, samples


def load(path: Path) -> Target:
    """The target of a file; every fault at once."""
    target, faults = recipe(None, tables={"target": str(path.resolve())}).read(Target)
    assert target is not None and not faults, "\n".join(str(f) for f in faults)
    return target


def scheme(target: Target) -> Quantize:
    """What the target's arithmetic can do at its narrowest widths, or in its first float type alone."""
    n = target.numerics
    if not n.integers:
        return Quantize().with_(mode=next(k for k, v in FLOATS.items() if v == n.float_types[0]))
    return Quantize(
        weights=Weights(
            bits=min(b for b in n.weight_bits if b >= 8), per="channel" if n.per_channel_weights else "tensor"
        ),
        activations=Activations(
            bits=min(b for b in n.activation_bits if b >= 8), symmetric=not n.activation_zero_point
        ),
    )


def check_words(path: Path) -> None:
    """A name, a line about it, and a comment that says what it is made from."""
    target = load(path)
    comment = " ".join(line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#"))
    assert target.name == path.stem, f"{path.name} calls itself {target.name!r}"
    assert target.about and "\n" not in target.about, f"{path.name} has no line about itself"
    assert "model" in comment and "product" in comment, (
        f"{path.name} does not say that it is a model, no product"
    )


def check_rules(target: Target) -> None:
    """Rules name operators that there are, and each holds for some numbers and fails for others."""
    known, random = set(OPS.names()), np.random.default_rng(0)
    for rule in target.limits.rules:
        unknown = set(rule.operators) - known
        assert not unknown, f"{rule.need}: no operator {sorted(unknown)}"
        draws = (
            {n: int(random.choice((0, 1, 2, 3, 16, 64, 4096, 1 << 20))) for n in limits.VARIABLES}
            for _ in range(300)
        )
        verdicts = {bool(limits.broken(rule.need, numbers)) for numbers in draws}
        assert verdicts == {False, True}, (
            f"{rule.need} refuses {'everything' if True in verdicts else 'nothing'}"
        )
    unknown = set(target.limits.refuse) - known
    assert not unknown, f"refused operators that do not exist: {sorted(unknown)}"


def check_fingerprint(target: Target) -> None:
    """The name does not enter it, everything else does."""
    own = fingerprint(target)
    assert fingerprint(replace(target, name="other", about="other")) == own
    for changed in variants(target):
        assert fingerprint(changed) != own, "a changed number has the same fingerprint"


def variants(target: Target) -> Iterator[Target]:
    """The target with one number changed, for every number."""
    for table in ("compute", "numerics", "memory", "dma", "limits"):
        slice_ = getattr(target, table)
        for name, value in vars(slice_).items():
            if isinstance(value, bool):
                yield replace(target, **{table: replace(slice_, **{name: not value})})
            elif isinstance(value, int | float):
                yield replace(target, **{table: replace(slice_, **{name: value + 1})})


def accepted(target: Target, name: str) -> list[OpSample]:
    """The operator's own samples that the target runs."""
    return [s for s in samples(name) if not isinstance(_answer(s, target), No)]


def _answer(sample: OpSample, target: Target) -> Any:
    graph = case(sample).graph
    return accepts(graph, graph.nodes[0], target)


def check_operator(target: Target, name: str, most: int = 0) -> int:
    """Accepted samples of an operator run bit for bit; one that needs another arithmetic
    says so. Returns how many ran."""
    ran = 0
    for sample in accepted(target, name)[: most or None]:
        try:
            graph, one = quantised(sample, target.numerics, scheme(target))
        except TargetError as refusal:
            assert str(refusal), "a refusal without words"
            continue
        check_program(graph, one.inputs, target, f"{target.name}: {sample.op}")
        ran += 1
    return ran


def check_clock(program: Program, bar: float = 0.15) -> None:
    """The schedule time and the clock of a program agree."""
    for row in compare(profile(program))[:1]:
        assert abs(row.error) <= bar, str(row)
    assert np.isfinite(profile(program).cycles)


class TargetSuite:
    """Derive a test class and set `path` to the TOML file; pytest then runs every
    check. `operators`: names to try."""

    path: Path
    operators: tuple[str, ...] = ("conv", "gemm", "add", "maxpool", "averagepool", "relu", "concat", "resize")
    most = 2

    def test_words(self) -> None:
        check_words(self.path)

    def test_rules(self) -> None:
        check_rules(load(self.path))

    def test_fingerprint(self) -> None:
        check_fingerprint(load(self.path))

    def test_operators(self) -> None:
        target = load(self.path)
        assert sum(check_operator(target, name, self.most) for name in self.operators if name in OPS) > 0
