"""Whether a program is worth using: its outputs beside the float model's, where the error begins, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npuflow.engine.evaluate import Score
from npuflow.engine.fidelity import Fidelity
from npuflow.engine.report.suggest import LOSS
from npuflow.ir.graph import Graph, Node

LEAST = 10.0                              # dB of an output: the error is a third of the signal
AGREE = 0.9                               # of the samples with the float model's answer


@dataclass(frozen=True)
class Warned:
    """What is wrong, and what to try."""

    text: str
    hint: str


def judged(
    graph: Graph, fidelity: Mapping[str, Fidelity], bits: Mapping[str, int], score: Score | None = None
) -> Warned | None:
    """None if every output has `LEAST` dB (of the evaluation where there is one, else of the samples that `fidelity` was
    measured on) and the answers agree with the float model's on `AGREE` of the samples. `graph` is the float graph;
    `bits`: widths of values where they are quantised.
    """
    found = _outputs(graph, fidelity, score)
    poor = sorted((sqnr, name) for name, sqnr in found.items() if sqnr < LEAST)
    same = score.figures.get("agreement", score.agreement) if score is not None else None
    parts = []
    if same is not None and score is not None and same < AGREE:
        share = f"{100 * same:.0f} % of {score.samples} samples (less than {100 * AGREE:.0f} %)"
        parts.append(f"its answer is the float model's on {share}")
    if poor:
        more = f" (and of {len(poor) - 1} more)" if len(poor) > 1 else ""
        parts.append(f'the SQNR of the output "{poor[0][1]}"{more} is {poor[0][0]:.1f} dB (less than {LEAST:.0f} dB)')
    if not parts:
        return None
    places = list(_falls(graph, fidelity, {name for _, name in poor} or set(graph.outputs)))
    return Warned("the program is far from the float model: " + "; ".join(parts), _remedy(places, fidelity, bits))


def _outputs(graph: Graph, fidelity: Mapping[str, Fidelity], score: Score | None) -> dict[str, float]:
    """SQNR of every output where it is known. An output that is 0 throughout (-200) has none."""
    if score is not None and score.sqnr_db:
        return {name: sqnr for name, sqnr in score.sqnr_db.items() if sqnr > -200.0}
    known = {name: fidelity[name].sqnr for name in graph.outputs if name in fidelity}
    return {name: sqnr for name, sqnr in known.items() if sqnr is not None}


def _falls(graph: Graph, fidelity: Mapping[str, Fidelity], outputs: set[str]) -> Iterator[tuple[Node, str, float | None]]:
    """Layers above these outputs that make a poor tensor from better ones, in the network's order: node, tensor, and the
    worst SQNR of what the node reads (None: exact). If the error only grows little by little, the first poor one.
    """
    first: tuple[Node, str, float | None] | None = None
    any_fell = False
    for node in _above(graph, outputs):
        read = [f.sqnr for i in node.inputs if (f := fidelity.get(i)) is not None and f.sqnr is not None]
        before = min(read, default=None)
        for name in node.outputs:
            own = fidelity[name].sqnr if name in fidelity else None
            if own is None or own >= LEAST:
                continue
            first = first or (node, name, before)
            if before is None or before > own + LOSS:
                any_fell = True
                yield node, name, before
    if first is not None and not any_fell:
        yield first


def _above(graph: Graph, outputs: set[str]) -> list[Node]:
    """The nodes that these values depend on, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            wanted |= set(node.inputs)
            kept.append(node)
    return kept[::-1]


def _remedy(
    places: Sequence[tuple[Node, str, float | None]], fidelity: Mapping[str, Fidelity], bits: Mapping[str, int]
) -> str:
    guide = "docs/how-to/choose-widths.md"
    if not places:
        return f"another [calibrate] method, more samples, or wider codes ({guide}); no single tensor stands out in `fidelity`"
    node, name, before = places[0]
    came = "exact values" if before is None else f"{before:.1f} dB"
    where = f'the first tensor that falls is "{name}" ({fidelity[name].sqnr:.1f} dB from {came}), made by "{node.name}": '
    narrow = [n.name for n, value, _ in places if bits.get(value, 8) <= 8][:3]
    if not narrow:
        return where + f"it has 16 bits already: another [calibrate] method, or float = true for it ({guide})"
    layers = ", ".join(f'"{layer}"' for layer in narrow)
    wider = f"[[quantize.overrides]] with layers = [{layers}], bits = 16, input_bits = 16"
    return f"{where}{wider}; or another [calibrate] method ({guide})"
