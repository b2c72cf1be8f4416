"""Registries: folder scans, plug-ins of installed packages, duplicates, one entry per file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from npuflow.base import code, registry
from npuflow.base.code import plugin_closure
from npuflow.base.errors import InputError, InternalError, NpuflowError
from npuflow.base.registry import Registry, touching

ENTRY = (
    '"""File."""\nfrom rg import R\n@R.entry\nclass Entry:\n    """About {0}.\n\n    More."""\n    name = '
    '"{0}"\n'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "rg/things").mkdir(parents=True)
    (tmp_path / "rg/__init__.py").write_text(
        "from npuflow.base.registry import Registry\nR = Registry('rg', 'rg.things')"
    )
    (tmp_path / "rg/things/__init__.py").write_text("")
    for name in ("alpha", "beta", "_private"):
        (tmp_path / f"rg/things/{name}.py").write_text(ENTRY.format(name))
    registry.forget_all()
    yield tmp_path
    for name in [n for n in sys.modules if n.split(".")[0] in ("rg", "plug")]:
        del sys.modules[name]
    Registry.known.pop("rg", None)
    registry.forget_all()
    code.forget()


def plugin(folder: Path, dist: str, points: str, **files: str) -> None:
    """An installed package, as its metadata describe it."""
    info = folder / f"{dist}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rg.things]\n{points}\n")
    (folder / "plug").mkdir(exist_ok=True)
    (folder / "plug/__init__.py").write_text("")
    for name, text in files.items():
        (folder / f"plug/{name}.py").write_text(text)
    registry.forget_all()


def fresh() -> Registry:
    import rg  # type: ignore[import-not-found]

    found: Registry = rg.R
    found.forget()
    return found


def test_names_are_file_names_and_import_nothing(folder: Path) -> None:
    things = fresh()
    assert things.names() == ("alpha", "beta") and list(things) == ["alpha", "beta"] and len(things) == 2
    assert "alpha" in things and "_private" not in things and "x" not in things
    assert not [name for name in sys.modules if name.startswith("rg.things")]
    assert things["alpha"].name == "alpha"
    assert "rg.things.alpha" in sys.modules and "rg.things.beta" not in sys.modules
    assert things.doc("beta") == "About beta."


def test_a_new_file_is_an_entry(folder: Path) -> None:
    (folder / "rg/things/gamma.py").write_text(ENTRY.format("gamma"))
    assert fresh()["gamma"].name == "gamma"
    assert plugin_closure(fresh(), "gamma").digest == plugin_closure(fresh(), "gamma").digest


def test_unknown_names_bring_the_nearest(folder: Path) -> None:
    with pytest.raises(NpuflowError, match='"alpha"') as caught:
        fresh()["alhpa"]
    assert isinstance(caught.value, KeyError) and caught.value.exit_code == 2


def test_plugins_enter_by_entry_points(folder: Path) -> None:
    plugin(
        folder,
        "plug",
        "gamma = plug.one\ndelta = plug.two:Two",
        one=ENTRY.format("gamma"),
        two="class Two: name = 'delta'",
    )
    things = fresh()
    assert things.names() == ("alpha", "beta", "delta", "gamma")
    assert things["gamma"].name == "gamma" and things["delta"].name == "delta"
    assert set(plugin_closure(things, "delta").definitions) == {"plug.two:Two"}
    assert things.source("gamma").plugin == "plug"


def test_duplicates_are_an_error(folder: Path) -> None:
    plugin(folder, "plug", "alpha = plug.one", one=ENTRY.format("alpha"))
    with pytest.raises(InputError, match='"alpha"') as caught:
        fresh().names()
    assert "plug" in caught.value.because and "rg.things" in caught.value.because


def test_one_entry_a_file(folder: Path) -> None:
    (folder / "rg/things/none.py").write_text("class Entry: ...")
    (folder / "rg/things/two.py").write_text(ENTRY.format("a") + "@R.entry\ndef other(): ...")
    with pytest.raises(InternalError, match="marks no entry"):
        fresh()["none"]
    with pytest.raises(InternalError, match="marks two entries"):
        fresh()["two"]


def test_uses_can_be_watched(folder: Path) -> None:
    things = fresh()
    things["alpha"]
    with touching() as seen:
        things["beta"]
        things["beta"]
    things["alpha"]
    assert seen == {"rg/beta"}


def test_forgetting_keeps_what_imported_modules_marked() -> None:
    from npuflow.ir.op import OPS

    slicing = OPS["slice"]
    registry.forget_all()
    assert OPS["slice"] is slicing
