"""A TFLite network as a graph: every operator by its converter, codes stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.base.wording import counted
from npuflow.frontends import Bindings, Reading
from npuflow.frontends._nodes import ends
from npuflow.frontends.tflite.chains import folded
from npuflow.frontends.tflite.elements import ELEMENTS
from npuflow.frontends.tflite.loops import CONTROL, LONGEST, MOST, flat
from npuflow.frontends.tflite.mediapipe import CUSTOM, OTHERS
from npuflow.frontends.tflite.network import TfliteBuilder, TfliteOperatorError
from npuflow.frontends.tflite.places import PLACES
from npuflow.frontends.tflite.products import PRODUCTS
from npuflow.frontends.tflite.recurrent import RECURRENT, states
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, parsed
from npuflow.frontends.tflite.shapes import SHAPES
from npuflow.frontends.tflite.spatial import SPATIAL
from npuflow.frontends.tflite.variables import REASON, VARIABLES, with_states
from npuflow.frontends.tflite.volumes import VOLUMES
from npuflow.ir.graph import Graph, prune
from npuflow.onnx.types import value_info


def _stays(builder: TfliteBuilder, operator: Operator) -> None:
    raise TfliteOperatorError(str(operator.options.get(REASON, "no constant decides it")))


CONVERTERS: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    **ELEMENTS,
    **PRODUCTS,
    **SHAPES,
    **SPATIAL,
    **PLACES,
    **VOLUMES,
    **RECURRENT,
    **dict.fromkeys((*CONTROL, *VARIABLES), _stays),
}


def opened(path: Path) -> TfliteNetwork:
    """The network in a .tflite file."""
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ModelError(
            f"{path.name} cannot be read", because=fault.strerror or str(fault), code="NF-MODEL-001",
        ) from fault
    return parsed(data)


def reading(network: TfliteNetwork, bindings: Bindings) -> Reading:
    """The network as a graph."""
    try:
        return _built(plain(network), bindings)
    except NpuflowError:
        raise
    # options and shapes of a damaged file fit nothing, in as many ways as there are operators
    except Exception as fault:
        raise ModelError(
            "the TFLite model is damaged",
            because=f"{type(fault).__name__}: {fault}",
            hint="is the file whole?",
            code="NF-MODEL-064",
        ) from fault


def plain(network: TfliteNetwork) -> TfliteNetwork:
    """The network without loops: recurrent layers as one operator each, other loops written out as far as
    that is short."""
    def written(most: int) -> TfliteNetwork:
        return folded(with_states(flat(network, most), network.bodies))

    found = written(LONGEST)
    loops, stay = (any(o.name in CONTROL for o in one.operators) for one in (network, found))
    long = len(found.operators) - len(network.operators) > MOST
    return written(MOST) if stay or (loops and long) else found


def _built(network: TfliteNetwork, bindings: Bindings) -> Reading:
    builder = TfliteBuilder(network)
    infos = [value_info(builder.tensor(i).name, builder.type(i)) for i in network.inputs]
    made = [tensor.name for tensor in network.tensors]
    fed, faults = ends.inputs(builder.graph, infos, made, bindings)
    for index in network.inputs:
        builder.port(index)
    refused: Counter[str] = Counter()
    lost: set[int] = set()                    # what refused operators would have given
    wrong: ModelError | None = None           # shapes that contradict each other, maybe for what is refused
    for operator in network.operators:
        try:
            reason = _convert(builder, operator, lost)
        except ModelError as fault:
            wrong, reason = wrong or fault, ""
        if reason:
            refused[reason] += 1
        if reason is not None:
            lost.update(operator.outputs)
    if refused:
        listed = [f"{name} ({count} times)" if count > 1 else name for name, count in refused.items()]
        raise ModelError(
            f"{counted(sum(refused.values()), 'operator')} of the TFLite model cannot be converted",
            because="; ".join(listed),
            hint="export the part without them, or export the model to ONNX",
            code="NF-MODEL-066",
        )
    if wrong is not None:
        raise wrong
    for index in network.outputs:
        if builder.data(index) is not None:
            builder.node("Identity", [builder.value(index)], builder.tensor(index).name)
    own = {builder.tensor(index).name: builder.type(index).dtype for index in network.outputs}
    builder.graph.notes += builder.notes()
    kept = {o: i for o, i in network.states if i not in bindings.constants}
    shown = [name for name in own if name not in dict(network.states)]
    wanted = ends.outputs(builder.graph, shown, fed, bindings, faults)
    whole = ends.reading(builder.graph, fed, tuple(dict.fromkeys((*wanted, *kept))), own)
    return replace(whole, graph=_with_states(whole.graph, wanted, kept)) if kept else whole


def _with_states(graph: Graph, wanted: Sequence[str], kept: Mapping[str, str]) -> Graph:
    """The graph with the states that its outputs depend on, in this call or in a later one."""
    outputs = tuple(wanted)
    while True:
        read = {v for node in prune(graph.replaced(outputs=outputs)).nodes for v in node.inputs} | {*outputs}
        more = [output for output, given in kept.items() if given in read and output not in outputs]
        if not more:
            break
        outputs += tuple(more)
    unread = {given for output, given in kept.items() if output not in outputs}
    inputs = tuple(name for name in graph.inputs if name not in unread)
    state = tuple(sorted((o, i) for o, i in kept.items() if o in outputs))
    return prune(graph.replaced(inputs=inputs, outputs=outputs, state=state))


def _convert(builder: TfliteBuilder, operator: Operator, lost: set[int]) -> str | None:
    """Adds an operator; else why not, and "" where that is another operator's fault."""
    name = f"{operator.name} {operator.custom}".rstrip()
    held = states(operator)
    read = [t for t in operator.inputs if t >= 0 and t not in held]
    broken = [builder.tensor(t).refused for t in (*read, *operator.outputs) if builder.tensor(t).refused]
    convert = CUSTOM.get(operator.custom) if operator.custom else CONVERTERS.get(operator.name)
    if convert is None:
        return f"{name} (of MediaPipe)" if operator.custom in OTHERS else name
    if operator.name in VARIABLES:
        return f"{name}: {operator.options.get(REASON, 'outside the main network')}"
    if broken:
        return f"{name}: {broken[0]}"
    if lost.intersection(operator.inputs):
        return ""
    missing = next((t for t in read if builder.data(t) is None and t not in builder.forms), None)
    if missing is not None:
        raise ModelError(f'nothing produces tensor "{builder.tensor(missing).name}"', code="NF-MODEL-064")
    builder.origin = builder.tensor(operator.outputs[0]).name
    try:
        convert(builder, operator)
        builder.finish()
    except TfliteOperatorError as fault:
        return f"{name}: {fault}"
    return None
