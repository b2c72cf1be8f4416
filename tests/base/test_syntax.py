"""The parser is entered by one thread at a time."""

from __future__ import annotations

import ast
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from npuflow.base import syntax


def test_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, real = 0, 0, ast.parse
    count = threading.Lock()

    def parse(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside, most
        with count:
            inside += 1
            most = max(most, inside)
        time.sleep(0.002)
        with count:
            inside -= 1
        return real(*args, **kwargs)

    monkeypatch.setattr(ast, "parse", parse)
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(syntax.module, [f"a = {k}" for k in range(16)]))
        values = list(pool.map(syntax.expression, [f"{k} + 1" for k in range(16)]))
    assert (
        most == 1 and [ast.unparse(t) for t in trees] == [f"a = {k}" for k in range(16)] and len(values) == 16
    )
