"""What a code digest reaches, and what it does not."""

from __future__ import annotations

import pytest
from packages import Write, closure_of, run

from npuflow.base.code import CodeError

BASE = {
    "pk/__init__.py": "",
    "pk/stage.py": """
        '''Caption.'''
        from pk.facade import helper
        LIMIT = 3
        def unrelated(): return 1
        def run(x):
            '''Doc.'''
            from pk.late import finish
            return finish(helper(x) + LIMIT)
    """,
    "pk/facade/__init__.py": "from ._impl import helper, other",
    "pk/facade/_impl.py": """
        from .. import tables
        class Shape:
            def area(self): return 2
            def other(self): return 3
        def helper(x): return x + tables.ROWS[0] + Shape().area()
        def other(x): return x - 1
    """,
    "pk/tables.py": "ROWS = [1, 2]\nUNUSED = 4",
    "pk/late.py": "import math\ndef finish(x): return math.floor(x)\ndef unused(): return 0",
}


def test_reaches_helpers_behind_facades_and_late_imports(write: Write) -> None:
    write(BASE)
    found = run()
    assert set(found.definitions) == {
        "pk.stage:run", "pk.stage:LIMIT", "pk.facade._impl:helper", "pk.facade._impl:Shape", "pk.tables:ROWS",
        "pk.late:finish",
    }
    assert found.libraries == {}


COUNTS = [
    ("pk/stage.py", "LIMIT = 3", "LIMIT = 4"),
    ("pk/stage.py", "helper(x) +", "helper(x) -"),
    ("pk/facade/_impl.py", "x + tables", "x - tables"),
    ("pk/facade/_impl.py", "return 3", "return 4"),
    ("pk/tables.py", "[1, 2]", "[1, 2.0]"),
    ("pk/late.py", "math.floor", "math.ceil"),
    ("pk/late.py", "math.floor(x)", "math.floor(x + 'a')"),
    ("pk/facade/__init__.py", "import helper, other", "import helper as other, other as helper"),
]
NOTHING = [
    ("pk/stage.py", "'''Doc.'''", "'''Other words.'''"),
    ("pk/stage.py", "'''Doc.'''", "pass  # a comment"),
    ("pk/stage.py", "LIMIT = 3", "LIMIT   = (0x3)  # three"),
    ("pk/stage.py", "return 1", "return 2"),
    ("pk/facade/_impl.py", "x - 1", "x - 2"),
    ("pk/tables.py", "UNUSED = 4", "UNUSED = 5\nMORE = 1"),
    ("pk/late.py", "return 0", "return 7"),
    ("pk/late.py", "import math", "import math, json"),
]


@pytest.mark.parametrize(("file", "old", "new"), COUNTS)
def test_edit_of_reached_code_counts(write: Write, file: str, old: str, new: str) -> None:
    write(BASE)
    before = run().digest
    assert old in BASE[file]
    write({file: BASE[file].replace(old, new)})
    assert run().digest != before


@pytest.mark.parametrize(("file", "old", "new"), NOTHING)
def test_edit_of_other_code_does_not(write: Write, file: str, old: str, new: str) -> None:
    write(BASE)
    before = run().digest
    assert old in BASE[file]
    write({file: BASE[file].replace(old, new)})
    assert run().digest == before


def test_locals_do_not_reach_globals_of_the_same_name(write: Write) -> None:
    found = closure_of(
        write,
        """
        def graph(): return 1
        def size(): return 1
        def q(): return 2
        def used(): return 3
        def run(graph, *, size=used):
            q = [graph for graph in size]
            return [k(q) for k in size if (w := k)] + [w]
        """,
    )
    assert set(found.definitions) == {"pk.stage:run", "pk.stage:used"}


def test_class_bodies_have_names_of_their_own(write: Write) -> None:
    found = closure_of(
        write,
        """
        def spare(): return 1
        def size(): return 2
        def other(): return 3
        class Value:
            import math
            n = 3
            m = n + math.floor(2.5)
            size = size()
            def get(self, other=other): return size()
        def run(): return Value
        """,
    )
    assert set(found.definitions) == {"pk.stage:run", "pk.stage:Value", "pk.stage:size", "pk.stage:other"}


def test_annotations_decorators_bases_and_defaults_are_followed(write: Write) -> None:
    found = closure_of(
        write,
        """
        from __future__ import annotations
        from dataclasses import dataclass
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from pk.types import Hint
        def mark(f): return f
        class Base: pass
        @dataclass
        class Value(Base):
            x: "Field" = 1
        class Field: pass
        D = 5
        @mark
        def run(a: Value, b: Hint = D): ...
        """,
        {"pk/types.py": "class Hint: pass"},
    )
    assert {name.partition(":")[2] for name in found.definitions} == {
        "run", "mark", "Base", "Value", "Field", "D", "Hint",
    }


def test_values_of_literal_and_annotated_are_no_forward_references(write: Write) -> None:
    """Else an unknown name in them would reach the whole module, and all that it imports."""
    found = closure_of(
        write,
        """
        from typing import Annotated, Literal
        from PIL import Image
        Method = Literal["nearest", "unknown"]
        class Value:
            how: Literal["resized", "elsewhere"] = "resized"
            what: Annotated["Field", "resized"]
            some: "list[Literal['elsewhere', 'resized']]"
        class Field: pass
        def resized(): return Image
        def run(a: Value, b: Method): ...
        """,
    )
    assert set(found.definitions) == {f"pk.stage:{name}" for name in ("run", "Value", "Field", "Method")}
    assert found.libraries == {}


ARTIFACTS = """
    from npuflow.flow.artifact import Artifact
    from npuflow.flow.stage import Items, stage
    def stored(): return 1
    def shown(): return 2
    def opened(): return 3
    def measured(): return 4
    class Part(Artifact):
        def save(self, folder): stored()
        @classmethod
        def load(cls, folder): return opened()
        def summary(self): return shown()
    class Whole(Part):
        @property
        def size(self): return measured()
    """


def test_a_stage_takes_of_what_it_is_given_only_what_it_may_call(write: Write) -> None:
    """How an input was saved and summed up is in the key of the stage that made it."""
    given = closure_of(write, ARTIFACTS + "@stage\n    def run(whole: Items[Whole]) -> int: ...")
    assert {name.partition(":")[2] for name in given.definitions} == {
        "run", "Whole", "Part", "Part.load", "opened",
    }
    asked = closure_of(write, ARTIFACTS + "@stage\n    def run(whole: Whole | None): return whole.size")
    assert "pk.stage:measured" in asked.definitions and "pk.stage:shown" not in asked.definitions


@pytest.mark.parametrize(
    "text",
    [
        "def run(whole: Whole) -> Whole: ...",
        "def run(part: Part, whole: Whole): return Whole()",
        "def run(whole: Whole): return made(whole)\n    def made(x) -> Whole: ...",
    ],
)
def test_a_stage_takes_all_of_what_it_makes(write: Write, text: str) -> None:
    """In whichever order the walk meets the two uses."""
    found = closure_of(write, ARTIFACTS + f"@stage\n    {text}")
    names = {name.partition(":")[2] for name in found.definitions}
    assert {"stored", "shown", "opened", "measured"} <= names


STORED = """
    from npuflow.flow.artifact import Artifact, Codec
    from npuflow.flow.stage import stage
    def written(): return 1
    def opened(): return 2
    def shown(): return 3
    class Form(Codec):
        @staticmethod
        def save(folder, name, value): written()
        @staticmethod
        def load(folder, name): return opened()
    class Leaf:
        size: int
    class Inner(Artifact, codecs={"form": Form}):
        form: int
        leaf: Leaf
        def summary(self): return shown()
    class Outer(Artifact, spread=("inner",)):
        inner: Inner
    """


def test_what_a_derived_form_is_made_of_counts_where_it_is_read(write: Write) -> None:
    """The types of fields, and how codecs read: not how they write."""
    found = closure_of(write, STORED + "@stage\n    def run(outer: Outer) -> int: ...")
    assert {name.partition(":")[2] for name in found.definitions} == {
        "run", "Outer", "Inner", "Leaf", "Form", "Form.load", "opened",
    }


def test_all_of_a_derived_form_counts_where_it_is_made(write: Write) -> None:
    found = closure_of(write, STORED + "@stage\n    def run() -> Outer: ...")
    assert {"pk.stage:written", "pk.stage:opened"} <= set(found.definitions)


def test_conditional_definitions_and_imports(write: Write) -> None:
    text = """
        try:
            import nowhere_to_be_found as fast
        except ImportError:
            fast = None
        if True:
            STEP = 1
        else:
            STEP = 2
        def run(): return fast, STEP
    """
    found = closure_of(write, text)
    assert found.libraries == {"nowhere_to_be_found": "absent"}
    assert set(found.definitions) == {"pk.stage:run", "pk.stage:fast", "pk.stage:STEP"}


def test_what_runs_on_import_counts(write: Write) -> None:
    text = "from pk import other\nTABLE = {}\nTABLE['a'] = 1\ndef run(): return 1"
    before = closure_of(write, text, {"pk/other.py": "import sys\nsys.setrecursionlimit(2000)"}).digest
    assert closure_of(write, text.replace("= 1", "= 2")).digest != before
    after = closure_of(write, text, {"pk/other.py": "import sys\nsys.setrecursionlimit(3000)"}).digest
    assert after != before


def test_modules_by_attribute_and_whole(write: Write) -> None:
    more = {"pk/sub/__init__.py": "", "pk/sub/deep.py": "def f(): return 1\ndef g(): return 2"}
    found = closure_of(write, "import pk.sub.deep\ndef run(): return pk.sub.deep.f()", more)
    assert set(found.definitions) == {"pk.stage:run", "pk.sub.deep:f"}
    found = closure_of(write, "from pk.sub import deep\ndef run(n): return getattr(deep, n)()", more)
    assert set(found.definitions) == {"pk.stage:run", "pk.sub.deep:f", "pk.sub.deep:g"}
    found = closure_of(write, "from pk.sub.deep import *\ndef run(n): return g()", more)
    assert set(found.definitions) == {"pk.stage:run", "pk.sub.deep:g"}


def test_lazy_facade_is_followed_to_the_defining_module(write: Write) -> None:
    lazy = """
        import importlib
        def __getattr__(name):
            return getattr(importlib.import_module("pk.deep"), name)
    """
    found = closure_of(
        write,
        "from pk.lazy import f\ndef run(): return f()",
        {"pk/lazy.py": lazy, "pk/deep.py": "def f(): return 1\ndef g(): return 2"},
    )
    assert set(found.definitions) == {"pk.stage:run", "pk.deep:f"}


def test_unknown_names_widen_to_the_whole_module(write: Write) -> None:
    text = "def spare(): return 1\ndef run(): return globals()['spare']()"
    assert "pk.stage:spare" in closure_of(write, text).definitions
    text = "def spare(): return 1\ndef run(): return injected()"
    assert "pk.stage:spare" in closure_of(write, text).definitions


def test_libraries_enter_by_version_where_they_are_used(write: Write) -> None:
    from importlib.metadata import version

    text = "import numpy as np\nfrom PIL import Image\nimport xxhash\ndef run(): return np.zeros(1), Image"
    found = closure_of(write, text)
    assert found.libraries == {"numpy": version("numpy"), "pillow": version("pillow")}
    assert set(found.definitions) == {"pk.stage:run"}


def test_stops_at_the_contract(write: Write) -> None:
    found = closure_of(
        write,
        """
        from npuflow.base.tables import Config
        from npuflow.flow.stage import stage, log
        import npuflow.flow.store
        class Table(Config): pass
        @stage(batch=4)
        def run(t: Table): return log(npuflow.flow.store)
        """,
    )
    assert set(found.definitions) == {"pk.stage:run", "pk.stage:Table"}


def test_stage_options_do_not_count(write: Write) -> None:
    text = (
        "from npuflow.flow import stage as s\n@s.stage(batch=4, files=lister)\ndef run(t): return 1\ndef "
        "lister(): ..."
    )
    before = closure_of(write, text).digest
    assert closure_of(write, text.replace("batch=4, files=lister", "memory='1GB'")).digest == before


def test_cycles_of_imports_end(write: Write) -> None:
    more = {
        "pk/a.py": "from pk.b import f, g\ndef h(): return g()",
        "pk/b.py": "from pk.a import f, h\ndef g(): return h()",
    }
    found = closure_of(write, "from pk.a import h, f\ndef run(): return h(), f", more)
    assert {"pk.a:h", "pk.b:g"} < set(found.definitions)


def test_syntax_errors_name_file_and_line(write: Write) -> None:
    with pytest.raises(CodeError) as caught:
        closure_of(write, "from pk.bad import f\ndef run(): return f()", {"pk/bad.py": "x = 1\ndef f(:\n"})
    assert caught.value.where.line == 2
