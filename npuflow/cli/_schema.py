"""The schema of a whole recipe: the union of all stages' tables."""

from __future__ import annotations

from typing import Any

from npuflow.base.registry import Registry
from npuflow.base.tables import schema, table_of
from npuflow.cli._engine import known_tables
from npuflow.flow.recipe import SETTINGS
from npuflow.flow.recipe_components import TABLE as COMPONENTS
from npuflow.flow.recipe_files import library_folders
from npuflow.flow.recipe_sweep import TABLE


def recipe_schema(registry: Registry) -> dict[str, Any]:
    """A JSON Schema (2020-12) document."""
    root: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "npuflow recipe",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "extends": {
                "description": "A recipe, or several in order, whose keys this one overrides.",
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            },
        },
    }
    values = {"type": "array", "minItems": 1, "uniqueItems": True}
    root["properties"][TABLE] = {
        "description": "Keys, dotted, with the values that `npuflow sweep` gives them.", "type": "object",
        "additionalProperties": {"anyOf": [values, {"type": "object"}]},
    }
    root["properties"][COMPONENTS] = {
        "description": "Models that feed each other, each a recipe of its own; built as one program.",
        "type": "object", "additionalProperties": {"type": "object", "properties": {
            "recipe": {"type": "string", "description": "The recipe that the component's tables override."},
            "inputs": {
                "description": "Inputs of the model that are outputs of other components: COMPONENT.OUTPUT.",
                "type": "object", "additionalProperties": {"type": "string"},
            },
        }},
    }
    for cls in sorted([*known_tables(registry), *SETTINGS], key=table_of):
        _place(root, table_of(cls).split("."), schema(cls))
    for name, folder in library_folders().items():
        table = root["properties"].get(name)
        if table is not None:
            names = sorted(p.stem for p in folder.glob("*.toml"))
            table["properties"]["extends"] = {
                "type": "string",
                "description": f"The {name} that these keys override.",
            }
            table.pop("required", None)  # the library file gives them
            text = {
                "type": "string",
                "description": f"A {name} by name, or a path to a TOML file.",
                "examples": names,
            }
            root["properties"][name] = {"anyOf": [text, table]}
    return root


def _place(root: dict[str, Any], path: list[str], table: dict[str, Any]) -> None:
    """Merge a table's schema into the tree: several classes may share a table."""
    place = root
    for name in path:
        empty = {"type": "object", "additionalProperties": False, "properties": {}}
        place = place["properties"].setdefault(name, empty)
    place["properties"].update(table["properties"])
    if "description" in table:
        place.setdefault("description", table["description"])
    if "required" in table:
        place["required"] = sorted({*place.get("required", []), *table["required"]})
