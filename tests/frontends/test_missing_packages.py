"""Front ends whose package is an extra: it is imported when a model is read, and one error names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import FRONTENDS, Bindings

EXTRAS = [("torch", "net.pt2"), ("tensorflow", "net.keras")]


@pytest.mark.parametrize(("package", "model"), EXTRAS)
def test_a_missing_package_is_one_error_that_names_the_extra(
    package: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{package}.py").write_text("raise ImportError('no such package here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / model).write_bytes(b"x")
    reader = FRONTENDS[package]()
    with pytest.raises(ModelError) as caught:
        reader.read(reader.gather(tmp_path / model), Bindings())
    assert f"npuflow[{package}]" in caught.value.hint
    assert caught.value.where is not None and caught.value.where.file == str(tmp_path / model)


@pytest.mark.parametrize("package", [package for package, _ in EXTRAS])
def test_a_front_end_imports_its_package_only_when_it_reads(package: str) -> None:
    code = f"import sys; from npuflow.frontends import FRONTENDS; FRONTENDS[{package!r}]()"
    code += f"; print({package!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
