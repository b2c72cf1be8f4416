"""The layers of the architecture, enforced from the imports: who may know whom. Files and functions: their
length and their names."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from npuflow.base.registry import caption
from tests.sources import FILES, PACKAGE, ROOT, at, floor, imports, name_of, nodes, parsed, room_of, walk

SIBLINGS = ("ops", "rules", "calibrators", "rounders", "strategies", "frontends", "metrics", "exchange")
SIBLINGS += ("heads",)
COMPILER = (
    "hw", "ir", "onnx", "checkpoints", *SIBLINGS, "forms", "gradients", "place", "rewrite", "input", "run",
    "compare", "quantise", "statistics", "schedule", "search", "program", "kernels", "isa", "whole", "tune",
    "sim", "export_tflite", "export_tosa", "runner", "checks", "report",
)
"""Rooms that know of tensors: a room imports rooms that stand before it. docs/explanation/architecture.md has
a line for each."""
APPS = ("apps", "apps/serve", "apps/view")
BUILDING = ("apps/executorch", "apps/olive")   # products that build, as `torch` does
FLOORS = ("base", "flow", *COMPILER, "stages", "testing", "lang", *APPS, "cli", "ort", "torch", *BUILDING, "")
BELOW: dict[str, set[str]] = {
    **{room: {"base", *COMPILER[:i]} for i, room in enumerate(COMPILER)},
    **{name: {"base", "hw", "ir", "onnx"} for name in SIBLINGS},
    "checkpoints": {"base", "ir"},
    "frontends": {"base", "hw", "ir", "onnx", "checkpoints"},
    "forms": {"base", "hw", "ir", "onnx", "ops"},
    "base": set(),
    "flow": {"base"},
    "stages": {"base", "flow", *COMPILER},
    "testing": {"base", "flow", *COMPILER, "stages"},
    "lang": {"base", "hw", "ir", "onnx", *SIBLINGS},
    "apps": set(),
    "apps/serve": {"base", *COMPILER},
    "apps/view": {"base", "flow"},
    "cli": {"base", "flow", *COMPILER, "stages", "testing", "lang", *APPS},
    "ort": {"base", *COMPILER},
    "torch": {"base", "flow", *COMPILER, "cli"},     # builds
    **{room: {"base", "flow", *COMPILER} for room in BUILDING},   # by the facade
    "targets": set(),
    "": {"base", "flow", "program", "runner", "cli", "ort"},  # the facade and __main__
}
HEAVY = {"numpy", "dask", "distributed", "zarr", "onnx", "onnxruntime", "numba", "scipy", "PIL", "fsspec"}
HEAVY |= {"vl_convert"}
MAX_LINES = 400
MAX_FUNCTION = 60


def floor_of_module(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "npuflow":
        return None
    return room_of(parts[1:])


def test_every_folder_has_a_floor() -> None:
    folders = {floor(path) for path in FILES}
    assert folders == set(BELOW)


def test_imports_go_down_only() -> None:
    wrong = []
    for path in FILES:
        own = floor(path)
        for module, line in imports(path):
            other = floor_of_module(module)
            allowed = (
                other is None or other == own or other in BELOW[own] or (own != "" and module == "npuflow")
            )
            version_only = other == "" and module in ("npuflow", "npuflow.__version__")
            if not (allowed or version_only):
                wrong.append(f"{at(path, line)}: {own or 'facade'} imports {module}")
    assert not wrong, "\n".join(wrong)


def rooms(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Folder -> folders that its files import, of a graph of modules."""
    folder = {name_of(path): str(path.parent.relative_to(PACKAGE.parent)) for path in FILES}
    found: dict[str, set[str]] = {one: set() for one in folder.values()}
    for name, imported in graph.items():
        found[folder[name]] |= {folder[module] for module in imported} - {folder[name]}
    return found


def test_rooms_import_in_no_circle() -> None:
    """Folders of any depth, also by imports inside functions and for types alone. The facade offers the
    command line's functions, and every file may ask it for the version."""
    facade = {"npuflow", "npuflow.__main__"}
    graph = {name: found - facade for name, found in import_graph().items() if name not in facade}
    wrong = [" <-> ".join(ring) for ring in circles(rooms(graph))]
    assert not wrong, "\n".join(wrong)


def test_siblings_are_strangers() -> None:
    """A file of floor 3 reaches another file of its own floor only through the floors
    below or its own subfolder."""
    wrong = []
    for path in FILES:
        own = floor(path)
        if own not in SIBLINGS:
            continue
        entry = path.relative_to(PACKAGE / own).parts[0].removesuffix(".py")
        for module, line in imports(path):
            parts = module.split(".")
            if (
                parts[:2] == ["npuflow", own]
                and len(parts) > 2
                and parts[2] != entry
                and not parts[2].startswith("_")
            ):
                target = PACKAGE / own / parts[2]
                if target.is_dir() or target.with_suffix(".py").exists():
                    wrong.append(f"{at(path, line)}: {own}/{entry} imports {module}")
            elif len(parts) > 1 and parts[0] == "npuflow" and parts[1] in set(SIBLINGS) - {own}:
                wrong.append(f"{at(path, line)}: {own}/{entry} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_a_stage_sees_no_store_no_recipe_no_dask() -> None:
    """Stages may use of `flow` only what describes a stage and its data."""
    allowed = {"npuflow.flow.stage", "npuflow.flow.artifact", "npuflow.flow.refs", "npuflow.flow"}
    wrong = []
    for path in FILES:
        if floor(path) not in ("stages", *COMPILER):
            continue
        for module, line in imports(path):
            top = module.split(".")[0]
            if top in ("dask", "distributed"):
                wrong.append(f"{at(path, line)}: imports {module}")
            inside = module.startswith("npuflow.flow")
            if inside and not any(
                module == a or (a != "npuflow.flow" and module.startswith(a + ".")) for a in allowed
            ):
                wrong.append(f"{at(path, line)}: imports {module}")
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_is_declared() -> None:
    """Every package that the code imports is a dependency: what another brings along
    today, it may not tomorrow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [
        *project["dependencies"],
        *(d for extra in project["optional-dependencies"].values() for d in extra),
    ]
    declared = {re.split(r"[^a-z0-9_-]", name.lower())[0].replace("-", "_") for name in stated} | {"npuflow"}
    projects = {"PIL": "pillow", "google": "protobuf", "vl_convert": "vl_convert_python"}
    projects["olive"] = "olive_ai"
    known = sys.stdlib_module_names | declared
    tops = [(path, line, module.split(".")[0]) for path in FILES for module, line in imports(path)]
    wrong = [f"{at(path, line)}: {top}" for path, line, top in tops if projects.get(top, top) not in known]
    assert not wrong, "\n".join(wrong)


def test_the_left_column_starts_light() -> None:
    """A module that imports a heavy library at its top is itself imported only inside functions."""
    light = [path for path in FILES if floor(path) in ("base", "flow", "cli", "")]
    tops = {path: list(imports(path, deferred=False)) for path in light}
    heavy = {name_of(path) for path, found in tops.items() if any(m.split(".")[0] in HEAVY for m, _ in found)}
    wrong = [
        f"{at(path, line)}: imports {module}"
        for path, found in tops.items()
        for module, line in found
        if module in heavy and name_of(path) not in heavy
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["npuflow", "tests"])
def test_files_stay_short(folder: str) -> None:
    lengths = {p: len(p.read_text().splitlines()) for p in sorted((ROOT / folder).rglob("*.py"))}
    long = [f"{p.relative_to(ROOT)}: {n} lines" for p, n in lengths.items() if n > MAX_LINES]
    assert not long, "\n".join(long)


def test_functions_stay_short() -> None:
    long = []
    for path in FILES:
        for node in walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION:
                    long.append(f"{at(path, node.lineno)}: {node.name} has {length} lines")
    assert not long, "\n".join(long)


def test_tests_mirror_rooms() -> None:
    """A folder of tests is named for a room of the package; `networks` makes what several test
    with, `acceptance` tests the installed product, `formats` has files of every release."""
    named = {p.name for p in PACKAGE.rglob("*") if p.is_dir()}
    folders = {p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert not folders - named - {"docs", "formats", "networks", "acceptance"}, sorted(folders - named)


def test_no_line_is_left_to_itself() -> None:
    """The formatter and the limit of columns (ruff's E501) hold everywhere: no line is exempt from either."""
    exempt = [
        str(path.relative_to(ROOT))
        for folder in ("npuflow", "tests", "benchmarks", "examples", "docs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r"# fmt: (skip|off)|# noqa:[^#]*E501", path.read_text()) and path != Path(__file__)
    ]
    assert not exempt, exempt


def test_pages_recipes_and_targets_keep_to_the_columns_too() -> None:
    """ruff limits Python only."""
    files = [path for path in PACKAGE.rglob("*") if path.suffix in (".js", ".css", ".toml")]
    files += [*(ROOT / "recipes").glob("*.toml"), ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    wide = [
        f"{path.relative_to(ROOT)}:{i}"
        for path in sorted(files)
        for i, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 110
    ]
    assert not wide, wide


def test_every_file_has_a_caption() -> None:
    """The first sentence of a file's docstring says what it is; docs/rooms lists them."""
    wrong = []
    for path in FILES:
        text = ast.get_docstring(parsed(path)) or ""
        first = caption(text)
        if not first or not first.rstrip().endswith((".", "!", "?")):
            wrong.append(f"{path.relative_to(ROOT)}: {first!r}")
    assert not wrong, "\n".join(wrong)


def test_names_say_something() -> None:
    empty = {"utils", "util", "common", "helper", "helpers", "manager", "misc", "stuff"}
    wrong = [str(p.relative_to(ROOT)) for p in FILES if set(p.stem.lower().split("_")) & empty]
    assert not wrong, wrong


def test_the_checks_themselves_can_fail(tmp_path: Path) -> None:
    """Function-level and relative imports are seen, and so are imports of a module's members."""
    source = "def f():\n    from npuflow.flow import store\n    import dask.threaded\n"
    path = PACKAGE / "stages" / "__init__.py"
    probe = tmp_path / "npuflow" / "stages" / "probe.py"
    probe.parent.mkdir(parents=True)
    probe.write_text(source)
    tree = parsed(probe)
    found = [n for n in nodes(tree, True) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert len(found) == 2
    assert not [n for n in nodes(tree, False) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert path in FILES
    assert floor_of_module("npuflow.flow.store") == "flow"
    assert floor_of_module("npuflow") == ""
    assert floor_of_module("numpy") is None


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that import each other, each reachable from each."""
    reach = {name: set(found) for name, found in edges.items()}
    for middle in edges:
        for name in edges:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    return sorted(
        {tuple(sorted(a for a in edges if a in reach[b] and b in reach[a])) for b in edges if b in reach[b]}
    )  # type: ignore[arg-type]


def import_graph() -> dict[str, set[str]]:
    """Module -> modules of the package that its file imports, also inside functions and for types alone."""
    modules = {name_of(path): path for path in FILES}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = {module for module, _ in imports(path) if module in modules}
        # `from npuflow.flow import store` names the package too, but means the file.
        graph[name] = {
            m
            for m in found
            if not (modules[m].name == "__init__.py" and any(o.startswith(m + ".") for o in found))
        }
    return graph


def test_imports_go_in_no_circle() -> None:
    """What imports each other is one file, or wants a third; imports inside functions only hide that."""
    wrong = [" <-> ".join(ring) for ring in circles(import_graph())]
    assert not wrong, "\n".join(wrong)


def test_the_search_for_circles_finds_one() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == [("a", "b", "c")]
    assert (
        "npuflow.base.errors"
        in import_graph()["npuflow.base.digest"] | import_graph()["npuflow.base.registry"]
    )
