"""NAME.lock: every step's key, inputs and product, as sorted text that a person can compare."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli

from npuflow.base.errors import InputError
from npuflow.flow.keys import Step
from npuflow.flow.plan import Plan
from npuflow.flow.refs import ItemsRef, Ref

VERSION = 1
_HEAD = "# Written by npuflow after a build; `npuflow diff OLD.lock NEW.lock` compares two.\n"


@dataclass
class LockedStep:
    """One step as it was built. `fields` is the pre-image, flattened; `items` is id -> (key, output)."""

    key: str
    output: str
    fields: dict[str, Any] = field(default_factory=dict)
    items: dict[str, tuple[str, str]] | None = None


@dataclass
class Lock:
    """A whole build. `code` holds every definition that some step's key reaches, by digest."""

    steps: dict[str, LockedStep] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    reach: dict[str, frozenset[str]] = field(default_factory=dict)
    """Stage -> its definitions among `code`; known while the code is at hand, not written."""

    def reaches(self, step: Step) -> None:
        """Note the code of a step."""
        found = definitions(step)
        self.code.update(found)
        self.reach[step.name] = frozenset(found)


def lock_of(plan: Plan, refs: Mapping[str, Ref], load: Any = None) -> Lock:
    """The lock of a finished build."""
    lock = Lock()
    for step in plan:
        ref = refs.get(step.name)
        if ref is None:
            continue
        lock.reaches(step)
        if step.override is not None:
            lock.steps[step.name] = LockedStep(ref.digest, ref.digest, {"override": ref.digest})
            continue
        bound = step.bind(inputs(step, refs), load)
        whole = LockedStep(bound.key(), ref.digest, fields_of(step, bound.shared))
        if step.over is not None and isinstance(ref, ItemsRef):
            whole.items = {item: (bound.key(item), one.digest) for item, one in ref.items.items()}
        lock.steps[step.name] = whole
    return lock


def fields_of(step: Step, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A pre-image, flattened; what comes of the recipe is called as the recipe calls it."""
    return flat({**shared, "config": step.in_recipe(shared.get("config", {}))})


def inputs(step: Step, refs: Mapping[str, Ref]) -> dict[str, Ref | None]:
    """What each parameter of a step receives, given the products of the steps before it."""
    return {name: None if place.step is None else refs[place.step] for name, place in step.inputs.items()}


def definitions(step: Step) -> dict[str, str]:
    """Every definition and data file in a step's own code and in that of the plug-ins its tables select."""
    found: dict[str, str] = {}
    if step.override is None:
        for closure in (step.code, *step.selected.values()):
            found.update(closure.definitions)
            found.update(closure.files)
    return found


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one table with dotted keys; lists as JSON text."""
    out: dict[str, Any] = {}
    for name, inner in value.items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(inner, Mapping):
            out.update(flat(inner, path))
        elif isinstance(inner, list | tuple):
            out[path] = _json(inner)  # as the lock's text has it, so that a lock read back compares equal
        elif inner is not None:
            out[path] = inner
    return out


def text(lock: Lock) -> str:
    """The lock as TOML: equal builds give equal text."""
    lines = [_HEAD, f"version = {VERSION}\n"]
    for name, step in sorted(lock.steps.items()):
        table = f"step.{_key(name)}"
        lines.append(f"\n[{table}]\nkey = {_value(step.key)}\noutput = {_value(step.output)}\n")
        lines += _table(f"{table}.from", step.fields)
        if step.items is not None:
            # Order matters to the merge, so the items are not sorted; and the table is there even if empty.
            lines.append(f"\n[{table}.items]\n")
            lines += [
                f"{_key(item)} = {_value(f'{key} -> {out}')}\n" for item, (key, out) in step.items.items()
            ]
    return "".join([*lines, *_table("code", lock.code)])


def parse(content: str, name: str) -> Lock:
    """A lock from its text."""
    try:
        body = _quick(content) or tomli.loads(content)
        if body["version"] != VERSION:
            raise InputError(
                f"{name} is a lock of version {body['version']}, not {VERSION}", code="NF-USAGE-053",
            )
        lock = Lock(code=body.get("code", {}))
        for step, table in body.get("step", {}).items():
            items = table.get("items")
            pairs = None if items is None else {item: _pair(both) for item, both in items.items()}
            lock.steps[step] = LockedStep(table["key"], table["output"], table.get("from", {}), pairs)
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"{name} is not a lock: {error}", hint="build again to write a new one", code="NF-USAGE-036",
        ) from error
    return lock


def _quick(content: str) -> dict[str, Any] | None:
    """The tables of a lock as `text` writes it; None for a lock that somebody has
    edited, which is any TOML."""
    body: dict[str, Any] = {}
    table = body
    try:
        for line in content.splitlines():
            if line.startswith("["):
                table = body
                rest = line[1:]
                while rest != "]":
                    name, rest = _name(rest.removeprefix("."))
                    table = table.setdefault(name, {})
            elif line and not line.startswith("#"):
                name, rest = _name(line)
                if (
                    not rest.startswith(" = ")
                    or rest[3:] in ("NaN", "Infinity", "-Infinity")
                    or name in table
                ):
                    return None
                table[name] = json.loads(rest[3:])
    except (ValueError, AttributeError):
        return None
    return body


def _name(text: str) -> tuple[str, str]:
    """The key at the start of a text, and what follows."""
    if text.startswith('"'):
        name, end = json.decoder.scanstring(text, 1)  # type: ignore[attr-defined]
        return name, text[end:]
    end = next((i for i, c in enumerate(text) if not (c.isascii() and (c.isalnum() or c in "_-"))), len(text))
    if end == 0:
        raise ValueError(text)
    return text[:end], text[end:]


def read(path: Path) -> Lock | None:
    """The lock in a file, or None if there is none."""
    try:
        return parse(path.read_text(encoding="utf-8"), path.name)
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name} is not a lock: it is not text",
            hint="build again to write a new one", code="NF-USAGE-036",
        ) from error


def write(path: Path, lock: Lock) -> None:
    """Put a lock in place at once; an equal one is left alone."""
    content = text(lock).encode()
    try:
        if path.read_bytes() == content:
            return
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        made.write_bytes(content)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def _pair(both: str) -> tuple[str, str]:
    key, _, output = both.partition(" -> ")
    return key, output


def _table(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values:
        yield f"\n[{name}]\n"
    for key, value in sorted(values.items()):
        yield f"{_key(key)} = {_value(value)}\n"


def _key(key: str) -> str:
    plain = key != "" and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if plain else _quoted(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return (
            "nan"
            if math.isnan(value)
            else ("-inf" if value < 0 else "inf")
            if math.isinf(value)
            else repr(value)
        )
    if isinstance(value, int):
        return str(value)
    return _quoted(_json(value))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _quoted(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return shown if text.isprintable() else "".join(c if c.isprintable() else _escaped(ord(c)) for c in shown)


def _escaped(code: int) -> str:
    """TOML's escapes are not quite JSON's: no halves of characters, which only the
    name of a file can hold."""
    if 0xD800 <= code < 0xE000:
        return f"\\\\u{code:04x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
