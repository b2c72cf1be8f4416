"""What code of the package may not do: ask who it runs for, print, hide errors, change what is constant."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import fields

import pytest

from npuflow.base.registry import caption
from tests.sources import FILES, PACKAGE, at, floor, parsed, walk
from tests.test_layers import COMPILER, SIBLINGS


def test_no_code_asks_a_targets_name() -> None:
    """`target.name` is for messages: it is compared with nothing, and no chip's name stands in the code."""
    chips = {p.stem for p in (PACKAGE / "targets").glob("*.toml")}
    wrong = []
    for path in FILES:
        room = floor(path)
        if room in ("base", "flow"):  # they have never heard of a target
            continue
        for node in walk(parsed(path)):
            asked = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            asked += [node.subject] if isinstance(node, ast.Match) else []
            # the target suite holds a name against its file's
            for side in asked if room != "testing" else ():
                named = isinstance(side, ast.Attribute) and side.attr == "name"
                text = ast.unparse(side) if named else ""
                if "target" in text.removesuffix(".name"):
                    wrong.append(f"{at(path, node.lineno)}: asks {text}")
            if (
                isinstance(node, ast.Constant)
                and node.value in chips
                and room not in ("cli", "testing")
            ):
                wrong.append(f"{at(path, node.lineno)}: names the chip {node.value!r}")
    assert not wrong, "\n".join(wrong)


def test_one_thread_at_a_time_parses() -> None:
    """ast.parse of two threads at once is a SystemError in Python 3.11: base/syntax.py has the lock."""
    wrong = [
        at(path, node.lineno)
        for path in FILES
        if path != PACKAGE / "base" / "syntax.py"
        for node in walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "parse" and ast.unparse(node) == "ast.parse"
    ]
    assert not wrong, wrong


# rooms that ask operators by their contract, and rooms of the algorithms: all but plug-ins and products
ALGORITHMS = frozenset(COMPILER) - frozenset(SIBLINGS) - {"hw", "ir", "onnx", "forms"}
ASKING = ALGORITHMS | {"ir", "onnx", "stages", "testing", "cli", "torch"}
# the text form reads and writes every attribute of an operator; the catalogue reads Python's own syntax
WHOLE = ("text.py", "_catalogue.py")


def contract() -> frozenset[str]:
    """What code may ask of any operator."""
    from npuflow.ir.op import Op

    return frozenset(dir(Op)) | {field.name for field in fields(Op)}


def asked_by_name(tree: ast.AST, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Attributes of an operator (`node.op`, `op`) that are not of its contract, also through getattr."""
    for node in walk(tree):
        of, name = None, ""
        if isinstance(node, ast.Attribute):
            of, name = node.value, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            of, name = node.args[0], ast.unparse(node.args[1])
        last = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
        if last == "op" and name not in known:
            yield node.lineno, ast.unparse(node)


def test_only_rules_know_an_operators_attributes() -> None:
    """Elsewhere an operator is asked through its contract, so that a new one needs its own file alone."""
    known = contract()
    wrong = [
        f"{at(path, line)}: {text}"
        for path in FILES
        if floor(path) in ASKING and path.name not in WHOLE
        for line, text in asked_by_name(parsed(path), known)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", ["node.op.beta", "getattr(site.op, 'alpha', 1.0)", "op.pads", "f(op).op.k"])
def test_an_attribute_asked_by_name_is_found(code: str) -> None:
    assert list(asked_by_name(ast.parse(code), frozenset({"gain", "clip"})))
    assert not list(asked_by_name(ast.parse("node.op.gain() + op.clip"), frozenset({"gain", "clip"})))


def operator_names() -> frozenset[str]:
    """Of the files of `npuflow/ops`, without what is shared."""
    return frozenset(path.stem for path in (PACKAGE / "ops").glob("*.py") if not path.name.startswith("_"))


NAMING = frozenset(("kind", "op_name", "title", "made_by"))


def names_asked(tree: ast.AST, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Where code compares an operator's name with one that it knows, or asks for makers of that name. ONNX
    names of nodes that the host runs are no operator's."""
    for node in walk(tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "made_by":
            sides = [node]
        inside = [n for side in sides for n in ast.walk(side)]
        asked = {ast.unparse(n.func) for n in inside if isinstance(n, ast.Call)} & NAMING
        texts = {n.value for n in inside if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        onnx = any(isinstance(n, ast.Attribute) and n.attr == "onnx" for n in inside)
        if (asked and texts & names) or (onnx and texts):
            yield node.lineno, ast.unparse(node)


def test_only_rules_ask_an_operators_name() -> None:
    """Elsewhere its contract says what it is (`algebra`, `moves_data`, `role`), so that another operator that
    is the same may say so, too."""
    names = operator_names()
    wrong = [
        f"{at(path, line)}: {text}"
        for path in FILES
        if floor(path) in ASKING and path.name not in WHOLE
        for line, text in names_asked(parsed(path), names)
    ]
    assert not wrong, "\n".join(wrong)


NAMES_ASKED = (
    "kind(node) == 'conv'", "op_name(n) in ('relu', 'clip')", "node.op.onnx == 'Add'", "made_by(g, v, 'add')",
)


@pytest.mark.parametrize("code", NAMES_ASKED)
def test_a_name_that_is_asked_is_found(code: str) -> None:
    known = operator_names()
    assert list(names_asked(ast.parse(code), known))
    assert not list(names_asked(ast.parse("kind(a) == kind(b) or kind(n) == 'host:cast'"), known))


def test_only_the_command_line_speaks() -> None:
    wrong = []
    for path in FILES:
        if floor(path) == "cli" or path.name == "__main__.py":
            continue
        for node in walk(parsed(path)):
            if isinstance(node, ast.Call):
                plain = isinstance(node.func, ast.Name | ast.Attribute)
                name = ast.unparse(node.func) if plain else ""
                if name in (
                    "print",
                    "exit",
                    "quit",
                    "sys.exit",
                    "os._exit",
                    "sys.stdout.write",
                    "sys.stderr.write",
                ):
                    wrong.append(f"{at(path, node.lineno)}: calls {name}")
            elif (
                isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in ast.unparse(node.exc)
            ):
                wrong.append(f"{at(path, node.lineno)}: raises SystemExit")
    assert not wrong, "\n".join(wrong)


def test_no_bare_except() -> None:
    wrong = [
        at(path, node.lineno)
        for path in FILES
        for node in walk(parsed(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not wrong, wrong


def test_the_engine_keeps_values_as_they_are() -> None:
    """No collector switched off, no identity of objects for that of nodes, no write into a frozen
    dataclass, no shallow copy to change afterwards, no width read out of a type's name."""
    wrong = [
        f"{at(path, line)}: {what}"
        for path in FILES
        if floor(path) in ALGORITHMS
        for line, what in tricks(parsed(path))
    ]
    assert not wrong, "\n".join(wrong)


TRICKS = {
    "import gc": "gc", "from copy import copy": "copy", "copy.copy(x)": "copy", "seen = {id(x)}": "id",
    "x.__dict__['a'] = 1": "__dict__", "object.__setattr__(x, 'a', 1)": "__setattr__",
    "wide = x.dtype.endswith('16')": "dtype", "x.dtype.replace('16', '8')": "dtype",
}


@pytest.mark.parametrize("source", TRICKS)
def test_each_trick_is_seen(source: str) -> None:
    assert [what for _, what in tricks(ast.parse(source))] == [TRICKS[source]]
    assert not list(tricks(ast.parse("x.copy(); x.id(); replace(x, a=1); x.name.endswith('s')")))


def tricks(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where a file does what is easier to get wrong than to read, and what it is."""
    for node in walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {node.module} if isinstance(node, ast.ImportFrom) else {a.name for a in node.names}
            yield from ((node.lineno, str(name)) for name in names & {"gc", "copy"})
        elif isinstance(node, ast.Name) and node.id == "id" and isinstance(node.ctx, ast.Load):
            yield node.lineno, "id"
        elif isinstance(node, ast.Attribute) and node.attr in ("__dict__", "__setattr__"):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("copy.copy", "copy.deepcopy"):
            yield node.lineno, "copy"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in ("endswith", "startswith", "removeprefix", "removesuffix", "replace")
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "dtype"
        ):
            yield node.lineno, "dtype"


def public_classes(tree: ast.Module) -> list[str]:
    return [n.name for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]


def shared(classes: Iterable[tuple[str, str]]) -> list[str]:
    """Names that more than one place has. `classes`: places and names."""
    places: dict[str, list[str]] = {}
    for place, name in classes:
        places.setdefault(name, []).append(place)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def test_a_class_has_a_name_of_its_own() -> None:
    """Whoever reads a name knows which class is meant, without looking where it is imported from."""
    found = [(at(path, 1), name) for path in FILES for name in public_classes(parsed(path))]
    assert not shared(found), "\n".join(shared(found))


def test_a_name_of_two_classes_is_found() -> None:
    names = public_classes(ast.parse("class Plan: ...\nclass _Own: ...\ndef f():\n    class Inner: ..."))
    assert names == ["Plan"]
    assert shared([("a.py", "Plan"), ("b.py", "Plan"), ("b.py", "Step")]) == ["Plan: a.py, b.py"]


WORDS = 20


def test_a_file_says_what_it_does_in_few_words() -> None:
    """The first sentence of a file, by which lists and pages of rooms name it."""
    captions = {path: caption(ast.get_docstring(parsed(path))) for path in FILES}
    wrong = [f"{at(path, 1)}: {text}" for path, text in captions.items() if len(text.split()) > WORDS]
    assert not wrong, "\n".join(wrong)
