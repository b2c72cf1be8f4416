"""Every sentence of the documentation that promises behaviour has a test, every such test its sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
import promises


def test_every_promise_is_proved() -> None:
    made = [promise for page in promises.pages() for promise in promises.promises(page)]
    assert made, "no page promises anything"
    assert not (wrong := promises.faults(made, list(promises.proofs()))), "\n".join(wrong)


def test_the_check_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "First. A second build\nruns nothing. <!-- promise: a --> More.\n\n"
        "- **Exact.** It agrees. <!-- promise: b -->\n"
    )
    monkeypatch.setattr(promises, "ROOT", tmp_path)
    made = list(promises.promises(page))
    assert [(one.id, one.sentence) for one in made] == [
        ("a", "A second build runs nothing."), ("b", "It agrees.")
    ]
    proof = promises.Proof("a", "tests/test_x.py::test_y", slow=False)
    assert promises.faults(made, [proof]) == ["page.md: no test is marked promise('b')"]
    assert promises.faults(made[:1], [proof, proof._replace(id="c")]) == [
        "tests/test_x.py::test_y: no sentence bears the id 'c'"
    ]
    assert promises.faults([made[0], made[0]], [proof]) == ["a: two sentences bear this id"]
