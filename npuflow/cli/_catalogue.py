"""The catalogue of error codes: read from the places of the package's own source that raise them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from npuflow.base import syntax
from npuflow.cli._codes import AREAS, EXPLAINED

CODE = re.compile(r"NF-([A-Z]+)-(\d{3})")
PACKAGE = Path(__file__).resolve().parent.parent
MESSAGE = {"Fault": 1, "_fault": 2}      # the position of the message, where it is not the first argument
Scope = dict[str, list[tuple[ast.stmt, ast.expr]]]
Texts = dict[str, list[ast.expr]]


@dataclass
class ErrorEntry:
    """One code: its error classes and every text that it has; <names> stand for what a run fills in."""

    code: str
    kinds: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    because: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    @property
    def area(self) -> str:
        return self.code.split("-")[1]

    @property
    def about(self) -> str:
        """What kind of fault the area is."""
        return AREAS[self.area]

    def as_dict(self) -> dict[str, object]:
        more = {"explanation": EXPLAINED[self.code]} if self.code in EXPLAINED else {}
        texts = {"messages": self.messages, "because": self.because, "hints": self.hints}
        return {"code": self.code, "area": self.about, **texts, **more}


@cache
def catalogue(only: str = "") -> dict[str, ErrorEntry]:
    """Code -> its entry, by area in the order of `AREAS`. `only`: a single code, for
    which few files are read."""
    found: dict[str, ErrorEntry] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (only or '"NF-') in text:
            for code, call, names in places(syntax.module(text)):
                if only in ("", code):
                    entry = found.setdefault(code, ErrorEntry(code))
                    _add(entry, call, names, path.relative_to(PACKAGE).as_posix())
    order = list(AREAS)
    return {code: found[code] for code in sorted(found, key=lambda c: (order.index(c.split("-")[1]), c))}


def places(tree: ast.Module) -> Iterator[tuple[str, ast.Call, Texts]]:
    """Every call with a code, and what the names around it stand for."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    yield from _walk(tree, _assigned(tree.body), {}, None, calls)


def _walk(
    node: ast.AST, scope: Scope, passed: Texts, within: ast.stmt | None, calls: Sequence[ast.Call]
) -> Iterator[tuple[str, ast.Call, Texts]]:
    for child in ast.iter_child_nodes(node):
        inner, given = scope, passed
        statement = child if isinstance(child, ast.stmt) else within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner, given = {**scope, **_assigned(child.body)}, {**passed, **_passed(child, calls)}
        code = _code(child) if isinstance(child, ast.Call) else ""
        if isinstance(child, ast.Call) and code and statement is not None:
            yield code, child, given | {name: _standing(values, statement) for name, values in inner.items()}
        yield from _walk(child, inner, given, statement, calls)


def _passed(function: ast.FunctionDef | ast.AsyncFunctionDef, calls: Sequence[ast.Call]) -> Texts:
    """Name of a parameter -> the texts that the module's own calls pass for it."""
    found: Texts = {}
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == function.name:
            given = [(a.arg, v) for a, v in zip(function.args.args, call.args, strict=False)]
            for name, value in (*given, *((k.arg, k.value) for k in call.keywords if k.arg)):
                if isinstance(value, ast.Constant | ast.JoinedStr) and _says(text_of(value)):
                    found.setdefault(name, []).append(value)
    return found


def _code(call: ast.Call) -> str:
    """The code that a call states, or nothing."""
    given = next((k.value for k in call.keywords if k.arg == "code"), None)
    text = given.value if isinstance(given, ast.Constant) else None
    return text if isinstance(text, str) and CODE.fullmatch(text) else ""


def _assigned(body: Sequence[ast.stmt]) -> Scope:
    """Name -> the values that the statements give it; not those of functions within."""
    found: Scope = {}
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    if isinstance(name, ast.Name):
                        found.setdefault(name.id, []).append((node, value))
    return found


def _add(entry: ErrorEntry, call: ast.Call, names: Texts, file: str) -> None:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    first = MESSAGE.get(name, 0)
    keywords = {k.arg: k.value for k in call.keywords}
    given = dict(zip(("message", "because", "hint"), call.args[first:], strict=False))
    given.update({k: v for k, v in keywords.items() if k in ("message", "because", "hint")})
    kind = {"Fault": "RecipeError", "_fault": "RecipeError"}.get(name, name)
    _keep(entry.kinds, [kind] if kind[:1].isupper() else [])
    _keep(entry.files, [file])
    for part, into in (("message", entry.messages), ("because", entry.because), ("hint", entry.hints)):
        texts = templates(given[part], names) if part in given else []
        _keep(into, texts if part == "message" else [t for t in texts if _says(t)])


def _standing(values: Sequence[tuple[ast.stmt, ast.expr]], at: ast.stmt) -> list[ast.expr]:
    """What a name may hold at a statement: the values given above it, up to the
    nearest that no branch passes by."""
    found: list[ast.expr] = []
    for statement, value in reversed([v for v in values if v[0].lineno < at.lineno] or values):
        found.insert(0, value)
        if statement.col_offset <= at.col_offset and len(values) > 1:
            break
    return found


def _keep(into: list[str], texts: Sequence[str]) -> None:
    into += [t for t in dict.fromkeys(texts) if t and t not in into]


def _says(text: str) -> bool:
    """Whether a template has words of its own."""
    return bool(re.search(r"[a-z]", re.sub(r"<[^<>]*>", "", text)))


def templates(value: ast.expr, names: Texts, depth: int = 0) -> list[str]:
    """The texts that an expression may be: a name is looked up, a choice gives both sides."""
    if isinstance(value, ast.Name) and value.id in names and depth < 3:
        return [t for one in names[value.id] for t in templates(one, names, depth + 1)]
    if isinstance(value, ast.IfExp):
        return [*templates(value.body, names, depth), *templates(value.orelse, names, depth)]
    if isinstance(value, ast.BoolOp):
        return [t for one in value.values for t in templates(one, names, depth)]
    return [text_of(value)]


def text_of(value: ast.expr) -> str:
    """A text with <names> for what is filled in."""
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.JoinedStr):
        return "".join(text_of(part) for part in value.values)
    if isinstance(value, ast.FormattedValue):
        return _filled(value.value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return text_of(value.left) + text_of(value.right)
    return _filled(value)


def _filled(value: ast.expr) -> str:
    texts = (ast.Constant, ast.JoinedStr)
    if isinstance(value, ast.IfExp) and isinstance(value.body, texts) and isinstance(value.orelse, texts):
        either = [text_of(value.body), text_of(value.orelse)]
        return f"({either[0] or either[1]})" if not all(either) else "/".join(either)
    return f"<{_word(value) or 'value'}>"


def _word(value: ast.expr) -> str:
    """The name that says most of what an expression is."""
    if isinstance(value, ast.Name):
        return value.id.strip("_").replace("_", " ")
    if isinstance(value, ast.Attribute):
        return value.attr.strip("_").replace("_", " ")
    if isinstance(value, ast.Subscript | ast.Starred):
        return _word(value.value)
    if isinstance(value, ast.UnaryOp):
        return _word(value.operand)
    if isinstance(value, ast.IfExp):
        return _word(value.body) or _word(value.orelse)
    if isinstance(value, ast.BinOp):
        return _word(value.left) or _word(value.right)
    if isinstance(value, ast.BoolOp):
        return _word(value.values[0])
    if isinstance(value, ast.GeneratorExp | ast.ListComp):
        return _word(value.generators[0].iter)
    if isinstance(value, ast.Call):
        joined = isinstance(value.func, ast.Attribute) and not isinstance(value.func.value, ast.Constant)
        inner = "" if joined else next(filter(None, map(_word, reversed(value.args))), "")
        counted = isinstance(value.func, ast.Name) and value.func.id == "len"
        return f"number of {inner}" if counted and inner else inner or _word(value.func)
    return ""
