"""Pages of the package's rooms (folders): noun, public names, imports, files with their captions.

Noun and public names come from the docstring of the room's `__init__.py`, imports from its files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from npuflow.base.registry import caption

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "npuflow"


def rooms() -> list[str]:
    """The rooms on the floors of the package, by name."""
    return sorted(p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists() and p.name != "targets")


def page(room: str) -> str:
    """The page of a room, without its title."""
    folder = PACKAGE / room
    head, _, rest = docstring(folder / "__init__.py").partition("\n\n")
    imported = ", ".join(f"[{one}]({one}.md)" for one in sorted(imports(folder))) or "no other room"
    text = " ".join(head.split()) + "\n\n"
    facts, _, more = rest.partition("\n\n")
    if facts.startswith("Noun:"):
        text += "".join(f"- **{key}**: {value}\n" for key, value in statements(facts))
    else:
        more = rest
    text += f"- **Imports**: {imported}.\n\n"
    text += f"{more}\n\n" if more else ""
    for inner in [folder, *sorted(p for p in folder.rglob("*") if (p / "__init__.py").exists())]:
        if inner != folder:
            text += f"\n## {inner.relative_to(PACKAGE)}\n\n{caption(docstring(inner / '__init__.py'))}\n\n"
        files = sorted(p for p in inner.glob("*.py") if p.name != "__init__.py")
        text += "".join(f"- `{p.name}`: {caption(docstring(p))}\n" for p in files)
    return text.rstrip("\n") + "\n"


def statements(facts: str) -> Iterator[tuple[str, str]]:
    """(key, value) of lines `Key: value`, of which some go on in the next line."""
    for line in facts.replace("\n  ", " ").split("\n"):
        key, _, value = line.partition(": ")
        yield key, value


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def imports(folder: Path) -> set[str]:
    """Rooms that the files of a room import."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {m.split(".")[1] for m in modules if m.startswith("npuflow.")}
    return (found & set(rooms())) - {folder.name}
