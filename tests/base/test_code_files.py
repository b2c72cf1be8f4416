"""Code and data that are named while running: followed where the name is a constant, else an error."""

from __future__ import annotations

import pytest
from packages import Write, closure_of

from npuflow.base.code import CodeError


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\ndef run(n): return importlib.import_module(n)",
        "from importlib import import_module as load\ndef run(n): return load(n)",
        "import importlib\nload = importlib.import_module\ndef run(n): return load(n)",
        "def run(n): return __import__(n)",
        "from pk.deep import f\ndef run(n): return f(n)",
        "import runpy\ndef run(n): return runpy.run_path(n)",
    ],
)
def test_dynamic_import_is_an_error(write: Write, text: str) -> None:
    with pytest.raises(CodeError) as caught:
        closure_of(
            write, text, {"pk/deep.py": "import importlib\ndef f(n): return importlib.import_module(n)"}
        )
    assert caught.value.where.file is not None and caught.value.where.line


def test_constant_import_is_followed(write: Write) -> None:
    deep = {"pk/deep.py": "def f(): return 1"}
    found = closure_of(
        write, "import importlib\ndef run(): return importlib.import_module('pk.deep').f()", deep
    )
    assert "pk.deep:f" in found.definitions
    found = closure_of(
        write, "import importlib\ndef run(): return importlib.import_module('.deep', 'pk').f()", deep
    )
    assert "pk.deep:f" in found.definitions


def test_package_files_are_declared(write: Write) -> None:
    text = "from npuflow.base.code import package_file\ndef run(): return package_file('t.txt').read_text()"
    before = closure_of(write, text, {"pk/t.txt": "one"})
    assert list(before.files) == ["pk.stage:t.txt"]
    after = closure_of(write, text, {"pk/t.txt": "two"})
    assert before.digest != after.digest
    from pk.stage import run as function  # type: ignore[import-not-found]

    assert function() == "two"
    with pytest.raises(CodeError, match="cannot be read"):
        closure_of(write, text.replace("t.txt", "absent.txt"))
    with pytest.raises(CodeError, match="constant"):
        closure_of(write, text.replace("'t.txt'", "run.__name__"))


@pytest.mark.parametrize(
    "text",
    [
        "from pathlib import Path\nHERE = Path(__file__)\ndef run(): return HERE",
        "from importlib import resources\ndef run(): return resources.files('pk')",
        "import pkgutil\ndef run(): return pkgutil.get_data('pk', 't.txt')",
        "from pk import deep\ndef run(): return deep.__file__",
    ],
)
def test_undeclared_package_files_are_an_error(write: Write, text: str) -> None:
    with pytest.raises(CodeError, match="in no key"):
        closure_of(write, text, {"pk/deep.py": ""})
