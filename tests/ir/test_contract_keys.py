"""Every method of the operator contract, overridden in one operator in turn: which keys change,
and that no call is missed."""

from __future__ import annotations

import ast
import contextvars
import functools
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npuflow.base import code
from npuflow.base import registry as registries
from npuflow.base.code_find import Place
from npuflow.base.code_module import SourceModule
from npuflow.base.code_sources import Sources
from npuflow.flow import run_step
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, plan_recipe, run_plan
from npuflow.flow.run import Result
from npuflow.flow.stage import STAGES
from npuflow.flow.store import Store
from npuflow.ir.forms import form_in
from npuflow.ir.op import OPS, Op

Built = tuple[Result, dict[str, set[str]]]

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = "conv"
SETS = [
    "data.count=12",
    "evaluate.count=8",
    "tiling.level=1",
    "tune.samples=2",
    'search.methods=["minmax","mse"]',
    "search.samples=4",
    "unify.samples=8",
    "channels.tensors=[]",
    "budget.cycles=1000000",
]
CONTRACT = {name: one for part in reversed(Op.__mro__[:-1]) for name, one in vars(part).items()}
METHODS = sorted(
    name for name, one in CONTRACT.items()
    if not name.startswith("_") and (callable(one) or isinstance(one, classmethod | staticmethod | property))
)


def plan() -> Plan:
    return plan_recipe(load(ROOT / "recipes" / "fashion.toml", SETS), STAGES, SETTINGS)


SETTINGS = Settings(jobs=1, scheduler="threads")
STORE: list[Store] = []
running: contextvars.ContextVar[str] = contextvars.ContextVar("running", default="")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """A build, and which steps called which method of the operator."""
    calls: dict[str, set[str]] = defaultdict(set)
    patch = pytest.MonkeyPatch()
    plain = run_step.execute

    def execute(task: Any) -> Any:
        token = running.set(task.step)
        try:
            return plain(task)
        finally:
            running.reset(token)

    patch.setattr("npuflow.flow.run_step.execute", execute)
    patch.setattr("npuflow.flow.executor.execute", execute)
    for cls in OPS[OPERATOR].__mro__:
        for name in METHODS:
            if cls.__module__.startswith("npuflow") and name in vars(cls):
                patch.setattr(cls, name, traced(vars(cls)[name], name, calls))
    place = tmp_path_factory.mktemp("contract")
    taken = plan()
    STORE[:] = [Store(place / "cache")]
    try:
        result = run_plan(
            taken, taken.recipe, STORE[0], Settings(jobs=1, scheduler="threads", out=place), None
        ).check()
        yield result, calls
    finally:
        patch.undo()


def function_of(method: Any) -> Any:
    """What a class method or a property wraps; a plain method itself."""
    return method.fget if isinstance(method, property) else getattr(method, "__func__", method)


def traced(method: Any, name: str, calls: dict[str, set[str]]) -> Any:
    plain = function_of(method)

    @functools.wraps(plain)
    def call(self: Any, *args: Any, **more: Any) -> Any:
        owner = self if isinstance(self, type) else type(self)
        # reading an artifact does not count
        if registries._touched.get() is not None and owner is OPS[OPERATOR]:
            calls[name].add(running.get())
        return plain(self, *args, **more)

    return type(method)(call) if isinstance(method, classmethod | property) else call


def keys(result: Result) -> dict[str, tuple[str, ...]]:
    """Every key of every step, its inputs being what the build made."""
    found = {}
    for step in plan():
        refs = {
            name: None if one.step is None else result.refs[one.step] for name, one in step.inputs.items()
        }
        found[step.name] = tuple(step.key(refs, item, STORE[0].load) for item in result.keys[step.name])
    return found


def overriding(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make the code of the operator's class have a method of its own, or another one."""
    usual = Sources.module

    def module(self: Sources, place: Place) -> SourceModule:
        if place.name != f"npuflow.ops.{OPERATOR}" or place.name in self._modules:
            return usual(self, place)
        tree = ast.parse(place.path.read_bytes())  # type: ignore[union-attr]
        (cls,) = [
            node
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == OPS[OPERATOR].__name__
        ]
        mine = [node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == name]
        if mine:
            mine[0].body.insert(0, ast.parse("_ = 1").body[0])
        else:
            cls.body.append(ast.parse(f"class _:\n    {override(name)}").body[0].body[0])  # type: ignore[attr-defined]
        content = ast.unparse(ast.fix_missing_locations(tree)).encode()
        self._modules[place.name] = SourceModule(place, content).parse(content)
        return self._modules[place.name]

    monkeypatch.setattr(Sources, "module", module)
    forget_closures()


def forget_closures() -> None:
    """Draw all closures again, from what other files than the operator's were read as: they are as before."""
    read = code._State.sources._modules
    code.forget()
    code._State.sources._modules.update(
        {name: one for name, one in read.items() if name != f"npuflow.ops.{OPERATOR}"}
    )


def override(name: str) -> str:
    """A method that passes everything on, with the parameters of the contract."""
    inherited = CONTRACT[name]
    marks = {classmethod: "@classmethod\n    ", property: "@property\n    "}
    head = marks.get(type(inherited), "")
    parameters = inspect.signature(function_of(inherited))
    bare = parameters.replace(
        parameters=[
            one.replace(annotation=inspect.Parameter.empty) for one in parameters.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )
    return f"{head}def {name}{bare}: return None"


EXPECTED = {
    "accepts": "budget checked placement",
    "answer_axis": "baseline budget clipping codegen evaluate precision tiling verdict",
    "bias_factor": "baseline budget clipping correct precision quantize search.items sensitivity unify "
    "verdict",
    "border": "parse pixels rewrite_check",
    "channel_axis": "baseline budget clipping codegen evaluate fidelity precision qdq_check quantize "
    "report search.items sensitivity simulate tiling unify verdict",
    "clipped": "parse rewrite_check unify",
    "column_groups": "baseline budget clipping codegen correct evaluate fidelity precision qdq_check "
    "quantize search.items sensitivity simulate tiling unify verdict",
    "columns": "baseline clipping correct evaluate fidelity precision qdq_check search.items sensitivity "
    "simulate unify verdict",
    "copies": "budget precision tiling verdict",
    "f": "baseline budget clipping codegen correct evaluate fidelity model precision qdq_check quantize "
    "rewrite_check search.items search.rivals sensitivity simulate thresholds tiling unify verdict",
    "from_onnx": "model parse rewrite_check",
    "gain": "baseline budget clipping correct precision quantize search.items sensitivity unify verdict",
    "infer": "baseline budget clipping codegen correct evaluate model parse pixels precision qdq qdq_check "
    "rewrite_check search.items search.rivals sensitivity tiling tune.items unify verdict",
    "group_axis": "baseline budget clipping codegen evaluate fidelity precision qdq_check quantize "
    "search.items sensitivity simulate tiling unify verdict",
    "input_channels": "",
    "integer": "budget codegen evaluate fidelity precision qdq_check simulate tiling verdict",
    "local_space": "budget codegen costs.layers costs.runs costs.tiles precision tiling "
    "verdict",
    "lower": "budget codegen evaluate fidelity qdq_check simulate verdict",
    "measures": "budget checked placement precision tiling verdict",
    "moves": "baseline budget checked clipping codegen correct costs.layers costs.runs evaluate fidelity "
    "parse placement precision qdq_check quantize rewrite_check search.items sensitivity simulate tiling "
    "unify verdict",
    "of_scaled": "parse pixels rewrite_check",
    "onnx_attributes": "baseline budget channels.items checked clipping codegen correct costs.layers "
    "costs.runs evaluate fidelity model placement precision qdq qdq_check quantize report rewrite_check "
    "search.items search.rivals segments sensitivity simulate tiling tune.items unify verdict",
    "onnx_type": "baseline budget checked clipping codegen correct costs.layers costs.runs evaluate hardware "
    "model parse pixels placement precision quantize report rewrite_check search.items search.rivals "
    "segments sensitivity thresholds tiling tune.candidates unify verdict",
    "output_range": "baseline budget channels.items clipping precision quantize search.items search.rivals "
    "segments sensitivity thresholds unify verdict",
    "places": "baseline clipping correct precision search.items sensitivity unify verdict",
    "prepare": "baseline budget clipping correct precision quantize search.items sensitivity unify verdict",
    "reading_cache": "budget codegen costs.layers costs.runs tiling",
    "reduced": "budget codegen costs.layers costs.runs evaluate fidelity parse precision qdq_check "
    "rewrite_check simulate tiling verdict",
    "reference": "baseline clipping correct model parse pixels precision rewrite_check search.items "
    "sensitivity unify verdict",
    "respelled": "parse rewrite_check",
    "role": "baseline budget channels.items checked clipping codegen correct costs.layers costs.runs "
    "costs.tiles evaluate evaluation_inputs fidelity footprints hardware input_check model parse pixels "
    "placement precision qdq qdq_check quantize report rewrite_check search.items search.rivals segments "
    "sensitivity simulate thresholds tiling tune.candidates tune.items unify verdict",
    "rows": "baseline budget clipping codegen correct evaluate fidelity precision qdq_check quantize "
    "search.items sensitivity simulate tiling unify verdict",
    "samples": "",
    "tap_places": "budget precision tiling verdict",
    "space": "budget codegen costs.layers costs.runs costs.tiles evaluate fidelity precision qdq_check "
    "simulate tiling verdict",
    "then_scaled": "parse rewrite_check",
    "to_onnx": "baseline budget channels.items clipping codegen correct evaluate fidelity model precision "
    "qdq qdq_check rewrite_check search.items search.rivals segments sensitivity simulate tune.items unify "
    "verdict",
    "unit_bias": "baseline budget clipping parse precision quantize rewrite_check search.items sensitivity "
    "unify verdict",
    "whole_numbers": "baseline budget clipping codegen evaluate fidelity precision qdq_check quantize "
    "search.items search.rivals sensitivity simulate thresholds unify verdict",
    "whole_result": "baseline budget checked clipping parse placement precision quantize rewrite_check "
    "search.items search.rivals sensitivity thresholds tune.candidates unify verdict",
    "with_": "baseline budget checked clipping codegen correct costs.layers costs.runs model parse pixels "
    "precision quantize rewrite_check search.items search.rivals sensitivity simulate thresholds tiling "
    "tune.candidates tune.items unify verdict",
    "with_border": "pixels rewrite_check",
    "with_results": "budget codegen correct costs.layers costs.runs model parse precision quantize "
    "rewrite_check simulate tiling verdict",
    "framed": "budget codegen correct costs.layers costs.runs model parse precision quantize rewrite_check "
    "simulate tiling verdict",
    "block_axis": "baseline budget clipping precision quantize search.items sensitivity unify verdict",
    "forms": "baseline budget clipping codegen correct costs.layers costs.runs costs.tiles evaluate fidelity "
    "precision qdq_check quantize search.items sensitivity simulate tiling unify verdict",
    "in_pairs": "baseline budget clipping precision quantize search.items sensitivity unify verdict",
    "pair_type": "baseline budget clipping codegen correct costs.layers costs.runs costs.tiles evaluate "
    "fidelity precision qdq_check quantize search.items sensitivity simulate tiling unify verdict",
    "unit_gain": "baseline budget clipping precision quantize search.items sensitivity unify verdict",
    "windows": "baseline budget checked clipping codegen correct costs.layers costs.runs costs.tiles "
    "evaluate fidelity model parse pixels placement precision qdq qdq_check rewrite_check search.items "
    "search.rivals sensitivity simulate tiling tune.items unify verdict",
    "lane": "baseline budget clipping codegen correct costs.layers costs.runs costs.tiles evaluate fidelity "
    "precision qdq_check quantize search.items sensitivity simulate tiling unify verdict",
}
"""Method -> the steps that may call it. `role` counts wherever there is a graph: the class bodies of
reductions refer to functions of which one asks it."""


def test_asking_for_a_form_names_no_other_method_of_the_operator() -> None:
    """Stages that ask a form for constants or results alone do not depend on how tiles are cut."""
    named = {mention.partition("(")[0] for mention in code.closure(form_in).mentions}
    assert named & set(METHODS) == {"forms", "role"}     # roles: the widths of sums, which every node knows


@pytest.fixture(scope="module")
def before(built: Built) -> dict[str, tuple[str, ...]]:
    return keys(built[0])


def test_the_table_has_every_method() -> None:
    assert sorted(EXPECTED) == METHODS


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_an_override_changes_the_keys_of_what_may_call_it(
    name: str, built: Built, before: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as inner:
        overriding(inner, name)
        after = keys(built[0])
    forget_closures()
    changed = {step for step in before if before[step] != after[step]}
    assert built[1].get(name, set()) <= changed, "a call that the key does not hold"
    assert changed == set(EXPECTED[name].split())


@pytest.mark.slow
def test_the_same_code_gives_the_same_keys(built: Built, before: dict[str, tuple[str, ...]]) -> None:
    code.forget()
    assert keys(built[0]) == before
