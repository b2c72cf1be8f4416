"""An exported program as a graph: every ATen operator by its converter, modules' names as origins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.base.wording import counted
from npuflow.frontends import Bindings, CodePlace, Reading
from npuflow.frontends._nodes import ends
from npuflow.frontends._nodes.traces import line_of
from npuflow.frontends.torch.branches import called
from npuflow.frontends.torch.complex_values import COMPLEX
from npuflow.frontends.torch.elements import ELEMENTS
from npuflow.frontends.torch.fourier import FOURIER
from npuflow.frontends.torch.layers import LAYERS
from npuflow.frontends.torch.network import (
    DTYPES,
    TorchComplex,
    TorchNetwork,
    TorchOperatorError,
    TorchValue,
)
from npuflow.frontends.torch.quantized import LIBRARY, QUANTIZED
from npuflow.frontends.torch.quantized import reading as quantised
from npuflow.frontends.torch.recurrent import RECURRENT
from npuflow.frontends.torch.shapes import SHAPES
from npuflow.frontends.torch.warps import WARPS
from npuflow.ir.packed import pack
from npuflow.ir.types import TensorType
from npuflow.onnx.types import value_info

CONVERTERS = {**ELEMENTS, **LAYERS, **SHAPES, **RECURRENT, **QUANTIZED, **WARPS, **FOURIER}
APART = ("complex", "view_as_complex", "view_as_complex_copy")  # they make complex numbers of real ones
VIEWS = (
    "view",
    "slice",
    "select",
    "transpose",
    "permute",
    "unsqueeze",
    "squeeze",
    "expand",
    "chunk",
    "split",
    "unbind",
    "t",
    "alias",
    "reshape",
    "flatten",
    "unflatten",
    "swapaxes",
    "getitem",
)
RANDOM = ("rand", "randn", "bernoulli", "randint", "normal", "multinomial")


def packed(program: Any, names: Sequence[str] = ()) -> tuple[bytes, tuple[str, ...]]:
    """The packed graph of an exported program, and notes. `names`: of its inputs, in order."""
    import torch

    done, refused = converted(torch, program, names)
    if refused:
        # what has no converter is decomposed, and nothing else: norms, attention and recurrent layers stay
        program = decomposed(torch, program, set(refused))
        done, refused = converted(torch, program, names)
    if refused:
        listed = [f"{name} ({count} times)" if count > 1 else name for name, count in refused.items()]
        raise ModelError(
            f"{counted(sum(refused.values()), 'operator')} of the PyTorch module cannot be converted",
            because="; ".join(listed),
            hint="export the part without them, or export the module to ONNX",
            code="NF-MODEL-091",
        )
    return done


def places(program: Any, names: Sequence[str] = ()) -> dict[str, CodePlace]:
    """Where the operators of an exported program come from, by the names that `packed` gives them."""
    import torch

    _, refused = converted(torch, program, names)
    if refused:
        program = decomposed(torch, program, set(refused))
    found: dict[str, CodePlace] = {}
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "call_function":
                found.setdefault(origin(node), _place(node))
    return {name: place for name, place in found.items() if place != CodePlace()}


def _place(node: Any) -> CodePlace:
    """The innermost module that an operator is in, and its line."""
    path, kind = _module_of(node)
    return CodePlace(path, kind.rpartition(".")[2], *line_of(str(node.meta.get("stack_trace") or "")))


def decomposed(torch: Any, program: Any, names: set[str]) -> Any:
    """The program with these operators alone written in simpler ones, where torch knows how."""
    table = torch.export.default_decompositions()
    chosen = {op: rule for op, rule in table.items() if any(n.startswith(str(op)) for n in names)}
    if not chosen:
        return program
    try:
        return program.run_decompositions(chosen)
    except Exception:
        return program


def converted(
    torch: Any, program: Any, names: Sequence[str]
) -> tuple[tuple[bytes, tuple[str, ...]], Counter[str]]:
    net = TorchNetwork(torch)
    fed = _placeholders(net, program, names)
    refused: Counter[str] = Counter()
    _module(net, program.graph_module, refused)
    if refused:
        return (b"", ()), refused
    wanted = _outputs(net, program)
    rounded = any(str(node.target).startswith(LIBRARY) for node in program.graph.nodes)
    found = quantised(net, fed, wanted) if rounded else ends.reading(net.graph, fed, wanted, {})
    return (pack(found.graph, found.stated), found.notes), refused


def alone(torch: Any, nodes: Sequence[Any], known: Mapping[Any, Any]) -> Reading | str:
    """Convert some operators of a program to a network of their own; else the reason why one of them cannot
    be converted. `known`: constant tensors by node. Other values that the operators read become inputs, each
    with its node's name."""
    net = TorchNetwork(torch)
    infos, read = [], dict.fromkeys(i for node in nodes for i in node.all_input_nodes if i not in nodes)
    for one in read:
        if one in known:
            net.values[one] = known[one]
            net.kept.append(known[one])
        else:
            infos.append(value_info(one.name, _type(one.meta["val"])))
            net.values[one] = TorchValue(one.name)
    fed, _ = ends.inputs(net.graph, infos, [], Bindings())
    for name, one in zip(fed, (one for one in read if one not in known), strict=True):
        net.values[one] = TorchValue(net.graph.singles.get(name, name))
    for node in nodes:
        reason = _convert(net, node, set())
        if reason:
            return reason
    last = [node for node in nodes if any(user not in nodes for user in node.users)] or nodes[-1:]
    found = [one for node in last for one in _flat(net[node]) if isinstance(one, TorchValue)]
    return ends.reading(net.graph, fed, [net.name(one) for one in found], {})


def _module(net: TorchNetwork, module: Any, refused: Counter[str]) -> None:
    """Adds the operators of a module: of the program itself, or of one that it calls."""
    lost: set[Any] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            net.values[node] = attrgetter(node.target)(module)
        if node.op != "call_function":
            continue
        if isinstance(node.target, net.torch._ops.HigherOrderOperator):
            reason = _calling(net, node, lost, refused)
        else:
            reason = _convert(net, node, lost)
        if reason:
            refused[reason] += 1
        if reason is not None:
            lost.add(node)


def _calling(net: TorchNetwork, node: Any, lost: set[Any], refused: Counter[str]) -> str | None:
    """An operator that runs other modules (torch.cond): they are added in its place. Else why not, as
    `_convert` says it."""
    if lost.intersection(node.all_input_nodes):
        return ""
    before = sum(refused.values())
    try:
        net.values[node] = called(net, node, lambda module: _module(net, module, refused))
    except TorchOperatorError as fault:
        # what is refused within a branch says more than that the branch has no result
        return f"{node.target}: {fault}" if sum(refused.values()) == before else ""
    return None


def _placeholders(net: TorchNetwork, program: Any, names: Sequence[str]) -> list[str]:
    """Parameters, buffers and constants as torch tensors; inputs as values. The names of inputs."""
    signature = program.graph_signature
    held = {**dict(program.state_dict), **dict(program.constants)}
    stored = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    infos: list[Any] = []
    ports: list[tuple[Any, str]] = []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        if node.name in stored:
            tensor = held[stored[node.name]].detach()
            net.values[node] = tensor
            net.names[id(tensor)] = stored[node.name]
            net.kept.append(tensor)
            continue
        example = node.meta.get("val")
        if not isinstance(example, net.torch.Tensor):
            net.values[node] = example
            continue
        name = names[len(ports)] if len(ports) < len(names) else node.name
        infos.append(value_info(name, _type(example)))
        ports.append((node, name))
    fed, _ = ends.inputs(net.graph, infos, [], Bindings())
    for node, name in ports:
        net.values[node] = TorchValue(net.graph.singles.get(name, name))
    return fed


def _type(example: Any) -> TensorType:
    dtype = str(example.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ModelError(f"an input of {dtype} is not possible", code="NF-MODEL-092")
    return TensorType(tuple(int(size) for size in example.shape), dtype)


def _outputs(net: TorchNetwork, program: Any) -> list[str]:
    """Names of the network's outputs, each a value of its own."""
    (last,) = [node for node in program.graph.nodes if node.op == "output"]
    user = set(program.graph_signature.user_outputs)
    leaves = _flat(last.args[0])
    keys = _keys(net.torch, program, len(leaves))
    rows = [(one, key) for one, key in zip(leaves, keys, strict=True) if getattr(one, "name", None) in user]
    if not rows:
        raise ModelError("the module returns no tensor", code="NF-MODEL-104")
    found: list[str] = []
    for i, (one, key) in enumerate(rows):
        if isinstance(net[one], TorchComplex):
            raise ModelError(
                f"output {i} of the module is complex", hint="return torch.view_as_real of it, or its abs()",
                code="NF-MODEL-394",
            )
        net.origin = key or ("output" if len(rows) == 1 else f"output{i}")
        name = net.name(net[one])
        fixed = name in found or name in net.graph.arrays or not isinstance(net[one], TorchValue)
        if fixed or (key and name != key):
            name = net.apply("Identity", name).name
        found.append(name)
    return found


def _keys(torch: Any, program: Any, count: int) -> list[str]:
    """What the module calls each of its outputs: the keys of dictionaries and names of fields on the way to
    it, with dots between ("aux.0"); "" for members of plain tuples and lists. Buffers that the program
    changes come first, and have none."""
    tree = torch.utils._pytree
    spec = getattr(getattr(program, "call_spec", None), "out_spec", None)
    if spec is None or not hasattr(tree, "tree_flatten_with_path"):
        return [""] * count
    whole = tree.tree_unflatten(list(range(spec.num_leaves)), spec)
    names = []
    for path, _ in tree.tree_flatten_with_path(whole)[0]:
        parts = [str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", "")))) for p in path]
        named = any(hasattr(p, "key") or hasattr(p, "name") for p in path)
        names.append(".".join(parts) if named else "")
    return [""] * (count - len(names)) + names if len(names) <= count else [""] * count


def _flat(one: Any) -> list[Any]:
    return [part for each in one for part in _flat(each)] if isinstance(one, list | tuple) else [one]


def _convert(net: TorchNetwork, node: Any, lost: set[Any]) -> str | None:
    """Adds an operator; else why not, and "" where that is another operator's fault."""
    target = str(node.target)
    if lost.intersection(node.all_input_nodes):
        return ""
    kind = (
        target.split(".")[1]
        if target.startswith(("aten.", LIBRARY))
        else "getitem"
        if "getitem" in target
        else target
    )
    args, kwargs = net[node.args], {key: net[value] for key, value in node.kwargs.items()}
    net.origin = origin(node)
    values = [v for v in _flat([args, list(kwargs.values())]) if isinstance(v, TorchValue | TorchComplex)]
    if not values and kind not in RANDOM and kind not in QUANTIZED:
        try:
            with net.torch.no_grad():
                net.values[node] = node.target(*args, **kwargs)
        except Exception as fault:
            return f"{target}: {fault}"
        return None
    plain = kind.rstrip("_") if not kind.startswith("_") else kind
    known = CONVERTERS
    if plain not in FOURIER and (plain in APART or _is_complex(net, node, values)):
        known = COMPLEX
    if plain not in known:
        return f"{target}: of complex numbers" if known is COMPLEX and plain in CONVERTERS else target
    try:
        made = known[plain](net, node, args, kwargs)
    except TorchOperatorError as fault:
        return f"{target}: {fault}"
    except NpuflowError:
        raise
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as fault:
        return f"{target}: {type(fault).__name__}: {fault}"
    net.values[node] = made
    if kind != plain and target.startswith("aten."):
        return _mutated(net, node, made, target)
    return None


def _is_complex(net: TorchNetwork, node: Any, values: Sequence[Any]) -> bool:
    """Whether an operator takes or gives complex numbers."""
    made = node.meta.get("val")
    gives = [one for one in _flat([made]) if isinstance(one, net.torch.Tensor)]
    return any(isinstance(one, TorchComplex) for one in values) or any(one.is_complex() for one in gives)


def _mutated(net: TorchNetwork, node: Any, made: Any, target: str) -> str | None:
    """An operator in place: what reads its operand later reads the result."""
    first = node.args[0]
    if isinstance(net.values[first], TorchValue):
        base = str(first.target).split(".")[1] if str(first.target).startswith("aten.") else ""
        if base in VIEWS and any(len(one.users) > 1 for one in first.all_input_nodes):
            return f"{target}: in place on a view of another tensor"
        net.values[first] = made
        return None
    return f"{target}: data written into a constant"


def _module_of(node: Any) -> tuple[str, str]:
    """The path of the innermost module that an operator is in, and its class."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    inner = str(stack[-1][0]) if stack else ""
    for prefix in ("L['self'].", "self."):
        inner = inner.removeprefix(prefix)
    return inner, str(stack[-1][1]) if stack else ""


def origin(node: Any) -> str:
    """The name of the module that the operator is in, else the operator's own."""
    inner, layer = _module_of(node)
    return (
        inner
        if inner and "torch.nn.modules" in layer and "container" not in layer
        else (f"{inner}/{node.name}" if inner else node.name)
    )
