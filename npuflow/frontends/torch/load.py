"""Loads a PyTorch file or function in a process of its own, as a packed graph."""

from __future__ import annotations

import inspect
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from npuflow.base.digest import digest
from npuflow.base.errors import ModelError, NpuflowError
from npuflow.base.extras import needs
from npuflow.base.tables_write import key
from npuflow.frontends import CodePlace
from npuflow.frontends.torch.quantized import registered
from npuflow.frontends.torch.sizes import folded


def converted(path: Path, inputs: Mapping[str, tuple[int, ...]]) -> tuple[bytes, tuple[str, ...]]:
    """The packed graph, and notes. `inputs`: shapes that the recipe gives."""
    from npuflow.frontends.torch.convert import packed

    said: list[str] = []
    made = program(path, inputs, said)
    data, notes = packed(*made) if isinstance(made, tuple) else packed(made)
    return data, (*said, *notes)


def placed(path: Path, inputs: Mapping[str, tuple[int, ...]]) -> dict[str, CodePlace]:
    """Where the operators come from, by their names in the graph that `converted` gives."""
    from npuflow.frontends.torch.convert import places

    made = program(path, inputs, [])
    return places(*made) if isinstance(made, tuple) else places(made)


def of_module(module: Any, example: Any) -> bytes:
    """The packed graph of a module, or of an exported program, of this process. `example`: an input, or a
    tuple of them; torch tensors or arrays, which give the shapes and the types. None for an exported program.
    The module's mode is as before."""
    from npuflow.frontends.torch.convert import packed

    torch = _torch()
    if isinstance(module, torch.export.ExportedProgram):
        registered()
        return packed(_fixed(torch, module, {}, []))[0]
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            "a TorchScript module is compiled from its file",
            hint='torch.jit.save(module, "net.pt"), then the path "net.pt" with model={"inputs": {...}}',
            code="NF-MODEL-393",
        )
    given = tuple(example) if isinstance(example, list | tuple) else (example,)
    tensors = tuple(one if isinstance(one, torch.Tensor) else torch.as_tensor(one) for one in given)
    modes = {part: part.training for part in module.modules()}
    try:
        return packed(exported(torch, module.eval(), tensors))[0]
    finally:
        for part, training in modes.items():
            part.training = training


def described(path: Path) -> dict[str, str]:
    """Digests of the code that a function of the user reaches, and of the weights that it gives."""
    from npuflow.base.code import whole_digest

    _torch()
    made, module, _ = _called(path)
    state = {name: _digest(value) for name, value in module.state_dict().items()}
    return {"code": whole_digest(made), "state": digest(state), "text": digest(repr(module))}


def _digest(value: Any) -> str:
    from npuflow.base.digest import digest_array

    return digest_array(value.detach().float().cpu().numpy()) if hasattr(value, "detach") else repr(value)


def _torch() -> Any:
    with needs(
        "reading PyTorch modules needs the package torch",
        kind=ModelError,
        hint="pip install 'npuflow[torch]'",
        code="NF-MODEL-084",
    ):
        import torch
    return torch


def program(path: Path, inputs: Mapping[str, tuple[int, ...]], notes: list[str]) -> Any:
    """The exported program of a path, in evaluation mode, with fixed shapes; of TorchScript with the names of
    its inputs. What had to be assumed goes to `notes`."""
    torch = _torch()
    warnings.simplefilter("ignore")
    if path.suffix == ".pt2":
        registered()
        return _fixed(torch, _loaded(path, torch.export.load), inputs, notes)
    if path.suffix == ".pt":
        return _scripted(torch, path, inputs)
    _, module, example = _called(path)
    return exported(torch, module, _shaped(torch, module, example, inputs))


def _loaded(path: Path, load: Any) -> Any:
    try:
        return load(str(path))
    except Exception as fault:  # torch raises RuntimeError, KeyError, pickle and zip errors alike
        if pickled(path):
            raise ModelError(
                f'"{path.name}" holds weights or a pickled module, no program',
                because="torch.save wrote it; it does not say what the network computes",
                hint='load it in a function: path = "python:FILE.py:FUNCTION", which returns (module, '
                "example_inputs), or torch.export.save(torch.export.export(module, inputs), FILE.pt2)",
                code="NF-MODEL-350",
            ) from fault
        raise ModelError(
            f'"{path.name}" cannot be loaded by torch',
            because=_line(fault),
            hint="torch.export.save(torch.export.export(module, inputs), FILE.pt2) writes one",
            code="NF-MODEL-085",
        ) from fault


def pickled(path: Path) -> bool:
    """Whether `torch.save` wrote the file: an archive with a pickle and no code, or a bare pickle of older
    releases."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.rpartition("/")[2] for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        with path.open("rb") as file:
            return file.read(2) == b"\x80\x02"
    return "data.pkl" in names and "constants.pkl" not in names


def _fixed(torch: Any, found: Any, inputs: Mapping[str, tuple[int, ...]], notes: list[str]) -> Any:
    """The program itself where its shapes are fixed, else exported again: for a batch of one where the batch
    is free, other free sizes as the example has them, or as the recipe says."""
    values = [n.meta.get("val") for n in found.graph.nodes if n.op == "placeholder"]
    if all(isinstance(size, int) for v in values for size in getattr(v, "shape", ())) and not inputs:
        return found
    example = found.example_inputs
    if example is None:
        raise ModelError(
            "the exported program has free shapes and no example inputs",
            hint="[model] inputs gives the shapes",
            code="NF-MODEL-086",
        )
    module, given = found.module(), tuple(example[0])
    single = _single(given, values[len(values) - len(given) :])
    if single is not None:
        try:
            made = exported(torch, module, _shaped(torch, module, single, inputs))
        except ModelError:                    # the program says that its batch is larger
            single = None
        else:
            notes.append("the free batch of the exported program is 1 ([model] inputs states another)")
            return made
    return exported(torch, module, _shaped(torch, module, given, inputs))


def _single(example: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The example inputs with a batch of one: a first size that is free, and stands nowhere else. None where
    there is no such size, or the example has it already."""
    shapes = [tuple(getattr(value, "shape", ())) for value in values]
    inner = {str(size) for shape in shapes for size in shape[1:]}
    free = [
        bool(shape) and not isinstance(shape[0], int) and str(shape[0]) not in inner for shape in shapes
    ]
    if len(values) != len(example) or not any(free) or all(
        not one or part.shape[0] == 1 for one, part in zip(free, example, strict=True)
    ):
        return None
    return tuple(part[:1] if one else part for one, part in zip(free, example, strict=True))


def _scripted(torch: Any, path: Path, inputs: Mapping[str, tuple[int, ...]]) -> Any:
    """TorchScript through torch's own converter, and its inputs' names; it states no shapes."""
    module = _loaded(path, torch.jit.load)
    if not hasattr(module, "graph"):
        raise ModelError(
            f'"{path.name}" holds no TorchScript module',
            because=f"it holds {type(module).__name__}",
            hint="export the module to a .pt2 file",
            code="NF-MODEL-087",
        )
    names = [value.debugName().split(".")[0] for value in list(module.graph.inputs())[1:]]
    lost = [name for name in names if name not in inputs]
    if lost:
        shapes = ", ".join(f"{key(name)} = [...]" for name in names)
        raise ModelError(
            f'"{path.name}" states no shapes',
            because=f"TorchScript has none; its inputs are {', '.join(names)}",
            hint=f"[model] inputs = {{ {shapes} }}, or export the module to a .pt2 file",
            code="NF-MODEL-102",
        )
    example = tuple(torch.zeros(inputs[name]) for name in names)
    try:
        from torch._export import converter

        class Converter(converter.TS2EPConverter):  # type: ignore[misc]  # torch may be missing
            def retrace_as_exported_program(self, gm: Any, name_to_constant: Any) -> Any:
                folded(torch, gm, example)
                return super().retrace_as_exported_program(gm, name_to_constant)

        # the recipe's shapes are fixed; the converter would make every dimension free
        with mock.patch.object(converter, "Dim", SimpleNamespace(AUTO=torch.export.Dim.STATIC)):
            return Converter(module.eval(), example).convert(), names
    except Exception as fault:  # whatever of TorchScript torch cannot export any more
        raise _unexportable(fault) from fault


def _called(path: Path) -> tuple[Any, Any, Any]:
    """A function of the user's, and what it returns: a module in evaluation mode, and example inputs."""
    from npuflow.base.foreign import function

    file, _, name = path.name.partition(":")
    if not name:
        raise ModelError(
            f'"{file}" is a Python file',
            because="a function in it has to be named",
            hint=f'path = "python:{file}:function", which returns (module, example_inputs)',
            code="NF-MODEL-088",
        )
    made, _ = function(Path(file).stem, name, path.parent, path.with_name(file))
    try:
        given = made()
    except Exception as fault:  # the boundary to the user's own code
        raise ModelError(f"{name} of {file} fails", because=_line(fault), code="NF-MODEL-089") from fault
    torch = _torch()
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], torch.nn.Module)):
        raise ModelError(
            f"{name} of {file} must return (module, example_inputs)",
            because=f"it returns {type(given).__name__}",
            code="NF-MODEL-103",
        )
    module, example = given
    return made, module.eval(), tuple(example) if isinstance(example, list | tuple) else (example,)


def _shaped(torch: Any, module: Any, example: Any, inputs: Mapping[str, tuple[int, ...]]) -> tuple[Any, ...]:
    """The example inputs, in the shapes that the recipe gives."""
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        names = []
    found = []
    for i, one in enumerate(example):
        shape = inputs.get(names[i]) if i < len(names) else None
        found.append(one if shape is None else torch.zeros(shape, dtype=one.dtype))
    return tuple(found)


def exported(torch: Any, module: Any, example: tuple[Any, ...]) -> Any:
    try:
        with torch.no_grad():
            return torch.export.export(module, example)
    except NpuflowError:
        raise
    except Exception as fault:  # torch's own kinds, and whatever the module's code raises
        raise _unexportable(fault) from fault


def _unexportable(fault: Exception) -> ModelError:
    return ModelError(
        "torch does not export the module",
        because=_line(fault),
        hint="torch.export.export(module, inputs) says more; control flow on values has to go",
        code="NF-MODEL-090",
    )


def _line(fault: Exception) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return f"{type(fault).__name__}: {lines[0][:300]}" if lines else type(fault).__name__
