"""Partitions an exported program: what a target runs goes to the backend, the rest stays, with a reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch._subclasses import FakeTensor
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from npuflow.apps.executorch.backend import BuildInputs, NpuflowBackend, observed_inputs, specs_of
from npuflow.apps.executorch.nodes import (
    PIECE,
    ProgramSupport,
    held_constant,
    is_real,
    is_rounding,
    listed,
    pieces,
    rounds,
)
from npuflow.apps.executorch.quantizer import NpuflowQuantizer
from npuflow.apps.executorch.request import LoweringRequest
from npuflow.base.errors import UsageError
from npuflow.base.wording import counted
from npuflow.frontends.torch.convert import CONVERTERS
from npuflow.frontends.torch.shapes import SHAPES

LOG = logging.getLogger("npuflow.executorch")
UNSEEN = "PT2E observed no range of what it reads or writes; with samples=... npuflow finds them"
MOVED = "its partition only moves data"
# what ExecuTorch keeps as it is anyway, and warns of when it is asked to
AS_IT_IS = {"_to_copy", "mul", "add", "sub", "div", *SHAPES}


class NpuflowPartitioner(Partitioner):  # type: ignore[misc]
    """Hands to npuflow what a target runs, for `to_edge_transform_and_lower`.

    `target`: a name, the path of a TOML file, its tables, or the NpuflowQuantizer that prepared the program,
    whose target and tables hold. Further keywords are tables of a recipe, as `npuflow.compile` takes them.
    `samples`: inputs of the whole program, a tuple each. Ranges that PT2E observed are the program's; what it
    did not observe, all of a program in floats, is calibrated by npuflow on the samples, and stays out of
    partitions where there are none. `cache`, `jobs`: of the builds.

    `left_out` has the operators that stay outside after lowering, with the reason; `report` is a text of
    them.
    """

    def __init__(
        self,
        target: str | Path | Mapping[str, Any] | NpuflowQuantizer,
        *,
        samples: Sequence[Any] = (),
        cache: str | Path | None = None,
        jobs: int | None = 1,
        **tables: Any,
    ) -> None:
        super().__init__()
        named: Any = target
        if isinstance(named, NpuflowQuantizer):
            named, tables = named.request.named, {**named.request.tables, **tables}
        self.request = LoweringRequest.of(named, tables)
        self.samples, self.cache, self.jobs = list(samples), cache, jobs
        self.left_out: dict[str, str] = {}
        self._count = 0
        self._given: list[BuildInputs] = []     # of each partition, until the partitioner goes
        self._weights: dict[str, Any] = {}  # by name: `partition` gets tensors without numbers

    def partition(self, exported_program: Any) -> PartitionResult:
        """Tags the nodes of partitions; EXIR calls it."""
        self._check(exported_program)
        program = ProgramSupport.of_program(self.request, exported_program, self._weights)
        nodes = list(program.operators(exported_program.graph.nodes))
        self.left_out = {n.name: reason for n in nodes if (reason := self._reason(program, n))}
        self._count = len(nodes)
        found = _partitions(exported_program, program, {n for n in nodes if n.name not in self.left_out})
        tags: dict[str, DelegationSpec] = {}
        for number, group in enumerate(found):
            inside = [node for node in nodes if node in group]
            if not inside or all(program(node).moves for node in inside):
                self.left_out.update({node.name: MOVED for node in inside})
                continue
            tag = f"npuflow_{number}"
            self._given.append(self._inputs(exported_program, program, group))
            tags[tag] = DelegationSpec(NpuflowBackend.__name__, specs_of(self.request, self._given[-1]))
            for node in group:
                node.meta["delegation_tag"] = tag
        tag_constant_data(exported_program)
        LOG.info("%s", self.report())
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def ops_to_not_decompose(self, ep: Any) -> tuple[list[Any], Callable[[Any], bool] | None]:
        """Operators that npuflow takes whole, wherever they stand: layers, norms, activations, attention."""
        self._weights = dict(ep.state_dict)
        program = ProgramSupport.of_program(self.request, ep)
        found: dict[Any, bool] = {}
        for node in program.operators(ep.graph.nodes):
            if isinstance(node.target, torch._ops.OpOverload) and _whole(node.target):
                found[node.target] = found.get(node.target, True) and not self._reason(program, node)
        return sorted((target for target, taken in found.items() if taken), key=str), None

    def transform_for_pre_decomposition(self, exported_program: Any) -> Any:
        """Writes a rounding of PT2E once for each of its readers, so that no partition is cut between a
        value's codes and what reads them."""
        graph = exported_program.graph
        for node in list(graph.nodes):
            if not rounds(node):
                continue
            for reader in list(node.users)[1:]:
                with graph.inserting_after(node):
                    copy = graph.node_copy(node)
                reader.replace_input_with(node, copy)
        exported_program.graph_module.recompile()
        return exported_program

    def counts(self) -> tuple[int, int]:
        """Operators of the program, and how many of them stay outside."""
        return self._count, len(self.left_out)

    def report(self) -> str:
        """What stays outside, with the reasons."""
        said = f"{self._count - len(self.left_out)} of {counted(self._count, 'operator')} for npuflow"
        lines = listed(self.left_out)
        return "\n".join([said + (", left out:" if lines else ""), *lines])

    def _reason(self, program: ProgramSupport, node: Any) -> str:
        """Why an operator stays outside; empty where it is npuflow's."""
        reason = program(node).reason
        if reason or self.samples:
            return reason
        return "" if _observed(program, node) else UNSEEN

    def _check(self, program: Any) -> None:
        """Samples can run only where the weights were seen."""
        named, weights = program.graph_signature.inputs_to_buffers, program.state_dict
        places = [node for node in program.graph.nodes if node.op == "placeholder"]
        lifted = {named.get(node.name) for node in places if held_constant(node) is not None}
        seen = lifted.union(self._weights)
        lacking = [n for n, one in weights.items() if isinstance(one, FakeTensor) and n not in seen]
        if self.samples and lacking:
            raise UsageError(
                "samples cannot run: the weights are not here",
                because=f"EXIR gives partitioners tensors without numbers, {lacking[0]} the first",
                hint="to_edge_transform_and_lower(program, partitioner=[...]) in place of to_backend",
                code="NF-USAGE-283",
            )

    def _inputs(self, exported: Any, program: ProgramSupport, group: set[Any]) -> BuildInputs:
        read = dict.fromkeys(one for node in group for one in node.all_input_nodes if one not in group)
        names = [one.name for one in read if one not in program.known]
        samples = observed_inputs(exported, program.known, names, self.samples) if self.samples else {}
        return BuildInputs(samples, self.cache, self.jobs)


def _whole(target: Any) -> bool:
    name = str(target).split(".")[1]
    aliases = any(one.alias_info is not None for one in target._schema.returns)
    return name in CONVERTERS and name not in AS_IT_IS and not aliases and not target._schema.is_mutable


def _observed(program: ProgramSupport, node: Any) -> bool:
    """Whether PT2E observed the ranges of all floats that an operator reads and writes, or npuflow needs
    none: between operators that it computes as one."""
    return _all_read(program, node) and (
        program(node).shares or all(_written(program, one) for one in pieces(node) or [node])
    )


def _all_read(program: ProgramSupport, node: Any) -> bool:
    return all(_read(program, one, node) for one in node.all_input_nodes if one not in program.known)


def _read(program: ProgramSupport, one: Any, reader: Any) -> bool:
    """Whether a value that an operator reads has a range: a rounding's, or the one of what moved it; or is
    computed with the operator, from values that have."""
    if not is_real(one) or is_rounding(one):
        return True
    if one.op != "call_function":
        return False
    maker = one.args[0] if PIECE in str(one.target) else one
    if program(maker).shares:
        return _all_read(program, maker)
    return maker is one and _computed_as_one(program, one, reader) and _all_read(program, one)


def _written(program: ProgramSupport, node: Any) -> bool:
    """Whether a result has a range: a rounding's, or that of what is computed with it; or is read by none."""
    users = list(node.users)
    if not is_real(node) or not users or any(rounds(user) for user in users):
        return True
    known = users[0].op == "call_function" and PIECE not in str(node.target)
    return known and _computed_as_one(program, node, users[0]) and _written(program, users[0])


def _computed_as_one(program: ProgramSupport, node: Any, user: Any) -> bool:
    joined = program(node, user)
    return list(node.users) == [user] and joined.parts == 1 and not joined.reason


def _partitions(exported: Any, program: ProgramSupport, taken: set[Any]) -> list[set[Any]]:
    """Groups of nodes that depend on each other in no circle: operators that are taken, with the roundings
    and the constants that they read."""

    class Supported(OperatorSupportBase):  # type: ignore[misc]
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            if node.op != "call_function":
                return False
            if PIECE in str(node.target):
                return node.args[0] in taken
            if node in program.known:
                return all(user in taken or user in program.known for user in node.users)
            return node in taken or (is_rounding(node) and node.meta.get("val") is not None)

    proposed = CapabilityBasedPartitioner(
        exported.graph_module, Supported(), allows_single_node_partition=True
    ).propose_partitions()
    return [set(one.nodes) for one in proposed]
