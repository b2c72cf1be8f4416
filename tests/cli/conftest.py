"""A small project on toy stages, and a way to call the command line in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import HERE, RECIPE, Npuflow, Ran

from npuflow.cli import main
from tests.cli.test_rebuild import FASHION


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe and two texts; the working directory."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("NPUFLOW_STAGES", "wordcount")
    monkeypatch.delenv("NPUFLOW_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / "texts").mkdir(parents=True)
    (folder / "texts/one.txt").write_text("a b A c\n")
    (folder / "texts/two.txt").write_text("c d\n")
    (folder / "words.toml").write_text(RECIPE)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def npuflow(project: Path, capfd: pytest.CaptureFixture[str]) -> Npuflow:
    """Call the command line in this process."""

    def call(*args: str) -> Ran:
        capfd.readouterr()
        code = main(list(args))
        out, err = capfd.readouterr()
        assert "Traceback" not in err, err
        return Ran(code, out, err)

    return call


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fashion example, compiled, with its QDQ model. Who builds more of it begins with a copy of the
    cache."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "net.toml").write_text(FASHION)
    for stage in ("codegen", "qdq"):
        where = ["--cache", str(folder / "cache"), "--out", str(folder), "--quiet"]
        assert main(["build", str(folder / "net.toml"), *where, "--until", stage]) == 0
    return folder
