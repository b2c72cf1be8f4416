"""How the exported QDQ model compares with the program, code by code, on a few calibration samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from npuflow.base.tables import Config, Range
from npuflow.base.wording import counted
from npuflow.checks.qdq_check import QdqCheck, TensorParting, runs
from npuflow.checks.qdq_verdict import QdqVerdict, verdict
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.onnx.run import CannotRunError
from npuflow.report.statement import AccuracyWarning
from npuflow.stages.parse import Parsed
from npuflow.stages.qdq import Qdq
from npuflow.stages.quantize import Quantized
from npuflow.stages.samples import Sample, feeds


@dataclass(frozen=True)
class QdqCheckTable(Config, table="qdq_check"):
    """Comparison of the exported QDQ model with the program."""

    samples: Annotated[int, Range(0, None)] = 2
    """How many calibration samples both are run on; fewer where the first ones have four million codes."""


@dataclass(frozen=True)
class QdqComparison(Artifact):
    """Every tensor, what they say together, tensors that the QDQ model lacks, why nothing was compared, and
    whether onnxruntime loads the model.
    """

    tensors: Mapping[str, TensorParting]
    verdict: QdqVerdict | None = None
    missing: tuple[str, ...] = ()
    samples: int = 0
    reason: str = ""
    loads: bool = True

    def save(self, folder: Writer) -> None:
        folder.json("tensors", {name: asdict(one) for name, one in self.tensors.items()})
        folder.json("order", list(self.tensors))
        folder.json("verdict", None if self.verdict is None else asdict(self.verdict))
        about = {"samples": self.samples, "reason": self.reason, "loads": self.loads}
        folder.json("about", {"missing": list(self.missing), **about})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        rows, judged, about = (folder.json(name) for name in ("tensors", "verdict", "about"))
        if judged is not None:
            judged = QdqVerdict(**{**judged, "biased": tuple(judged["biased"])})
        tensors = {name: TensorParting(**rows[name]) for name in folder.json("order")}
        return cls(tensors, judged, tuple(about.pop("missing")), **about)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {"compared": f"nothing: {self.reason}"}
        if self.verdict is not None:
            one = self.verdict
            found = {"codes_equal": round(one.equal, 4), "outputs_equal": round(one.outputs_equal, 4)}
            if one.sqnr is not None:
                found["outputs_db"] = round(one.sqnr, 2)
            found |= {"part_by": one.kind, "samples": self.samples}
        reported = self.warnings()
        return {**found, "warning": "; ".join(reported), "warning_hint": HINT} if reported else found

    @property
    def bias(self) -> AccuracyWarning | None:
        """That layers of the QDQ model give other codes than the program's, and what to do."""
        one = self.verdict
        return AccuracyWarning(one.text, HINT) if one is not None and one.kind == "bias" else None

    def warnings(self) -> list[str]:
        """What makes the QDQ model unfit to stand for the program, whatever the program is worth."""
        reported: list[str] = []
        if not self.loads:
            reported.append(f"the QDQ model cannot be used: {self.reason}")
        if self.missing:
            reported.append(
                f"the QDQ model lacks {counted(len(self.missing), 'tensor')} of the program, the first is "
                f"{self.missing[0]!r}"
            )
        return reported


ENOUGH = 4_000_000                        # codes
HINT = (
    "trust the program: it equals the reference; npuflow show qdq_check RECIPE --log lists the layers; "
    "please report it"
)


@stage(cpu="native", floats=True, minor=True)
def qdq_check(
    quantized: Quantized,
    qdq: Qdq,
    graph: Parsed,
    samples: Items[Sample],
    qdq_check: QdqCheckTable,
    numerics: Numerics,
) -> QdqComparison:
    """Run the QDQ model on its own, and layer by layer on the program's codes."""
    fed = list(feeds(samples, graph.graph, qdq_check.samples))
    if not fed:
        return QdqComparison({}, reason="no samples")
    model = qdq.exported.model
    try:
        check = QdqCheck(quantized.graph, model, numerics)
        for feed in fed:
            check.add(feed)
            if check.compared >= ENOUGH:
                break
    except CannotRunError as fault:
        whole = "layer by layer" if runs(model) else "at all"
        log(f"onnxruntime does not run the QDQ model {whole}: {fault}")
        return QdqComparison(
            {}, loads=whole != "at all", reason=f"onnxruntime does not run it {whole}: {fault}"
        )
    tensors = check.result()
    found = QdqComparison(
        tensors, verdict(tensors, quantized.graph.outputs, numerics), check.missing, check.samples
    )
    assert found.verdict is not None
    log(found.verdict.text)
    for name, one in tensors.items():
        if one.different or one.fed_different:
            log(line(name, one))
    return found


def line(name: str, one: TensorParting) -> str:
    """A tensor's figures."""
    sqnr = "exact" if one.sqnr is None else f"{one.sqnr:.1f} dB"
    alone = f"{one.different} of {one.elements} differ ({sqnr})"
    if not one.levels:
        return f"{name}: {alone}"
    rest = one.fed_different - one.rounding
    fed = f"on the program's codes {one.fed_different}, by rounding {one.rounding}, mean {one.mean:+.4f}"
    return (
        f"{name}: {alone}; {fed}"
        + (f", {rest} others {one.rms:.3f} rms" if rest else "")
        + (" BIAS" if one.biased else "")
    )
