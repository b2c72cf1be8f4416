"""The text of a new recipe: every table with its keys and defaults, and what is known of a model."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuflow.base.errors import UsageError, meant
from npuflow.base.registry import Registry
from npuflow.base.tables import Config, hints, instead, table_of
from npuflow.base.tables_schema import field_docs, type_schema
from npuflow.base.tables_write import dotted_header, key, sketch, value
from npuflow.cli._model import Ports
from npuflow.flow.recipe import SETTINGS
from npuflow.flow.recipe_files import library_folders

DEFAULT = "edge-4t"                       # as `npuflow inspect` has it
STEPS = (
    "# Steps that turn a picture into a model input, in order; values of 0..255 become (x - mean) / std:",
    "# [[data.steps]]",
    "# resize = [224, 224]",
    "# [[data.steps]]",
    "# normalize = { mean = [123.675, 116.28, 103.53], std = [58.395, 57.12, 57.375] }",
    "# [[data.steps]]",
    '# layout = "nchw"',
)


@dataclass(frozen=True)
class TemplateValue:
    """A key that the template can fill in: its value as TOML, and a remark."""

    text: str
    remark: str = ""


@dataclass
class Draft:
    """What a recipe for this very model and these data says beyond the defaults."""

    fills: dict[tuple[str, str], TemplateValue] = field(default_factory=dict)
    blocks: dict[str, tuple[str, ...]] = field(default_factory=dict)    # lines below the keys of a table
    on: set[str] = field(default_factory=set)                           # optional tables that are there
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)     # what stands above a table
    checks: dict[str, Any] = field(default_factory=dict)                # what was found, by table


def write(shown: str, found: Ports, registry: Registry, target: str | None, draft: Draft) -> str:
    """The text of a recipe for the model that it names `shown`."""
    return "\n".join(_document(shown, found, registry, target, draft)).rstrip() + "\n"


def _document(
    shown: str, found: Ports, registry: Registry, target: str | None, draft: Draft
) -> Iterator[str]:
    yield f"# Recipe for {Path(shown).name}: {found.about}."
    yield from (f"#   input   {port.name}  {port}" for port in found.inputs)
    yield from (f"#   output  {port.name}  {port}" for port in found.outputs)
    yield "# A key behind a # has the value shown, unless it is not set; take the # away to change it."
    yield ""
    libraries = library_folders()
    tables = in_order(registry)
    if any(table_of(cls).split(".")[0] == "target" for cls, _ in tables) and "target" in libraries:
        yield from _target(sorted(p.stem for p in libraries["target"].glob("*.toml")), target)
    sections: dict[str, list[tuple[type[Config], bool]]] = {}
    for cls, on in (*tables, *((cls, False) for cls in SETTINGS)):
        if table_of(cls).split(".")[0] not in libraries:
            sections.setdefault(table_of(cls), []).append((cls, on or table_of(cls) in draft.on))
    for classes in sections.values():
        yield from _table(classes, draft)


def _target(names: list[str], chosen: str | None) -> Iterator[str]:
    if chosen is not None and chosen not in names and not chosen.endswith(".toml"):
        raise UsageError(
            f'no target "{chosen}"',
            because=f"known: {', '.join(names)}", hint=meant(chosen, names), code="NF-USAGE-034",
        )
    yield f"# The NPU to compile for: {', '.join(names)}, or a path to a TOML file."
    yield f"target = {value(chosen or (DEFAULT if DEFAULT in names else names[0]))}"
    yield ""


def _table(classes: Sequence[tuple[type[Config], bool]], draft: Draft) -> Iterator[str]:
    """One table of the recipe: the keys of every class that reads it."""
    header = table_of(classes[0][0])
    on = any(always for _, always in classes)
    for cls, _ in classes:
        about = inspect.cleandoc(cls.__doc__ or "")
        if about and not about.startswith(f"{cls.__name__}("):
            yield from _comment(about.split("\n\n")[0])
    for note in draft.notes.get(header, ()):
        yield from _comment(note)
    yield f"{'' if on else '# '}[{dotted_header(header)}]"
    below = {"data": STEPS, **draft.blocks}
    seen: set[str] = set()
    for cls, _ in classes:
        docs = field_docs(cls)
        for name, default in sketch(cls):
            if name not in seen and not (name == "steps" and header in below):       # tables of their own
                yield from _key(cls, name, default, draft.fills.get((header, name)), docs.get(name, ""), on)
            seen.add(name)
    yield from below.get(header, ())
    yield ""


def _key(
    cls: type[Config], name: str, default: str | None, fill: TemplateValue | None, about: str, on: bool
) -> Iterator[str]:
    """The line of one key: filled in, with its default behind a #, or with a value to start from."""
    off = "" if on else "# "
    remark = "; ".join(filter(None, [(fill.remark if fill else about).rstrip("."), _allowed(cls, name)]))
    if fill is not None:
        line = f"{off}{key(name)} = {fill.text}"
    elif default is not None:
        line = f"# {key(name)} = {default}"
    elif _required(cls, name):
        line = f"{off}{key(name)} = {_empty(cls, name)}"
        remark = "; ".join(filter(None, ["must be given", remark]))
    else:
        line = f"# {key(name)} = {_empty(cls, name)}"
        remark = "; ".join(filter(None, ["not set", remark]))
    yield from _with_remark(line, " ".join(remark.split()))


def _required(cls: type[Config], name: str) -> bool:
    from dataclasses import MISSING, fields

    field = next(f for f in fields(cls) if f.name == name)  # type: ignore[arg-type]
    free = field.default is not MISSING or field.default_factory is not MISSING
    return not free and not instead(hints(cls)[name])


def _empty(cls: type[Config], name: str) -> str:
    """A value of the right type to start from."""
    schema = type_schema(hints(cls)[name])
    schema = schema["anyOf"][0] if "anyOf" in schema else schema
    if schema.get("enum"):
        return value(schema["enum"][0])
    kinds = {
        "string": '""',
        "integer": "0",
        "number": "0.0",
        "boolean": "false",
        "array": "[]",
        "object": "{}",
    }
    return kinds.get(schema.get("type", ""), '""')


def _allowed(cls: type[Config], name: str) -> str:
    choices = type_schema(hints(cls)[name]).get("enum", [])
    return "one of " + ", ".join(map(str, choices)) if choices else ""


def _with_remark(line: str, remark: str) -> Iterator[str]:
    if not remark:
        yield line
    elif len(line) + len(remark) < 108:
        yield f"{line}  # {remark}"
    else:
        yield from _comment(remark)
        yield line


def _comment(text: str) -> Iterator[str]:
    yield from (f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 106))


def in_order(registry: Registry) -> list[tuple[type[Config], bool]]:
    """Every table of every stage in the order of the pipeline, and whether it belongs
    to a stage that always runs."""
    from npuflow.flow.signature import signature
    from npuflow.flow.stage import steps_of

    stages = steps_of(registry)
    signs = {name: signature(stage) for name, stage in stages.items()}
    makers = {sign.output: name for name, sign in signs.items() if stages[name].refines is None}
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...] = ()) -> None:
        if name in order or name in path:
            return
        own = [f"{name}.{label}" for label in stages[name].parts]
        for need in (need for one in (*own, name) for need in signs[one].upstream.values()):
            if need.kind in makers:
                visit(makers[need.kind], (*path, name))
        order.extend([*(one for one in own if one not in order), name])

    for name in stages:
        visit(name)
    found: dict[type[Config], bool] = {}
    switches = {stage.when for stage in stages.values()}      # tables that turn a stage on
    for name in order:
        always = stages[name].always or (stages[name].when is None and stages[name].refines is None)
        sign = signs[name]
        for label, cls in (*sign.listing.items(), *((None, table) for table in sign.tables.values())):
            wanted = always and stages[name].when != table_of(cls) and label not in sign.maybe
            looks = stages[name].quick        # at what other stages do, whose tables turn them on
            wanted = wanted and not (looks and table_of(cls) in switches)
            found[cls] = found.get(cls, False) or wanted
    keys = {cls: set(hints(cls)) for cls in found}
    # a stage that reads a part of another's table has no table of its own to show
    parts = {cls for cls in found if any(table_of(k) == table_of(cls) and keys[cls] < keys[k] for k in found)}
    return [(cls, on) for cls, on in found.items() if cls not in parts]
