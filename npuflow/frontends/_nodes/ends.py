"""Inputs and outputs of a network as the recipe binds them, with every fault of the names that it gives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import ModelError, NpuflowError, RecipeError, suggestion
from npuflow.base.tables_toml import dotted
from npuflow.frontends import Bindings, Reading, finished
from npuflow.frontends._nodes.floats import is_other, said
from npuflow.frontends._nodes.inputs import fixed, input_types
from npuflow.frontends._nodes.masked import StepBounds
from npuflow.ir.types import QuantType

if TYPE_CHECKING:
    import onnx

    from npuflow.frontends._nodes.build import NodeBuilder


def inputs(
    builder: NodeBuilder, infos: Sequence[onnx.ValueInfoProto], made: Collection[str], bindings: Bindings
) -> tuple[list[str], list[NpuflowError]]:
    """Defines the network's inputs; the names of those that are fed, and faults of the names that the recipe
    gives. `made`: all names of values in the source."""
    builder.bounds.stated = bindings.max_steps
    fed = [i for i in infos if i.name not in bindings.constants]
    declared = [i.name for i in infos]
    faults: list[NpuflowError] = [
        *absent(bindings.inputs, declared, "input", "inputs"),
        *absent(bindings.constants, declared, "input", "constants"),
    ]
    try:
        for name, kind in input_types(fed, bindings, builder.notes, builder.batches):
            builder.port(name, kind)
        for info in infos:
            if info.name in bindings.constants:
                builder.constant(info.name, fixed(info, bindings))
    except NpuflowError as fault:
        # A name that the model lacks is why a dimension is free: both need not be said.
        wrong = [
            one for one in fault.faults() if not faults or one.where.key != dotted(("model", "inputs"))
        ]
        raise together([*faults, *wrong, *absent(bindings.outputs, made, "value", "outputs")]) from None
    return [info.name for info in fed], faults


def outputs(
    builder: NodeBuilder,
    own: Sequence[str],
    fed: Sequence[str],
    bindings: Bindings,
    faults: Sequence[NpuflowError] = (),
) -> tuple[str, ...]:
    """The outputs: those of the source, or the cut points of the recipe. Raises what was wrong so far."""
    found = list(faults)
    if bindings.constants and not fed:
        found.append(
            ModelError(
                "the model has no inputs left",
                because="every input is held constant", hint="[model] constants has too many entries",
                code="NF-MODEL-008",
            )
        )
    found += without_end(builder.bounds)
    wanted = bindings.outputs or tuple(own)
    found += absent(wanted, list(builder.values), "value", "outputs")
    if found:
        raise together(found)
    return wanted


def reading(
    builder: NodeBuilder,
    fed: Sequence[str],
    wanted: Sequence[str],
    types: Mapping[str, str],
    stated: Mapping[str, QuantType] = MappingProxyType({}),
) -> Reading:
    """What the front end gives. `types`: the element types that the source declares of outputs; `stated`:
    codes of its values."""
    for name, dtype in types.items():
        builder.give(name, dtype)
    if builder.counts:
        ports = [n for n in (*fed, *wanted) if is_other(builder.type(n).dtype)]
        builder.notes.append(said(builder.counts, ports))
    for name, quant in stated.items():
        builder.state(builder.singles.get(name, name), quant)
    return finished(builder, fed, wanted)


def absent(
    asked: Mapping[str, Any] | tuple[str, ...], known: Collection[str], what: str, table: str
) -> Iterator[ModelError]:
    """Names that the recipe's [model] gives and the model lacks; a fault points at the key that has it."""
    for name in asked:
        if name not in known:
            fault = ModelError(
                f'the model has no {what} "{name}"', hint=suggestion(name, list(known)), code="NF-MODEL-010",
            )
            fault.at(key=dotted(("model", table, *((name,) if isinstance(asked, Mapping) else ()))))
            yield fault


def without_end(bounds: StepBounds) -> Iterator[NpuflowError]:
    """Numbers of steps for loops whose end does not depend on data."""
    if bounds.stated is not None and not bounds.found:
        fault = ModelError(
            "no loop of the model has an end that depends on data",
            because="[model] max_steps bounds such loops alone", hint="leave [model] max_steps out",
            code="NF-MODEL-541",
        )
        yield fault.at(key=dotted(("model", "max_steps")))
    elif isinstance(bounds.stated, Mapping):
        for name in (name for name in bounds.stated if name not in bounds.found):
            fault = ModelError(
                f'no loop "{name}" has an end that depends on data',
                because=f"such loops are: {', '.join(bounds.found)}",
                hint=suggestion(name, list(bounds.found)), code="NF-MODEL-542",
            )
            yield fault.at(key=dotted(("model", "max_steps", name)))


def together(faults: Sequence[NpuflowError]) -> NpuflowError:
    """One fault, or all of them as one error."""
    return faults[0] if len(faults) == 1 else RecipeError(faults)
