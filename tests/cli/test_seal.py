"""`npuflow seal`: from a build to a sealed file that states it, checked, refused and run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commandline import Ran

from npuflow.cli import main
from tests.cli.test_rebuild import EXAMPLE, FASHION

QUICK = "[verdict]\nadvice = false\n"
pytest.importorskip("cryptography", reason="the extra sign")


@pytest.fixture(scope="module")
def built(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a build of one program, and the cache."""
    folder = tmp_path_factory.mktemp("sealed")
    shutil.copytree(compiled / "cache", folder / "cache")
    (folder / "net.toml").write_text(FASHION + QUICK)
    where = ["--cache", str(folder / "cache"), "--out", str(folder)]
    assert main(["build", str(folder / "net.toml"), *where]) == 0
    return folder / "net"


@pytest.fixture
def release(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the products, in the working directory, with a pair of keys."""
    monkeypatch.chdir(tmp_path)
    for path in (built / "model.npu", built / "net.lock"):
        shutil.copy(path, tmp_path)
    assert main(["seal", "key", "--new-key"]) == 0
    return tmp_path


def call(capfd: pytest.CaptureFixture[str], *args: str) -> Ran:
    capfd.readouterr()
    code = main(list(args))
    out, err = capfd.readouterr()
    assert "Traceback" not in err, err
    return Ran(code, out, err)


def test_a_sealed_file_states_its_build_and_runs(release: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plain = Path("model.npu").read_bytes()
    ran = call(capfd, "seal", "model.npu", "--json")
    assert ran.code == 0 and ran.lines[0]["status"] == "not sealed"
    ran = call(capfd, "seal", "model.npu", "--key", "key", "--to", "release.npu", "--json")
    (line,) = ran.lines
    stated = line["provenance"]
    assert ran.code == 0 and line["status"] == "sealed" and line["key"].startswith("ed25519:")
    assert set(stated) >= {"model", "data", "code", "recipe", "lock", "libraries", "build", "program"}
    assert stated["build"] == "net" and stated["libraries"]["numpy"] == np.__version__
    assert Path("model.npu").read_bytes() == plain
    ran = call(capfd, "seal", "release.npu", "--check", "key.pub", "--lock", "net.lock")
    assert ran.code == 0 and "trusted" in ran.out and stated["recipe"] in ran.out
    image = np.zeros((1, 1, 28, 28), np.float32)
    np.save("image.npy", image)
    for words in (("release.npu", "--require-key", "key.pub"), ("model.npu",)):
        ran = call(capfd, "run", words[0], "image.npy", "-o", f"{words[0]}.npz", *words[1:])
        assert ran.code == 0, ran.err
    with np.load("release.npu.npz") as sealed, np.load("model.npu.npz") as own:
        assert sealed.files and all((sealed[name] == own[name]).all() for name in own.files)
    ran = call(capfd, "run", "model.npu", "image.npy", "-o", "no.npz", "--require-key", "key.pub")
    assert ran.code == 2 and "NF-PROGRAM-071" in ran.err and not Path("no.npz").exists()
    ran = call(capfd, "serve", "model.npu", "--require-key", line["key"])
    assert ran.code == 2 and "NF-PROGRAM-071" in ran.err


def test_in_place_again_and_with_another_key(release: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(capfd, "seal", "model.npu", "--key", "key").code == 0
    first = Path("model.npu").read_bytes()
    assert call(capfd, "seal", "model.npu", "--key", "key").code == 0
    assert Path("model.npu").read_bytes() == first and not [*Path().glob(".model*")]
    assert call(capfd, "seal", "other", "--new-key").code == 0
    ran = call(capfd, "seal", "model.npu", "--check", "other.pub")
    assert ran.code == 2 and "NF-PROGRAM-072" in ran.err
    assert call(capfd, "seal", "model.npu", "--key", "other").code == 0
    assert call(capfd, "seal", "model.npu", "--check", "other.pub", "--check", "key.pub").code == 0
    assert Path("key").stat().st_mode & 0o777 == 0o600
    ran = call(capfd, "seal", "key", "--new-key")
    assert ran.code == 2 and "NF-USAGE-397" in ran.err


def test_a_build_that_is_not_the_files_is_refused(
    built: Path, release: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither sealed with it, nor taken for it."""
    recipe = built.parent / "net.toml"
    other = ["--cache", str(built.parent / "cache"), "--out", str(release)]
    (release / "six.toml").write_text(recipe.read_text().replace("count = 24", "count = 6"))
    assert main(["build", str(release / "six.toml"), *other]) == 0
    lock = str(release / "six" / "six.lock")
    ran = call(capfd, "seal", "model.npu", "--key", "key", "--lock", lock)
    assert ran.code == 2 and "NF-USAGE-394" in ran.err and "--no-provenance" in ran.err
    assert call(capfd, "seal", "model.npu", "--key", "key").code == 0
    ran = call(capfd, "seal", "model.npu", "--check", "key.pub", "--lock", lock)
    assert ran.code == 2 and "NF-USAGE-399" in ran.err and "other: data" in ran.err
    Path("net.lock").unlink()
    ran = call(capfd, "seal", "model.npu", "--key", "key")
    assert ran.code == 2 and "NF-USAGE-398" in ran.err
    assert call(capfd, "seal", "model.npu", "--key", "key", "--no-provenance").code == 0
    ran = call(capfd, "seal", "model.npu", "--json")
    assert json.loads(ran.out)["provenance"] is None and json.loads(ran.out)["status"] == "intact"
    for words in (("--to", "x.npu"), ("--no-provenance",), ("--key", "key", "--check", "key.pub")):
        ran = call(capfd, "seal", "model.npu", *words)
        assert ran.code == 2 and ("NF-USAGE-395" in ran.err or "NF-USAGE-396" in ran.err)


def test_a_missing_library_is_one_error(
    release: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    ran = call(capfd, "run", "model.npu", str(EXAMPLE / "calib.npz"), "--require-key", "key.pub")
    assert ran.code == 2 and "NF-RUN-130" in ran.err and "npuflow[sign]" in ran.err
