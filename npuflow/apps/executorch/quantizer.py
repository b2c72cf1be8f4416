"""PT2E's quantiser for a target: nodes that the target runs are annotated with its schemes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torchao.quantization.pt2e import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

from npuflow.apps.executorch.nodes import NodeSupport, ProgramSupport, is_real, listed
from npuflow.apps.executorch.request import LoweringRequest
from npuflow.base.wording import counted
from npuflow.frontends.torch.convert import origin
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Activations, Weights, activation_grid

LOG = logging.getLogger("npuflow.executorch")
KEY = "quantization_annotation"
OUTPUTS = {                               # which operand is a weight, and its axis of output channels
    "conv1d": (1, 0), "conv2d": (1, 0), "conv3d": (1, 0), "linear": (1, 0), "addmm": (2, 1),
    "conv_transpose1d": (1, 1), "conv_transpose2d": (1, 1), "conv_transpose3d": (1, 1),
    "matmul": (1, -1), "mm": (1, -1),
}
GROUPS = 6                                # operand of a transposed convolution
TYPES = {
    (8, True): torch.int8, (8, False): torch.uint8, (16, True): torch.int16, (16, False): torch.uint16,
}
NARROW = 8                                # bits up to which a histogram finds ranges; above: the extremes


class NpuflowQuantizer(Quantizer):  # type: ignore[misc]
    """Quantises what a target runs, with the target's schemes, for `prepare_pt2e`.

    `target`: a name, the path of a TOML file, or its tables. Further keywords are tables of a recipe. Its
    `quantize` has the schemes: `{"weights": {"bits": 8}, "activations": {"bits": 8}, "overrides":
    [{"layers": ["head.*"], "bits": 16}]}`. Layers are named by their modules, by the nodes of the exported
    graph, or by npuflow's operators (`conv`, `matmul`). `observer`: a class of PT2E that finds the ranges of
    values; without it HistogramObserver up to 8 bits, MinMaxObserver above.

    Nodes that npuflow's rules compute as one (a convolution with its ReLU) are rounded once, behind the last.
    `left_out` has the others after `prepare_pt2e`: those that the target does not run, each with npuflow's
    reason; `unmatched` has the layers of `overrides` that nothing answers to. `report` is a text of both, and
    goes to the log `npuflow.executorch` as a warning.
    """

    def __init__(
        self, target: str | Path | Mapping[str, Any], *, observer: Any = None, **tables: Any
    ) -> None:
        self.request = LoweringRequest.of(target, tables)
        self.observer = observer
        self.left_out: dict[str, str] = {}
        self.unmatched: tuple[str, ...] = ()
        self._count = 0

    def annotate(self, model: Any) -> Any:
        """Marks the nodes; `prepare_pt2e` calls it."""
        program = ProgramSupport.of_module(self.request, model)
        nodes = list(program.operators(model.graph.nodes))
        self.left_out = {n.name: reason for n in nodes if (reason := program(n).reason)}
        self._count = len(nodes)
        wanted = self.request.quantize
        meant = [rule for n in nodes for rule in wanted.matching(self._names(n), program(n).op)]
        self.unmatched = tuple(", ".join(one.layers) for one in wanted.overrides if one not in meant)
        behind: set[Any] = set()          # operators computed as one with what is before them
        for node in nodes:
            answer = program(node)
            if node in behind or answer.reason or not (is_real(node) or _finds_places(node)):
                continue
            chain = [node]
            while (after := _sole_user(chain[-1])) in nodes and _as_one(program, [*chain, after]):
                chain.append(after)
                behind.add(after)
            self._annotate(program, chain, answer)
        if self.left_out or self.unmatched:
            LOG.warning("%s", self.report())
        return model

    def validate(self, model: Any) -> None:
        """Nothing is left to check: what cannot be annotated was left out."""

    def report(self) -> str:
        """What stays in floats, with npuflow's reasons, and exceptions that name no layer."""
        said = f"{len(self.left_out)} of {counted(self._count, 'operator')} left in floats"
        lines = [*listed(self.left_out)]
        lines += [f"  overrides: no layer answers to {one}" for one in self.unmatched]
        return "\n".join([said + (":" if lines else ""), *lines])

    def _annotate(self, program: ProgramSupport, chain: list[Any], answer: NodeSupport) -> None:
        """What the first operator of a chain reads, and what the last one writes."""
        first, last = chain[0], chain[-1]
        inputs = {
            (reader, one): self._read(one, reader, answer)
            for reader in chain
            for one in reader.all_input_nodes
            if one not in program.known and one not in chain and is_real(one)
        }
        weight = self._weight(program, first, answer)
        made: Any = self._written(last, answer)
        if (answer.shares or _puts(first)) and len(chain) == 1 and inputs:
            (reader, one), spec = next(iter(inputs.items()))
            shared = SharedQuantizationSpec((one, reader))
            inputs = {key: spec if key == (reader, one) else shared for key in inputs}
            made = shared
        for node in chain:
            own = {one: spec for (reader, one), spec in inputs.items() if reader is node}
            node.meta[KEY] = QuantizationAnnotation(
                input_qspec_map={**own, **(weight if node is first else {})},
                output_qspec=made if node is last and is_real(node) else None,
                _annotated=True,
            )

    def _names(self, node: Any) -> tuple[str, ...]:
        return (origin(node), node.name)

    def _written(self, node: Any, answer: NodeSupport) -> QuantizationSpec:
        scheme = self.request.quantize.activations_of(self._names(node), answer.op)
        return of_activations(scheme, self.request.target.numerics, self.observer)

    def _read(self, value: Any, reader: Any, answer: NodeSupport) -> Any:
        """A value has one type: that of the node that writes it, else of the first node that reads it."""
        held = value.meta.get(KEY)
        if held is not None and held.output_qspec is not None:
            return SharedQuantizationSpec(value)
        for other in value.users:
            known = other.meta.get(KEY)
            if known is not None and value in known.input_qspec_map:
                return SharedQuantizationSpec((value, other))
        scheme = self.request.quantize.activations
        for rule in self.request.quantize.matching(self._names(reader), answer.op):
            scheme = scheme if rule.input_bits is None else scheme.with_(bits=rule.input_bits)
        return of_activations(scheme, self.request.target.numerics, self.observer)

    def _weight(self, program: ProgramSupport, node: Any, answer: NodeSupport) -> dict[Any, QuantizationSpec]:
        name = str(node.target).split(".")[1]
        place, axis = OUTPUTS.get(name, (0, 0))
        weight: Any = node.args[place] if name in OUTPUTS and place < len(node.args) else None
        held = program.known.get(weight)
        if held is None or weight.op != "get_attr" or not held.is_floating_point():
            return {}
        scheme = self.request.quantize.weights_of(self._names(node), answer.op)
        rank, groups = held.dim(), node.args[GROUPS : GROUPS + 1]
        single = "transpose" in name and groups and groups[0] != 1   # their channels lie in two axes
        spec = of_weights(scheme, self.request.target.numerics, None if single or rank < 2 else axis % rank)
        return {weight: spec}


def _finds_places(node: Any) -> bool:
    """Whether an operator reads floats and gives whole numbers (argmax): what it reads is rounded, so that
    equal codes have the same place in PyTorch and in a program."""
    value = node.meta.get("val")
    whole = isinstance(value, torch.Tensor) and value.dtype == torch.int64
    return whole and any(is_real(one) for one in node.all_input_nodes)


def _puts(node: Any) -> bool:
    """Whether an operator puts numbers among others as they are: what it writes has the scale of both."""
    return ".index_put" in str(node.target) and not any(one is True for one in node.args[3:])


def _sole_user(node: Any) -> Any:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _as_one(program: ProgramSupport, nodes: list[Any]) -> bool:
    """Whether npuflow computes these nodes as one, without rounding between them."""
    alone, joined = program(nodes[-1]), program(*nodes)
    if alone.reason or joined.reason or not is_real(nodes[-1]) or program(nodes[0]).moves:
        return False
    return joined.parts == 1 and not alone.moves


class _PowersOfTwo:
    """Scales become the next power of two; zero points follow."""

    def _calculate_qparams(self, min_val: Any, max_val: Any) -> tuple[Any, Any]:
        scale, zero = super()._calculate_qparams(min_val, max_val)  # type: ignore[misc]
        raised = torch.exp2(torch.ceil(torch.log2(scale)))
        one: Any = self
        if one.qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric):
            return raised, zero
        lowest = torch.minimum(min_val, torch.zeros_like(min_val))
        moved = one.quant_min - torch.round(lowest / raised).to(zero.dtype)
        return raised, torch.clamp(moved.reshape(zero.shape), one.quant_min, one.quant_max)


class PowerOfTwoHistogram(_PowersOfTwo, HistogramObserver):  # type: ignore[misc]
    """A histogram's range, with a scale that is a power of two."""


class PowerOfTwoMinMax(_PowersOfTwo, MinMaxObserver):  # type: ignore[misc]
    """The extremes, with a scale that is a power of two."""


class PowerOfTwoChannels(_PowersOfTwo, PerChannelMinMaxObserver):  # type: ignore[misc]
    """The extremes of every channel, with scales that are powers of two."""


OBSERVERS = {
    (HistogramObserver, True): PowerOfTwoHistogram, (MinMaxObserver, True): PowerOfTwoMinMax,
    (PerChannelMinMaxObserver, True): PowerOfTwoChannels,
}


def _observer(kind: Any, numerics: Numerics) -> Any:
    return OBSERVERS.get((kind, numerics.power_of_two), kind)


def of_activations(scheme: Activations, numerics: Numerics, observer: Any = None) -> QuantizationSpec:
    """The spec of values. `observer`: a class of PT2E in place of the histogram."""
    grid = activation_grid(scheme, numerics)
    signed = grid.signed or numerics.signed_activations   # equal numbers, and PT2E's usual codes
    low, high = _ends(grid.bits, signed, grid.narrow or (grid.symmetric and signed))
    usual = HistogramObserver if grid.bits <= NARROW else MinMaxObserver
    return QuantizationSpec(
        dtype=TYPES[_container(grid.bits), signed],
        observer_or_fake_quant_ctr=_observer(observer or usual, numerics).with_args(eps=2**-24),
        quant_min=low,
        quant_max=high,
        qscheme=torch.per_tensor_symmetric if grid.symmetric else torch.per_tensor_affine,
    )


def of_weights(scheme: Weights, numerics: Numerics, axis: int | None) -> QuantizationSpec:
    """The spec of the weights of a product. `axis`: of output channels; None: one scale."""
    each = axis is not None and scheme.per == "channel" and numerics.per_channel_weights
    low, high = _ends(scheme.bits, scheme.signed, scheme.signed and scheme.symmetric)
    kinds = {
        (True, True): torch.per_channel_symmetric, (True, False): torch.per_channel_affine,
        (False, True): torch.per_tensor_symmetric, (False, False): torch.per_tensor_affine,
    }
    kind = PerChannelMinMaxObserver if each else MinMaxObserver
    return QuantizationSpec(
        dtype=TYPES[_container(scheme.bits), scheme.signed],
        observer_or_fake_quant_ctr=_observer(kind, numerics).with_args(eps=2**-24),
        quant_min=low,
        quant_max=high,
        qscheme=kinds[each, scheme.symmetric],
        ch_axis=axis if each else None,
    )


def _container(bits: int) -> int:
    return 8 if bits <= 8 else 16


def _ends(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """The lowest and the highest code. Symmetric codes leave out the lowest, as PT2E's do."""
    if not signed:
        return 0, (1 << bits) - 1
    half = 1 << (bits - 1)
    return (1 - half if narrow else -half), half - 1
