"""The new verb at work: a recipe for a model, with its shapes and, where they are named, its data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli

from npuflow.base.errors import DataError, NpuflowError
from npuflow.base.tables import Locator, hints, read
from npuflow.base.tables_toml import Origin
from npuflow.base.tables_write import key, value
from npuflow.checkpoints.ports import CHUNK
from npuflow.cli._model import ModelPort, Ports, ports
from npuflow.cli._new_shapes import FixedSizes, bound, chunks, is_free, sizes, whole
from npuflow.cli._template import Draft, TemplateValue, write
from npuflow.input.sources import model_file

if TYPE_CHECKING:
    from npuflow.base.registry import Registry
    from npuflow.ir.types import TensorType

TRIED = 8  # samples that are read to find one that is sound


def text(
    model: str,
    folder: Path,
    registry: Registry,
    target: str | None = None,
    options: FixedSizes | None = None,
    data: str | None = None,
) -> str:
    """The text of a recipe in `folder`. Without data its samples are noise, so that it builds as it is."""
    file = model_file(model, Path.cwd())
    stated = sizes((options.dims if options is not None else None) or ())
    found = ports(file.path, stated)
    shapes = (options.shapes if options is not None else None) or ()
    batch = options.batch if options is not None else None
    shown = (
        model
        if model.startswith("pkg:")
        else os.path.relpath(file.path, folder.resolve()).replace(os.sep, "/")
    )
    given = bound(found, shapes)
    texts = _texts(data, folder, found)
    fixed = whole(found, given, _stored(data, found) if data is not None and texts is None else {})
    draft = _draft(data, folder, found, fixed) if texts is None else texts
    draft.fills["model", "path"] = TemplateValue(value(shown), "")
    draft.fills.update(_sizes(found, stated))
    if found.checkpoint:
        from npuflow.cli._new_numbers import fills

        draft.fills.update(fills(target))
    if batch is not None:
        draft.fills["model", "batch"] = TemplateValue(value(batch), "")
    freed = {port.name: fixed[port.name] for port in found.inputs if port.name in given or _free(port)}
    if freed:
        ones = [name for name in freed if name not in given and freed[name][:1] == (1,)]
        remark = f"the free batch dimension of {', '.join(ones)} is 1" if ones else "as --shape says"
        inner = ", ".join(f"{key(name)} = {value(shape)}" for name, shape in freed.items())
        draft.fills["model", "inputs"] = TemplateValue(f"{{ {inner} }}", remark)
    written = write(shown, found, registry, target, draft)
    if data is not None:
        _try(written, folder, fixed, found)
    return written


def _sizes(found: Ports, stated: Mapping[str, int]) -> Iterator[tuple[tuple[str, str], TemplateValue]]:
    """Sizes of named dimensions; of a language model the chunk lengths of its programs."""
    several = chunks(found, stated)
    kept = {name: size for name, size in found.sizes.items() if not several or name != CHUNK}
    if kept:
        inner = ", ".join(f"{key(name)} = {value(size)}" for name, size in kept.items())
        yield ("model", "dims"), TemplateValue(f"{{ {inner} }}", "as --dim says" if stated else "")
    if several:
        inner = ", ".join(f"{{ {CHUNK} = {count} }}" for count in several)
        remark = "tokens of a run: text is generated one by one, and a prompt read in chunks"
        yield ("model", "shapes"), TemplateValue(f"[{inner}]", remark)


def _free(port: ModelPort) -> bool:
    return port.shape is None or any(map(is_free, port.shape))


def _texts(data: str | None, folder: Path, found: Ports) -> Draft | None:
    """What the recipe says of texts; None where the model takes none, or the data are others."""
    if not found.text:
        return None
    from npuflow.cli._new_text import draft, text_places

    places = text_places(data, folder)
    return None if places is None else draft(places, found)


def _draft(data: str | None, folder: Path, found: Ports, fixed: Mapping[str, tuple[int, ...]]) -> Draft:
    if data is None:
        return Draft(
            {
                ("data", "source"): TemplateValue(
                    '"random"', "noise, to see a build work; put your samples here"
                )
            }
        )
    from npuflow.cli._new_data import draft

    return draft(data, folder, found, _types(found, fixed))


def _types(found: Ports, fixed: Mapping[str, tuple[int, ...]]) -> dict[str, TensorType]:
    from npuflow.ir.types import TensorType

    names = {"float": "float32", "double": "float64"}
    return {
        port.name: TensorType(fixed[port.name], names.get(port.dtype, port.dtype)) for port in found.inputs
    }


def _stored(data: str, found: Ports) -> dict[str, tuple[int, ...]]:
    """Shapes of the stored samples by model input, for the flags that an error proposes; nothing where they
    are unknown.
    """
    from npuflow.base.tables_files import resolve
    from npuflow.input.data.propose import parts, sample_shapes

    try:
        part = parts(resolve(data, Path.cwd())).calibration
        return sample_shapes(str(part), Path.cwd(), [port.name for port in found.inputs])
    except NpuflowError:
        return {}


def _try(written: str, folder: Path, fixed: Mapping[str, tuple[int, ...]], found: Ports) -> None:
    """Read a sample as a build will and feed the inputs with it: what does not work is said now."""
    from npuflow.input.data.config import Data
    from npuflow.input.data.listing import found as listed
    from npuflow.input.data.read import samples
    from npuflow.input.data.sequence import steps
    from npuflow.input.text.model import TextModel

    tables: Mapping[str, Any] = tomli.loads(written)
    place = Locator(default=Origin(None, None, folder.resolve()))
    also = {k: v for k, v in tables["model"].items() if k in hints(TextModel)}
    model, _ = read(TextModel, also, place)
    types = _types(found, fixed)
    for name in ("data", "evaluate"):
        if name not in tables:
            continue
        own = {k: v for k, v in tables[name].items() if k not in ("metric", "labels", "label")}
        if name == "evaluate" and "steps" not in own:
            own["steps"] = tables["data"].get("steps", [])
        table, faults = read(Data, own, place)
        if table is None:
            raise faults[0]
        if table.source.text == "random" or table.source.text.startswith("python:"):
            continue
        few = {k: (v.files, v.detail) for k, v in islice(listed(table, model).items(), TRIED)}
        read_ones = [sample for _, sample in samples(few)]
        sound = [sample for sample in read_ones if not sample.broken]
        if not sound:
            raise DataError(
                f'no sample of "{table.source.text}" can be read',
                because=read_ones[0].broken, code="NF-DATA-009",
            )
        if found.sequences:
            steps(sound[0], types)
        elif table.text is None:          # those have an axis of runs
            sound[0].feed(types)
