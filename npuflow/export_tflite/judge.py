"""A written file run by LiteRT's reference kernels, beside the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.extras import needs
from npuflow.export_tflite.export import LiteModel, to_tflite
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, prune
from npuflow.ir.loops import steps_of
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.run.interpret import Interpreter
from npuflow.whole.export_c.network import network_of

CLOSE, LOOSE = 2, 64  # codes of 8 and of 16 bits that a layer may be off: the second is a quarter of one of 8


@dataclass(frozen=True)
class Judgement:
    """Codes of all outputs over all samples: how many, how many differ, and by how much at most. Of outputs
    that are indices: how many, and how many are others."""

    codes: int
    differ: int
    worst: int
    indices: int = 0
    others: int = 0

    def __str__(self) -> str:
        parts = [f"{self.differ} of {self.codes} codes, by {self.worst} at most"] if self.codes else []
        parts += [f"{self.others} of {self.indices} indices"] if self.indices else []
        return " and ".join(parts)


class LiteSession:
    """LiteRT on a written file: codes of the program in, codes of the program out."""

    def __init__(self, model: LiteModel) -> None:
        with needs(
            "judging a .tflite file needs LiteRT",
            kind=ModelError,
            hint="pip install ai-edge-litert",
            code="NF-PROGRAM-123",
        ):
            from ai_edge_litert import interpreter
        self.model = model
        self.runtime: Any = interpreter.Interpreter(
            model_content=model.model,
            experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
        )
        self.runtime.allocate_tensors()

    def run(self, given: Mapping[str, Array]) -> dict[str, Array]:
        taken, made = self.runtime.get_input_details(), self.runtime.get_output_details()
        for end, detail in zip(self.model.inputs, taken, strict=True):
            self.runtime.set_tensor(detail["index"], end.given(given[end.name]))
        self.runtime.invoke()
        ends = zip(self.model.outputs, made, strict=True)
        return {end.name: end.taken(self.runtime.get_tensor(detail["index"])) for end, detail in ends}


def judge_layers(graph: Graph, numerics: Numerics, given: Mapping[str, Array]) -> dict[str, Judgement]:
    """Every layer alone, on the program's own codes: what its arithmetic and LiteRT's differ by; those of a
    loop on the codes of all steps. Layers that are the same tensor in the file are left out."""
    network = network_of(graph)
    names = {value.id: name for name, value in network.inputs}
    whole = prune(
        network.graph.replaced(
            inputs=tuple(names),
            nodes=network.nodes,
            state=(),
            outputs=tuple(o for n in network.nodes for o in n.outputs if o),
        )
    )
    kept = Interpreter(whole, numerics).run({i: given[name] for i, name in names.items()})
    kept |= {i: given[name] for i, name in names.items()}
    found, steps = {}, steps_of(whole)
    for name, node in _named(n for n in whole.nodes if not n.op.border_of_loop).items():
        inputs = tuple(dict.fromkeys(i for i in node.inputs if i and whole.const(i) is None))
        outputs = tuple(o for o in node.outputs if o)
        model = to_tflite(prune(whole.replaced(inputs=inputs, outputs=outputs, nodes=(node,))))
        if model.operators:
            times = steps.get(outputs[0], 1)
            found[name] = judge(
                model, zip(*(_by_step(whole, times, ids, kept) for ids in (inputs, outputs)), strict=True)
            )
    return found


def _named(nodes: Iterable[Node]) -> dict[str, Node]:
    """Nodes by name; of several that came of one layer the later ones by their results, too."""
    found: dict[str, Node] = {}
    for node in nodes:
        name = node.name if node.name not in found else f"{node.name}: {next(filter(None, node.outputs))}"
        found[name] = node
    return found


def _by_step(
    graph: Graph, steps: int, ids: Sequence[str], codes: Mapping[str, Array]
) -> list[dict[str, Array]]:
    """The codes of a layer's values, step by step where it is in a loop."""
    rows = {i: codes[i].reshape(steps, *graph.type(i).shape) for i in ids}
    return [{i: row[k] for i, row in rows.items()} for k in range(steps)]


def judge(model: LiteModel, samples: Iterable[tuple[Mapping[str, Array], Mapping[str, Array]]]) -> Judgement:
    """Samples: codes of the inputs, and those that the outputs must have."""
    session, worst = LiteSession(model), 0
    found: dict[bool, list[int]] = {True: [0, 0], False: [0, 0]}
    places = {end.name for end in model.outputs if end.index}
    for given, expected in samples:
        for name, array in session.run(given).items():
            apart, count = np.abs(array - expected[name].astype(np.int64)), found[name in places]
            count[0], count[1] = count[0] + apart.size, count[1] + int(np.count_nonzero(apart))
            worst = worst if name in places else max(worst, int(apart.max(initial=0)))
    (codes, differ), (indices, others) = found[False], found[True]
    return Judgement(codes, differ, worst, indices, others)


def tolerance(numerics: Numerics, bits: int) -> int:
    """Codes by which a layer's result may differ from the program's where both are right: LiteRT rounds at
    other places and interpolates tables of 16 bits; a target's multipliers may have few bits."""
    most = max(numerics.multiplier_bits, numerics.mean_bits)
    relative = min(numerics.multiplier_error, 2.0 ** (1 - most)) if most > 1 else 0.0
    return (LOOSE if bits > 8 else CLOSE) + int(np.ceil(2 * relative * 2**bits))


def unequal(graph: Graph, numerics: Numerics, given: Mapping[str, Array]) -> dict[str, Judgement]:
    """Layers that compute other codes in LiteRT than in the program, beyond what rounding explains, each on
    the program's own codes."""
    bits = {
        name: max(q.bits for o in n.outputs if o and (q := graph.values[o].quant) is not None)
        for name, n in _named(n for n in network_of(graph).nodes if not n.op.border_of_loop).items()
    }
    return {
        name: one
        for name, one in judge_layers(graph, numerics, given).items()
        if one.worst > tolerance(numerics, bits[name]) or one.others
    }
