"""A TFLite network as a graph: every operator by its converter, codes stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from npuflow.base.errors import ModelError, NpuflowError, Where
from npuflow.base.wording import counted
from npuflow.frontends import Bindings, Reading
from npuflow.frontends._nodes import ends
from npuflow.frontends._nodes.masked import StepBounds
from npuflow.frontends.tflite.chains import folded
from npuflow.frontends.tflite.elements import ELEMENTS
from npuflow.frontends.tflite.loops import CONTROL, LONGEST, MOST, left, written
from npuflow.frontends.tflite.mediapipe import CUSTOM, OTHERS
from npuflow.frontends.tflite.network import TfliteBuilder, TfliteOperatorError
from npuflow.frontends.tflite.places import PLACES
from npuflow.frontends.tflite.products import PRODUCTS
from npuflow.frontends.tflite.recurrent import RECURRENT, states
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, parsed
from npuflow.frontends.tflite.shapes import SHAPES
from npuflow.frontends.tflite.sizes import resolved
from npuflow.frontends.tflite.spatial import SPATIAL
from npuflow.frontends.tflite.spectra import SPECTRA, is_complex
from npuflow.frontends.tflite.variables import REASON, VARIABLES, with_states
from npuflow.frontends.tflite.volumes import VOLUMES
from npuflow.frontends.tflite.while_borders import WhilePlace, WhileStaysError, steps
from npuflow.frontends.tflite.while_loops import STEPS
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
    STEPS: lambda builder, operator: steps(builder, operator, _convert),
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
        return _looped_where_possible(resolved(network), bindings)
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


def _looped_where_possible(network: TfliteNetwork, bindings: Bindings) -> Reading:
    """Of loops that turn out to be none while they are read, those that carry whole numbers are no loops for
    themselves; of others, none is."""
    bounds, stays, looped = StepBounds(bindings.max_steps), dict[WhilePlace, str](), True
    while True:
        found = plain(network, looped, bounds, stays)
        try:
            return _built(found, bindings, bounds)
        except WhileStaysError as fault:
            stays[fault.place] = str(fault)
        except ModelError:                    # of a step: written out it may be simpler
            if not any(operator.name == STEPS for operator in found.operators):
                raise
            looped = False


def plain(
    network: TfliteNetwork, looped: bool = True, bounds: StepBounds | None = None,
    stays: Mapping[WhilePlace, str] = MappingProxyType({}),
) -> TfliteNetwork:
    """The network without WHILE: recurrent layers as one operator each, other loops as loops of the graph;
    those that can be none, or all if not `looped`, written out as far as that is short. `stays`: see
    `loops.written`."""
    def made(most: int, chosen: frozenset[int] = frozenset()) -> tuple[TfliteNetwork, frozenset[int]]:
        found, owner = written(network, most, chosen, bounds, stays)
        done = folded(with_states(found, network.bodies))
        return done, left(done, owner)

    found, others = made(LONGEST)
    chosen = others if looped else frozenset[int]()
    if chosen:
        found, _ = made(LONGEST, chosen)
    loops, stay = (any(o.name in CONTROL for o in one.operators) for one in (network, found))
    long = len(found.operators) - len(network.operators) > MOST
    return made(MOST, chosen)[0] if stay or (loops and long) else found


def _built(network: TfliteNetwork, bindings: Bindings, bounds: StepBounds) -> Reading:
    builder = TfliteBuilder(network)
    builder.graph.bounds = bounds
    infos = [value_info(builder.tensor(i).name, builder.type(i)) for i in network.inputs]
    made = [tensor.name for tensor in network.tensors]
    fed, faults = ends.inputs(builder.graph, infos, made, bindings)
    for index in network.inputs:
        builder.port(index)
    refused: Counter[str] = Counter()
    places: list[Operator] = []               # what was refused
    lost: set[int] = set()                    # what refused operators would have given
    wrong: ModelError | None = None           # shapes that contradict each other, maybe for what is refused
    for operator in network.operators:
        try:
            reason = _convert(builder, operator, lost)
        except ModelError as fault:
            wrong, reason = wrong or fault, ""
        if reason:
            refused[reason] += 1
            places.append(operator)
        if reason is not None:
            lost.update(operator.outputs)
    if refused and (unknown := list(ends.without_end(bounds))):
        raise ends.together(unknown)
    if refused:
        listed = [f"{name} ({count} times)" if count > 1 else name for name, count in refused.items()]
        raise ModelError(
            f"{counted(sum(refused.values()), 'operator')} of the TFLite model cannot be converted",
            because="; ".join(listed),
            hint=_hint(places),
            where=Where(node=builder.tensor(places[0].outputs[0]).name) if places[0].outputs else None,
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


def _hint(refused: Sequence[Operator]) -> str:
    if any(operator.name == "WHILE" for operator in refused):
        return (
            "[model] max_steps, the most steps that a loop may need; a loop of a constant number of steps: a "
            "counter, compared with a constant, and no more; or export the model to ONNX, whose loops may "
            "run on the host"
        )
    return "export the part without them, or export the model to ONNX"


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
    waves = is_complex(builder, operator)
    table = SPECTRA if waves else CONVERTERS
    convert = CUSTOM.get(operator.custom) if operator.custom else table.get(operator.name)
    if convert is None and waves:
        return f"{name} of complex numbers"
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
