"""The recipe API without a file: a network, a target and data become a build with a recipe's keys."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.digest import bytes_digest
from npuflow.base.errors import UsageError
from npuflow.base.wording import first_line
from npuflow.cli._loaded import Build
from npuflow.flow.recipe_cache import cache_folder
from npuflow.flow.store_files import replace

if TYPE_CHECKING:
    from npuflow.flow.run import Result
    from npuflow.frontends import Reading
    from npuflow.ir.graph import Graph
    from npuflow.lang import Tensor

    Network = str | Path | Graph | Reading | Tensor | Sequence[Tensor] | Any
    # or an object of another package: an onnx.ModelProto, a torch.nn.Module or an exported program of torch

WANTED = (
    "a path, an onnx.ModelProto, a torch.nn.Module with example=..., or what npuflow.lang gives: a tensor, "
    "several, or a graph"
)


@dataclass(frozen=True)
class Compiled(Build):
    """A finished build: its artifacts and tables, and what ran for it."""

    result: Result

    @property
    def products(self) -> Mapping[str, Path]:
        """Where the products lie, by name."""
        return self.result.products


def compile(  # noqa: A001
    network: Network,
    /,
    target: str | Path | Mapping[str, Any],
    *,
    data: Any = None,
    example: Any = None,
    name: str = "",
    cache: str | Path | None = None,
    out: str | Path | None = None,
    until: str | None = None,
    jobs: int | None = None,
    **tables: Any,
) -> Compiled:
    """Builds a network for a target, as a recipe with these tables would. `network`: a path, an
    onnx.ModelProto, a torch.nn.Module, an exported program of torch, or what npuflow.lang gives. `data`: what
    [data] `source` may be, its table, or arrays (one, or by input). `example`: of a torch.nn.Module, an
    example input or a tuple of them, whose shapes the program has; without it, the first sample of one array
    of `data`. Further keywords are tables of the recipe, `model` among
    them, whose path is the network. Relative paths start from the working directory."""
    from npuflow.cli._engine import plan as wired
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import Settings, build, open_cache

    place = cache_folder(cache, None, Path.cwd()) / "given"
    given = _model_path(network, place, example, data)
    called = name or (given.stem if isinstance(network, str | Path) else "network")
    rows: dict[str, Any] = {**tables, "model": {**_model_table(tables), "path": str(given)}}
    rows["target"] = str(target) if isinstance(target, str | Path) else dict(target)
    if data is not None:
        rows["data"] = _data(data, place)
    recipe = dataclasses.replace(load(None, tables=rows, lenient=True), name=called)
    settings = Settings(cache=cache, out=out, until=until, jobs=jobs)
    result = build(recipe, cache=cache, out=out, until=until, jobs=jobs)
    return Compiled(recipe, wired(recipe), open_cache(recipe, settings), result)


def _model_table(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table [model] without its path, which is the network."""
    table = tables.get("model", {})
    if not isinstance(table, Mapping) or "path" in table:
        raise UsageError(
            "`model` is the table [model] of the recipe without its path",
            because="the network is the first argument",
            hint='npuflow.compile(network, target, model={"inputs": {"x": [1, 3, 64, 64]}})',
            code="NF-USAGE-264",
        )
    return table


def _model_path(model: Any, place: Path, example: Any = None, data: Any = None) -> Path:
    """The model's file; a network that is no file yet is written under its digest."""
    foreign = _foreign(model, example, data)
    if foreign is not None:
        return _kept(*foreign, place)
    if example is not None:
        raise UsageError(
            f"a network of {type(model).__name__} takes no example",
            because="it states its inputs; example=... is for a torch.nn.Module", code="NF-USAGE-268",
        )
    if isinstance(model, str | Path):
        return Path(model).resolve() if not str(model).startswith(("pkg:", "python:")) else Path(model)
    from npuflow.frontends import Reading
    from npuflow.ir.graph import Graph
    from npuflow.ir.packed import pack
    from npuflow.lang import reading

    if isinstance(model, Graph):
        model = Reading(model)
    elif not isinstance(model, Reading):
        try:
            model = reading(model)
        except TypeError:
            raise UsageError(
                f"a network of {type(model).__name__} cannot be compiled", hint=WANTED, code="NF-USAGE-098",
            ) from None
    return _kept(pack(model.graph, model.stated), ".npg", place)


def _foreign(model: Any, example: Any, data: Any) -> tuple[bytes, str] | None:
    """The content of a file and its suffix, of an object of a package that is loaded; None of others."""
    onnx, torch = sys.modules.get("onnx"), sys.modules.get("torch")
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return _onnx_bytes(model), ".onnx"
    if torch is None or not isinstance(model, torch.nn.Module | torch.export.ExportedProgram):
        return None
    from npuflow.frontends.torch.load import of_module

    if example is None and isinstance(model, torch.nn.Module):
        example = _first_sample(data)
    return of_module(model, example), ".npg"


def _onnx_bytes(model: Any) -> bytes:
    outside = [tensor.name for tensor in model.graph.initializer if tensor.data_location]
    hint = "onnx.save it and give the path of the file"
    if outside:
        raise UsageError(
            "an onnx.ModelProto holds its weights itself to be compiled",
            because=f"those of \"{outside[0]}\" are in another file", hint=hint, code="NF-USAGE-269",
        )
    try:
        return bytes(model.SerializeToString(deterministic=True))
    except Exception as fault:  # protobuf's errors share no base class
        raise UsageError(
            "the onnx.ModelProto cannot be written", because=first_line(fault),
            hint=f"above 2 GB, {hint}, with save_as_external_data=True", code="NF-USAGE-269",
        ) from fault


def _first_sample(data: Any) -> Any:
    """An example input: the first of the samples where they are one array."""
    import numpy as np

    if isinstance(data, np.ndarray) and data.ndim and len(data):
        return data[:1]
    raise UsageError(
        "a torch.nn.Module needs an example input",
        because="it states no shapes, and the data are not one array",
        hint="npuflow.compile(module, target, example=torch.zeros(1, 3, 224, 224), data=...)",
        code="NF-USAGE-267",
    )


def _data(data: Any, place: Path) -> dict[str, Any]:
    """The table [data]; arrays are written under their digest."""
    import io

    import numpy as np

    if isinstance(data, str | Path):
        return {"source": str(data)}
    file = io.BytesIO()
    if isinstance(data, np.ndarray):
        np.save(file, data, allow_pickle=False)
        return {"source": str(_kept(file.getvalue(), ".npy", place))}
    if isinstance(data, Mapping) and data and all(isinstance(v, np.ndarray) for v in data.values()):
        np.savez(file, **data)
        return {"source": str(_kept(file.getvalue(), ".npz", place))}
    if not isinstance(data, Mapping):
        raise UsageError(
            f"data of {type(data).__name__} is not possible",
            hint="a path, the table [data] as a dictionary, an array, or arrays by input",
            code="NF-USAGE-099",
        )
    return {key: str(value) if isinstance(value, Path) else value for key, value in data.items()}


def _kept(content: bytes, suffix: str, place: Path) -> Path:
    """A file of this content in the cache's folder of such files."""
    path = place / f"{bytes_digest(content).split(':')[-1]}{suffix}"
    if not path.is_file():
        place.mkdir(parents=True, exist_ok=True)
        replace(str(path), content, str(place))
    return path
