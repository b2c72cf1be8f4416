"""Error codes: every error has one, none means two things, and each can be looked up."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from npuflow.base.errors import ModelError
from npuflow.cli._catalogue import CODE, PACKAGE, ErrorEntry, catalogue
from npuflow.cli._codes import AREAS, EXPLAINED
from npuflow.cli._errors import show
from tests.cli.commandline import Npuflow
from tests.sources import FILES, parsed, walk

sys.path.insert(0, str(PACKAGE.parent / "docs"))
import generate


@pytest.fixture(scope="module")
def entries() -> dict[str, ErrorEntry]:
    return catalogue()


def error_classes() -> dict[Path, dict[str, bool]]:
    """File -> names of error classes in it, and whether the class states its code
    itself (in its `__init__`)."""
    local: dict[Path, dict[str, bool]] = {path: {} for path in FILES}
    modules = {
        path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", "."): path for path in FILES
    }
    local[PACKAGE / "base" / "errors.py"]["NpuflowError"] = False
    local[PACKAGE / "base" / "tables_types.py"]["Fault"] = False
    local[PACKAGE / "base" / "tables.py"]["Fault"] = False
    before = 0
    told = {
        path: [n for n in walk(parsed(path)) if isinstance(n, ast.ImportFrom | ast.ClassDef)]
        for path in FILES
    }
    while before != sum(map(len, local.values())):
        before = sum(map(len, local.values()))
        for path, found in told.items():
            for node in found:
                if isinstance(node, ast.ImportFrom) and node.module in modules:
                    theirs = local[modules[node.module]]
                    local[path].update(
                        {a.asname or a.name: theirs[a.name] for a in node.names if a.name in theirs}
                    )
                elif isinstance(node, ast.ClassDef):
                    known = [b.id for b in node.bases if isinstance(b, ast.Name) and b.id in local[path]]
                    if known:
                        local[path][node.name] = any(stated(c) for c in calls(node)) or local[path][known[0]]
    return local


def calls(node: ast.AST) -> list[ast.Call]:
    nodes = walk(node) if isinstance(node, ast.Module) else ast.walk(node)
    return [n for n in nodes if isinstance(n, ast.Call)]


def stated(call: ast.Call) -> bool:
    """Whether a call is `super().__init__` with a code of its own."""
    constant = any(k.arg == "code" and isinstance(k.value, ast.Constant) for k in call.keywords)
    return isinstance(call.func, ast.Attribute) and call.func.attr == "__init__" and constant and coded(call)


def coded(call: ast.Call) -> bool:
    """Whether a call states a code, or passes one on: another error's, or its own function's parameter."""
    code = next((k.value for k in call.keywords if k.arg == "code"), None)
    if isinstance(code, ast.Constant):
        return isinstance(code.value, str) and CODE.fullmatch(code.value) is not None
    return (isinstance(code, ast.Attribute) and code.attr == "code") or (
        isinstance(code, ast.Name) and code.id == "code"
    )


def collects(call: ast.Call, name: str) -> bool:
    """`RecipeError(faults)`: errors with codes of their own, shown together."""
    return name == "RecipeError" and len(call.args) == 1 and not call.keywords and isinstance(
        call.args[0], ast.Name | ast.Attribute | ast.Call | ast.List
    )


def without_code(path: Path, known: dict[str, bool], tree: ast.Module) -> list[str]:
    wrong = []
    for call in calls(tree):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        made = (name in known and not known[name]) or name == "_fault"
        if made and not coded(call) and not collects(call, name):
            wrong.append(f"{path.name}:{call.lineno}: {ast.unparse(call)[:80]}")
    return wrong


def test_every_error_has_a_code() -> None:
    classes = error_classes()
    made = sum(
        isinstance(c.func, ast.Name) and c.func.id in classes[p]
        for p in FILES
        for c in calls(parsed(p))
    )
    assert made > 400
    wrong = [line for path in FILES for line in without_code(path, classes[path], parsed(path))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('DataError("no data")', False),
        ('DataError("no data", code="raw")', False),
        ('Fault("key", "wrong")', False),
        ('RecipeError("wrong")', False),
        ('RecipeError(f"wrong {key}")', False),
        ('RecipeError(text, hint="x")', False),
        ('DataError("no data", code="NF-DATA-001")', True),
        ("RecipeError(faults)", True),
        ("DataError(text, code=fault.code)", True),
    ],
)
def test_a_forgotten_code_is_found(text: str, good: bool) -> None:
    known = {"DataError": False, "Fault": False, "RecipeError": False}
    assert (not without_code(Path("a.py"), known, ast.parse(text))) == good


def test_no_code_means_two_things(entries: dict[str, ErrorEntry]) -> None:
    """A code with several messages says in `EXPLAINED` what they have in common; one
    kind of message has one code."""
    assert not [
        f"{c}: {e.messages}" for c, e in entries.items() if len(e.messages) != 1 and c not in EXPLAINED
    ]
    assert set(EXPLAINED) <= set(entries) and {e.area for e in entries.values()} == set(AREAS)
    twice = Counter((e.area, m) for e in entries.values() for m in e.messages)
    assert not [key for key, count in twice.items() if count > 1]


def test_messages_that_say_nothing_are_explained(entries: dict[str, ErrorEntry]) -> None:
    bare = [
        c
        for c, e in entries.items()
        if not re.search(r"[a-z]{3}", re.sub(r"<[^<>]*>|NF-\S+", "", e.messages[0]))
    ]
    assert not [c for c in bare if c not in EXPLAINED]
    # Where a message is filled in by a caller, the entry shows what callers say.
    said = {c: entries[c].messages for c in ("NF-QUANT-001", "NF-TARGET-011", "NF-PROGRAM-009")}
    assert not set(said) & set(bare)
    assert "the target has no signed activations" in said["NF-QUANT-001"] and len(said["NF-QUANT-001"]) == 14
    assert "the program has no metadata" in said["NF-PROGRAM-009"]


def test_the_page_has_every_code(entries: dict[str, ErrorEntry]) -> None:
    assert set(re.findall(r"NF-[A-Z]+-\d{3}", generate.errors_page())) >= set(entries)


def test_explain_knows_every_code(npuflow: Npuflow, entries: dict[str, ErrorEntry]) -> None:
    ran = npuflow("explain")
    assert ran.code == 0 and set(re.findall(r"NF-[A-Z]+-\d{3}", ran.out)) >= set(entries)
    assert [line["code"] for line in npuflow("explain", "--json").lines] == list(entries)


def test_explain_prints_message_cause_and_suggestion(npuflow: Npuflow) -> None:
    ran = npuflow("explain", "nf-usage-7")
    assert ran.code == 0 and ran.out.startswith(
        'NF-USAGE-007  --override <pair>: no file or folder "<path>"\n'
    )
    assert "  because  looked at <" in ran.out and AREAS["USAGE"] in ran.out
    line = npuflow("explain", "STEP-002", "--json").lines[0]
    assert line["explanation"] == EXPLAINED["NF-STEP-002"] and len(line["messages"]) > 2


def test_an_unknown_code_suggests_the_nearest(npuflow: Npuflow) -> None:
    ran = npuflow("explain", "NF-DTA-007")
    assert ran.code == 2 and re.search(r'try      "NF-DATA-\d{3}"', ran.err)


def test_the_code_is_on_the_terminal_and_in_the_event(
    capfd: pytest.CaptureFixture[str], npuflow: Npuflow, tmp_path: Path
) -> None:
    show(ModelError("not a model", code="NF-MODEL-002"), as_json=True)
    out, err = capfd.readouterr()
    assert json.loads(out)["code"] == "NF-MODEL-002" and err.startswith("error: NF-MODEL-002  not a model")
    recipe = tmp_path / "wrong.toml"
    recipe.write_text("[count]\nleast = true\nmots = 1\n")
    ran = npuflow("build", str(recipe), "--json")
    codes = [line["code"] for line in ran.lines if line["event"] == "error"]
    assert ran.code == 2 and {"NF-RECIPE-008", "NF-RECIPE-010"} <= set(codes)
