"""Operators that run modules: torch.cond, and modules that are called within no_grad or autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuflow.frontends.torch.network import TorchComplex, TorchNetwork, TorchOperatorError, TorchValue

# Their module behind this many arguments, which say how gradients or precision are handled in training.
WRAPPERS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}


def called(net: TorchNetwork, node: Any, add: Callable[[Any], None]) -> list[Any]:
    """The results of such an operator; `add` adds the operators of a module. TorchOperatorError for others,
    and where a module cannot be added."""
    name, args = node.target.name(), net[node.args]
    if name in WRAPPERS:
        module, *operands = args[WRAPPERS[name] :]
        return _results(net, module, operands, add)
    if name != "cond":
        raise TorchOperatorError("a loop whose steps depend on data" if "while" in name else "no converter")
    chosen, yes, no, *given = args
    operands = given[0] if given else []
    if not isinstance(chosen, TorchValue):
        return _results(net, yes if bool(chosen) else no, operands, add)
    origin = net.origin
    pairs = zip(_results(net, yes, operands, add), _results(net, no, operands, add), strict=True)
    net.origin = node.name
    net.graph.notes.append(
        f"torch.cond ({node.name}) depends on data: both branches are computed, and a Where chooses"
    )
    made = [_chosen(net, chosen, a, b) for a, b in pairs]
    net.origin = origin
    return made


def _results(net: TorchNetwork, module: Any, operands: list[Any], add: Callable[[Any], None]) -> list[Any]:
    """The results of a module with these operands."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    net.values.update(zip(places, operands, strict=True))
    add(module)
    (last,) = [node for node in module.graph.nodes if node.op == "output"]
    results = last.args[0] if isinstance(last.args[0], list | tuple) else [last.args[0]]
    if any(isinstance(one, net.torch.fx.Node) and one not in net.values for one in results):
        raise TorchOperatorError("a branch has operators that cannot be converted")
    return [net[one] for one in results]


def _chosen(net: TorchNetwork, chosen: TorchValue, yes: Any, no: Any) -> Any:
    if yes is None or no is None:
        return None
    if isinstance(yes, TorchComplex) or isinstance(no, TorchComplex):
        raise TorchOperatorError("branches with complex numbers")
    if net.shape(yes) != net.shape(no):
        raise TorchOperatorError(f"branches of the shapes {list(net.shape(yes))} and {list(net.shape(no))}")
    return net.apply("Where", chosen, yes, no)
