"""Arithmetic on sizes in TorchScript: the inputs' shapes are fixed, so that its results are constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZES = ("sym_size", "size", "sym_numel", "numel", "dim", "len")


def folded(torch: Any, module: Any, example: tuple[Any, ...]) -> None:
    """Replaces, in a torch.fx module, numbers computed from sizes and constants by their values.

    `example`: inputs of the fixed shapes. A tracer records arithmetic on sizes as operations on tensors of no
    dimensions; torch.export takes what is read from them for values that it cannot know."""
    numbers = _run(torch, module, example)
    for node, value in numbers.items():
        for user in list(node.users):
            swap = {node: value}
            user.args = torch.fx.map_arg(user.args, lambda one, swap=swap: swap.get(one, one))
            user.kwargs = torch.fx.map_arg(user.kwargs, lambda one, swap=swap: swap.get(one, one))
    module.graph.eliminate_dead_code()
    module.recompile()


def _run(torch: Any, module: Any, example: tuple[Any, ...]) -> Mapping[Any, Any]:
    """The Python numbers of a run, by node, that the values of the inputs cannot change."""
    found: dict[Any, Any] = {}
    variable: set[Any] = set()

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc]  # torch is not installed where mypy runs
        def run_node(self, node: Any) -> Any:
            made = super().run_node(node)
            sized = node.op == "call_function" and _kind(node) in SIZES
            if node.op == "placeholder" or (not sized and variable.intersection(node.all_input_nodes)):
                variable.add(node)
            elif isinstance(made, bool | int | float):
                found[node] = made
            return made

    with torch.no_grad():
        Recorder(module).run(*example)
    return found


def _kind(node: Any) -> str:
    target = str(node.target)
    return target.split(".")[1] if target.startswith("aten.") else getattr(node.target, "__name__", target)
